"""`rlship check` of other frameworks' files: which lines their reader cannot use, and why."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlship_formats.foreign.registry import installed
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.tail.foreign import readers
from rlship_sidecar.tail.foreign.readers import Readers
from tests.foreign.watched import SAMPLES
from tests.kit.files import file, log

VERL = b'{"input":"p","output":"o","gts":"2","score":%s,"step":%s}\n'
EACH = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())


def check(*arguments: object) -> Result:
    return CliRunner().invoke(rlship, ["check", *map(str, arguments)])


def put(folder: Path, name: str, text: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


@pytest.mark.parametrize("name", EACH)
def test_what_frameworks_wrote_has_no_error(name: str) -> None:
    """Every file of every sample, by its experiment, and by its own name."""
    done = check(SAMPLES / name)
    assert done.exit_code == 0, done.output
    assert ": 0 errors, 0 warnings" in done.output
    found = [path for path in (SAMPLES / name).rglob("*") if path.is_file()]
    assert check(*found).output == done.output
    assert done.output.startswith(f"{len(found)} file")


def test_lines_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """With their number, the byte where they begin, what is wrong and why."""
    good = VERL % (b"1.0", b"3")
    path = put(
        tmp_path, "rollout_data/3.jsonl", good + b"\nrubbish\n" + VERL % (b"1.0", b"-1") + b'{"step":3}\n' + good[:9]
    )
    done = check("--json", path)
    assert done.exit_code == 1
    found = [json.loads(line) for line in done.output.splitlines()]
    assert [(one["line"], one["at"], one["level"], one["what"]) for one in found] == [
        (3, len(good) + 1, "error", "not JSON"),
        (4, len(good) + 9, "error", "bad step"),
        (5, 2 * len(good) + 10, "error", "no rollout"),
        (6, 2 * len(good) + 21, "warning", "unfinished line"),
    ]
    assert found[2]["why"] == "the reader verl-rollouts cannot use the line: no rollout"
    assert "docs/foreign.md" in found[2]["fix"]
    assert f"{path}:5: error: no rollout" in check(path).output


def test_a_line_that_two_actors_share_is_named_once(tmp_path: Path) -> None:
    """prime-rl's trainer and orchestrator are in one file; each line is one's."""
    path = put(
        tmp_path,
        "metrics.jsonl",
        b'{"step":1,"time":1795261720.0,"loss/mean":1.0}\n{"step":-1,"time":1795261720.0,"loss/mean":1.0}\n',
    )
    done = check(path)
    assert done.exit_code == 1
    assert done.output.endswith("1 file, 2 lines: 1 error, 0 warnings\n")


def test_a_line_that_is_too_long_is_named(tmp_path: Path) -> None:
    """As it is a dead letter."""
    good = VERL % (b"1.0", b"3")
    done = check(put(tmp_path, "val/3.jsonl", good + b'"' + b"x" * (1 << 20) + b'"\n' + good))
    assert done.exit_code == 1
    assert "3.jsonl:2: error: line too long" in done.output


def test_a_parquet_file_that_is_not_whole_is_named(tmp_path: Path) -> None:
    """It may still be written. The others of the folder are checked."""
    shutil.copytree(SAMPLES / "trl-completions", tmp_path / "run")
    path = tmp_path / "run/completions/completions_00002.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    done = check(path)
    assert done.exit_code == 1
    assert f"{path} is not read, as it is being written or was left half written: no Parquet footer" in done.output
    done = check(*sorted(path.parent.iterdir()))
    assert "3 files, 15 lines: 0 errors, 0 warnings; 1 could not be checked" in done.output


def test_a_reader_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be installed is said, not that the file is no writer's."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(readers, "readers", lambda: Readers(*installed()))
    done = check(SAMPLES / "trl-completions/completions/completions_00001.parquet")
    assert done.exit_code == 1
    assert "the reader trl-completions failed: ImportError: Parquet files need the package pyarrow" in done.output


def test_native_and_foreign_files_of_an_experiment(tmp_path: Path) -> None:
    """Both are checked, each by its own rules."""
    put(tmp_path, "rlship/a.jsonl", file(log(0, loss=1.0), {"step": -1, "m": {}}))
    put(tmp_path, "rollout_data/3.jsonl", VERL % (b"1.0", b"3") + b"[]\n")
    put(tmp_path, "notes.jsonl", b'{"what":"is this"}\n')
    done = check(tmp_path)
    assert done.output.endswith("2 files, 5 lines: 2 errors, 3 warnings\n"), done.output
    assert "rlship/a.jsonl:3: error: bad step" in done.output
    assert "rollout_data/3.jsonl:2: error: not an object" in done.output
