"""Temporary folders of processes that were killed are removed, those of living ones are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rlship_sidecar.scratch import YOUNG_S, remove_left_behind, scratch

HOLD = """
import sys, time
from rlship_sidecar.scratch import scratch
with scratch("query") as folder:
    (folder / "tables.db").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_killed_owner_leaves_nothing_for_long(temporary: Path) -> None:
    """As long as the owner lives its folder stays, however old; once it is killed, the next process removes it."""
    owner = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout as output:
        folder = Path(output.readline().strip())
        later = time.time() + 2 * YOUNG_S
        remove_left_behind(later)
        assert (folder / "tables.db").exists()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    remove_left_behind()
    assert folder.exists()  # too young: it could be one that is about to be locked
    remove_left_behind(later)
    assert not folder.exists()


def test_folders_of_others_stay(temporary: Path) -> None:
    """A folder without an owner's file, a link, and a file of such a name are not ours to remove."""
    (temporary / "rlship-old").mkdir()
    (temporary / "rlship-file").write_text("x")
    (temporary / "target").mkdir()
    (temporary / "target" / ".owner").touch()
    (temporary / "rlship-link").symlink_to("target")
    (temporary / "other").mkdir()
    (temporary / "other" / ".owner").touch()
    before = sorted(os.listdir(temporary))
    remove_left_behind(time.time() + 2 * YOUNG_S)
    assert sorted(os.listdir(temporary)) == before


def test_a_folder_is_gone_after_its_use(temporary: Path) -> None:
    """In the ordinary case its own process removes it."""
    with scratch("query") as folder:
        assert folder.parent == temporary
    assert list(temporary.iterdir()) == []
