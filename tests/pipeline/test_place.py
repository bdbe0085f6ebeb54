"""Where the state may lie, and files that others may have put in place."""

from __future__ import annotations

import os
import socket
import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from rlship_sidecar import config
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.ownership.lease import LeaseLost, acquire
from rlship_sidecar.ownership.place import UntrustedState, make_place
from rlship_sidecar.plainfiles import NotAFile, make_plain, open_folder, open_plain, read_plain, write_plain

NO_ID = 0xFFFFFFFF  # of an entry of an ACL that names no user or group


def test_the_state_folder_is_made_and_found_again(tmp_path: Path) -> None:
    """In an experiment that has none, and elsewhere with all folders on the way."""
    for state in (tmp_path / "rlship" / "state", tmp_path / "far" / "away" / "job"):
        make_place(tmp_path, state)
        make_place(tmp_path, state)
        assert os.listdir(state) == []


@pytest.mark.parametrize("where", ["rlship", "rlship/state", "rlship/state/tensorboard"])
def test_a_link_is_not_followed(tmp_path: Path, where: str) -> None:
    """Not in place of the writers' folder, of the state, or of anything in it; nothing is made where it leads."""
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "job" / where
    elsewhere.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(UntrustedState, match="is a link") as refused:
        make_place(tmp_path / "job", tmp_path / "job" / "rlship" / "state")
    assert "--state-dir" in refused.value.hint
    assert os.listdir(elsewhere) == []


def test_what_no_sidecar_makes_is_refused(tmp_path: Path) -> None:
    """A FIFO among the state's files."""
    state = tmp_path / "rlship" / "state"
    make_place(tmp_path, state)
    os.mkfifo(state / "lease.0")
    with pytest.raises(UntrustedState, match="no regular file"):
        make_place(tmp_path, state)


def test_the_state_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is neither ours nor the superuser's, where what we make is ours; but not where the server makes all
    users one, so that what we make is the folder's owner's too.
    """
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setattr("rlship_sidecar.ownership.place._our_uid", lambda folder: 12345)
    monkeypatch.setattr("rlship_sidecar.ownership.place._TRUSTED", ())
    with pytest.raises(UntrustedState, match="belongs to another user"):
        make_place(tmp_path, state)
    monkeypatch.undo()
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    make_place(tmp_path, state)
    assert os.listdir(state) == []


def test_a_lease_ends_when_its_folder_is_exchanged(tmp_path: Path) -> None:
    """Another folder of the name, or a link to a copy, is not the one that was locked; nothing is written to it."""
    state, copy = tmp_path / "state", tmp_path / "copy"
    lease = acquire(state, 30.0)
    copy.mkdir()
    (copy / "lease.0").write_bytes(b"precious")
    os.rename(state, tmp_path / "former")
    state.symlink_to(copy)
    with pytest.raises(LeaseLost, match="put in its place"):
        lease.check()
    lease.release()
    assert (copy / "lease.0").read_bytes() == b"precious"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


@pytest.mark.parametrize("put", [_fifo, _link, _socket, Path.mkdir])
def test_reading_what_is_no_file_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None]
) -> None:
    """A FIFO without a writer, a link, a socket, a folder: an error, and a new file takes its place untouched."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "f"
    put(path)
    for read in (lambda: read_plain(path, 9), lambda: open_plain(str(path)), lambda: open_plain(str(path), "")):
        with pytest.raises(OSError):
            read()
    if put is not Path.mkdir:
        write_plain(path, b"new")
        assert path.read_bytes() == b"new" and not path.is_symlink()
        assert b"root" in Path("/etc/passwd").read_bytes()


