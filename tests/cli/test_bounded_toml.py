"""A `rlship.toml` of anybody costs little, whatever is in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlship_sidecar import bounded_toml
from rlship_sidecar.bounded_toml import MAX_BYTES, MAX_KEY_PARTS, MAX_NESTING, MAX_WORD, BadToml
from tests.cli.test_watch import run

ROOT = Path(__file__).parents[2]
HOSTILE = {
    "dotted keys": (".".join("a" * 16_000) + " = 1\n", "a key has more than 16 parts"),
    "dotted keys with blanks and quotes": (" . ".join(['"a"', "a"] * 4000) + " = 1\n", "a key has more than 16 parts"),
    "dotted header": ("[" + ".".join("a" * 16_000) + "]\n", "a key has more than 16 parts"),
    "deep arrays": ("a = " + "[" * 16_000 + "]" * 16_000, "more than 16 brackets are open at once"),
    "deep tables": ("a = " + "{b = " * 5000 + "1" + "}" * 5000, "more than 16 brackets are open at once"),
    "a long integer": ("a = " + "9" * 32_000, "a number, or a name without quotes, has more than 200 characters"),
    "a long hexadecimal": ("a = 0x" + "f" * 32_000, "a number, or a name without quotes, has more than 200 characters"),
    "a long file": ("#" * (MAX_BYTES + 1), "is larger than 256 KiB"),
    "half a surrogate": ('a = "\\ud800"', "not TOML"),
    "an impossible date": ("a = 2020-02-31", "not TOML"),
}
MEASURED = """
import resource, sys
from rlship_sidecar import bounded_toml
text = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bounded_toml.decode(text)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_beyond_a_bound_is_a_usage_error(name: str, tmp_path: Path) -> None:
    """Exit code 2, with the file, the bound and the way out; no traceback."""
    text, told = HOSTILE[name]
    (tmp_path / "rlship").mkdir()
    (tmp_path / "rlship.toml").write_text(text)
    done = run(tmp_path, "watch", "--once", tmp_path)
    assert done.returncode == 2 and f"{tmp_path / 'rlship.toml'}: {told}" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_within_all_bounds_is_taken() -> None:
    """Dots, brackets and long words in strings and comments count for nothing, nor do numbers that stand in a row."""
    long = "x" * (MAX_WORD + 1) + "." * 99 + "[" * 99
    text = f"""
    # {long}
    basic = "{long} \\" # '"
    literal = '{long} \\'
    several = \"\"\"{long} \\\"\"\" {long}\"\"\"\"\"
    and_more = '''{long} "
    {long}'''''
    numbers = [{", ".join(["0.5"] * 1000)}]
    "{long}" = {"[" * MAX_NESTING + "]" * MAX_NESTING}
    {".".join(["a"] * MAX_KEY_PARTS)} = {"9" * MAX_WORD}
    """
    table = bounded_toml.decode(text.encode())
    assert (table["basic"], table["literal"]) == (f"{long} \" # '", f"{long} \\")
    assert table["several"] == f'{long} """ {long}""' and table["and_more"].endswith("''")
    assert len(table["numbers"]) == 1000 and long in table


@pytest.mark.parametrize("unit", ["[{number:x}." + ".".join("a" * 15) + "]\n", "a{number:x} = 1\n"])
def test_the_worst_within_the_bounds_takes_bounded_memory(unit: str) -> None:
    """A file of the greatest size, of headers or keys as costly as they may be."""
    count = (MAX_BYTES - 20) // len(unit.format(number=1 << 16))
    text = "".join(unit.format(number=number) for number in range(count)).encode()
    done = subprocess.run([sys.executable, "-c", MEASURED], input=text, capture_output=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200  # MB


def test_what_does_not_end_is_looked_at_once() -> None:
    """Strings that do not end take no time that grows with the square of their length."""
    for text in ('"' * MAX_BYTES, 'a = """' + '\\"""' * (MAX_BYTES // 5), "'" * MAX_BYTES, "a" + " " * (MAX_BYTES - 1)):
        with pytest.raises(BadToml, match="not TOML"):
            bounded_toml.decode(text[:MAX_BYTES].encode())
