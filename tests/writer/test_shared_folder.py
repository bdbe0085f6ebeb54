"""Whom the folder of the experiments is meant for, those may keep state beside the files, whatever the job's umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlship
from rlship.file import Disk


@pytest.fixture(params=[0o022, 0o027], ids=["umask 022", "umask 027"])
def strict(request: pytest.FixtureRequest) -> Iterator[int]:
    """A usual umask, which lets the group read only."""
    former = os.umask(request.param)
    yield request.param
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def outputs(folder: Path, its_mode: int) -> Path:
    made = folder / "outputs"
    made.mkdir()
    made.chmod(its_mode)
    return made


def test_a_group_that_may_write_above_may_write_in_it(tmp_path: Path, strict: int) -> None:
    """Below a folder with the set-group-ID bit, all that `init` makes are writable for the group, and keep the bit."""
    shared = outputs(tmp_path, 0o2775)
    rlship.init(shared / "team" / "job", actor="trainer").close()
    for made in ("team", "team/job", "team/job/rlship"):
        assert mode(shared / made) == 0o2777 & ~strict | stat.S_IWGRP, made


def test_a_folder_that_another_process_just_made(tmp_path: Path, strict: int) -> None:
    """Between that process's mkdir and its chmod the group may not write in it, but has to in what is made there."""
    shared = outputs(tmp_path, 0o2775)
    (shared / "team" / "job").mkdir(parents=True)
    assert mode(shared / "team" / "job") == 0o2777 & ~strict
    Disk().make_folder(str(shared / "team" / "job" / "rlship"))
    assert mode(shared / "team" / "job" / "rlship") & stat.S_IWGRP


@pytest.mark.parametrize("its_mode", [0o775, 0o2755, 0o2700])
def test_a_folder_that_is_not_shared_is_made_as_the_umask_says(tmp_path: Path, strict: int, its_mode: int) -> None:
    """Without the bit, or where the group may not write above."""
    alone = outputs(tmp_path, its_mode)
    rlship.init(alone / "job", actor="trainer").close()
    assert not mode(alone / "job" / "rlship") & stat.S_IWGRP


def test_a_umask_that_shuts_the_group_out_is_heeded(tmp_path: Path) -> None:
    """0077 says that values are for their owner alone."""
    shared, former = outputs(tmp_path, 0o2775), os.umask(0o077)
    try:
        rlship.init(shared / "job", actor="trainer").close()
    finally:
        os.umask(former)
    assert mode(shared / "job" / "rlship") & 0o077 == 0


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path, strict: int) -> None:
    """Its mode is its owner's."""
    shared = outputs(tmp_path, 0o2775)
    (shared / "rlship").mkdir(mode=0o750)
    before = mode(shared / "rlship")
    Disk().make_folder(str(shared / "rlship"))
    assert mode(shared / "rlship") == before