def test_folders_on_the_way_may_not_be_links(tmp_path: Path) -> None:
    """Below the root no link is followed, the root itself is; the same for listing."""
    real = tmp_path / "real" / "a" / "b"
    real.mkdir(parents=True)
    (real / "f").write_bytes(b"yes")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "l").symlink_to("a")
    root = str(tmp_path / "root")
    fd = open_plain(f"{root}/a/b/f", root)
    assert os.read(fd, 9) == b"yes"
    os.close(fd)
    fd = open_folder(f"{root}/a/./b", root)
    assert os.listdir(fd) == ["f"]
    os.close(fd)
    before = len(os.listdir("/proc/self/fd"))
    for path in ("l/b/f", "a/b/f/g", "a/none/f"):
        with pytest.raises(OSError):
            open_plain(f"{root}/{path}", root)
    with pytest.raises(NotADirectoryError):
        open_folder(f"{root}/l", root)
    with pytest.raises(NotAFile):
        open_plain(f"{root}/a/b", root)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_new_file_leaves_other_names_of_the_former_alone(tmp_path: Path) -> None:
    """A hard link put in its place is removed, not written through."""
    precious, path = tmp_path / "precious", tmp_path / "f"
    precious.write_bytes(b"precious")
    os.link(precious, path)
    os.close(make_plain(path))
    assert (precious.read_bytes(), path.read_bytes()) == (b"precious", b"")


def test_settings_of_another_user_do_not_say_where_rows_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long to wait may be in anybody's rlship.toml; a sink's address, or where the state lies, only in one's own,
    the superuser's, or one that was named. A process that only looks may look where it says.
    """
    file = tmp_path / "rlship.toml"
    monkeypatch.setattr("rlship_sidecar.config.stranger", lambda path, found: 1001)
    file.write_text("grace_s = 7\n")
    assert config.load(tmp_path, {}, {}).grace_s == 7
    for text in ('state_dir = "/tmp/x"', 'sinks = ["jsonl"]', '[sink.wandb]\nbase_url = "https://evil.example"'):
        file.write_text(text + "\n")
        with pytest.raises(UsageProblem, match="another user") as refused:
            config.load(tmp_path, {}, {})
        assert "--config" in refused.value.hint
        config.load(tmp_path, {}, {}, file=file)
        config.load(tmp_path, {}, {}, ships=False)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_settings_that_others_can_write_do_not_say_where_rows_go(tmp_path: Path, mode: int) -> None:
    """One's own file counts as theirs where the mode lets the group or everybody write it, unless it is named."""
    file = tmp_path / "rlship.toml"
    file.write_text("grace_s = 7\n")
    file.chmod(mode)
    assert config.load(tmp_path, {}, {}).grace_s == 7
    file.write_text('[sink.wandb]\nbase_url = "https://evil.example"\n')
    with pytest.raises(UsageProblem, match=f"can be written by other users .mode {mode:04o}.*sink is not") as refused:
        config.load(tmp_path, {}, {})
    assert f"chmod go-w {file}" in refused.value.hint and f"--config {file}" in refused.value.hint
    config.load(tmp_path, {}, {}, file=file)
    config.load(tmp_path, {}, {}, ships=False)
    file.chmod(0o644)
    config.load(tmp_path, {}, {})


def test_settings_that_an_acl_lets_others_write_do_not_say_where_rows_go(tmp_path: Path) -> None:
    """An ACL that lets a user write shows in the group's bits of the mode, which are its mask."""
    file = tmp_path / "rlship.toml"
    file.write_text('[sink.wandb]\nbase_url = "https://evil.example"\n')
    entries = [(0x01, 6, NO_ID), (0x02, 6, 1001), (0x04, 4, NO_ID), (0x10, 6, NO_ID), (0x20, 4, NO_ID)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", acl)
    except OSError as problem:
        warnings.warn(f"{tmp_path} has no POSIX ACLs ({problem.strerror}): tried with the mode alone", stacklevel=1)
        file.chmod(0o664)  # what such an ACL shows
    with pytest.raises(UsageProblem, match="can be written by other users"):
        config.load(tmp_path, {}, {})


def test_settings_that_are_no_file_are_an_error_at_once(tmp_path: Path) -> None:
    """A FIFO, a device without end, a file of gigabytes; and a file that was named and is not there."""
    file = tmp_path / "rlship.toml"
    os.mkfifo(file)
    with pytest.raises(UsageProblem, match="not a regular file"):
        config.load(tmp_path, {}, {})
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(UsageProblem, match="not a regular file"):
        config.load(tmp_path, {}, {})
    file.unlink()
    with open(file, "wb") as out:
        out.truncate(1 << 40)
    with pytest.raises(UsageProblem, match="larger than 256 KiB"):
        config.load(tmp_path, {}, {})
    with pytest.raises(UsageProblem, match="No such file"):
        config.load(tmp_path, {}, {}, file=tmp_path / "none.toml")
