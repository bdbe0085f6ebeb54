"""The `rlship` command. The command line itself is the sidecar's, and so are the packages it needs."""

from __future__ import annotations

import gc
import os
import sys

from rlship.hook.environment import drop_hook


def main() -> None:
    """Run the command line. If only the writer is installed, explain how to install the rest and exit with code 1."""
    drop_hook(os.environ)  # its own client of W&B, and that of its children, is the real one
    try:
        gc.disable()  # what an import makes stays: looking through it for garbage takes a tenth of the start
        from rlship_sidecar.cli import main as command

        gc.freeze()
        gc.enable()
        command()
    except ModuleNotFoundError as error:
        needed, missing = _needed()
        if needed and not missing:
            raise  # one of rlship's own modules is missing, or one of a plug-in: installing ours would not help
        install = "the dependencies in rlship's pyproject.toml"
        if needed:
            from shlex import join

            # They are named and not rlship, which is on no index: anyone could put a package of that name there.
            install = join([sys.executable, "-m", "pip", "install", *needed])
        sys.stderr.write(f"rlship: {error}: only the writer is installed. What the command needs: {install}\n")
        sys.exit(1)


def _needed() -> tuple[list[str], list[str]]:
    """What the command needs, as pip spells it, and what of it is not installed. Nothing where rlship itself is not."""
    import re
    from importlib.metadata import PackageNotFoundError, requires, version

    try:
        needed = [one for one in requires("rlship") or () if "extra ==" not in one]
    except PackageNotFoundError:
        return [], []
    missing = []
    for one in needed:
        match = re.match(r"[\w.-]+", one)
        assert match is not None
        try:
            version(match[0])
        except PackageNotFoundError:
            missing.append(one)
    return needed, missing


if __name__ == "__main__":
    main()
