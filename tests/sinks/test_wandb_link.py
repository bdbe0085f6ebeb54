"""The environment of the W&B child: the API key out of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.wandb import link as wandb_link
from rlship_sidecar.sinks.wandb.link import with_key


def test_where_a_key_comes_from(tmp_path: Path) -> None:
    """The variable wins over the file that one names, and that over systemd's credential; space is no part of it."""
    (tmp_path / "wandb_api_key").write_text("of-systemd\n")
    (tmp_path / "named").write_text("  of-file\n")
    credentials = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    file = {"WANDB_API_KEY_FILE": str(tmp_path / "named")}
    assert with_key(credentials)["WANDB_API_KEY"] == "of-systemd"
    assert with_key(credentials | file)["WANDB_API_KEY"] == "of-file"
    assert with_key(credentials | file | {"WANDB_API_KEY": "own"})["WANDB_API_KEY"] == "own"
    assert with_key(credentials | file | {"WANDB_API_KEY": ""})["WANDB_API_KEY"] == "of-file"


def test_no_key_is_no_mistake(tmp_path: Path) -> None:
    """Without a credential of the name, and with an empty file, the client's own ways are left."""
    (tmp_path / "empty").write_text("\n")
    for env in ({}, {"CREDENTIALS_DIRECTORY": str(tmp_path)}, {"WANDB_API_KEY_FILE": str(tmp_path / "empty")}):
        assert with_key(env) == env


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory. Make it readable for the sidecar's user"),
        (b"\xff\xfe", "cannot be read: it is not text"),
        (b"s3cret one", "holds no API key"),
        (b"s3cret" * 1000, "holds no API key"),
        (b"s3cret\x1b[2J", "holds no API key"),
    ],
)
def test_a_file_that_holds_none_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    """The error names the file and never what is in it."""
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SinkRefused, match=message) as raised:
        with_key({"WANDB_API_KEY_FILE": str(path)})
    assert str(path) in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_the_client_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the environment of the client's process, and in that of no other."""
    (tmp_path / "key").write_text("k" * 40)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_API_KEY_FILE", str(tmp_path / "key"))
    assert wandb_link.environment()["WANDB_API_KEY"] == "k" * 40
    assert "WANDB_API_KEY" not in wandb_link.os.environ
