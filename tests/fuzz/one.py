"""One target under the fuzzer: `python -m tests.fuzz.one NAME CORPUS [libFuzzer's options]`. Does not return."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["rlship", "rlship_formats", "rlship_sidecar"]):
    from tests.fuzz.targets import targets


def main() -> None:
    """Fuzz it."""
    name, *options = sys.argv[1:]
    (target,) = [target for target in targets() if target.name == name]
    atheris.Setup([sys.argv[0], *options], target.play)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
