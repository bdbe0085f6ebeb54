"""Planted links in the experiment's folder steer no write of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.writer.reading import files, logger_at, metrics, records, soon


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_place_of_the_folder_is_not_followed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], there: bool
) -> None:
    """Nothing is written elsewhere, the reason is given once, and the lines come once the link is gone."""
    elsewhere, experiment = tmp_path / "elsewhere", tmp_path / "experiment"
    experiment.mkdir()
    if there:
        elsewhere.mkdir()
    (experiment / "rlship").symlink_to(elsewhere)
    logger = logger_at(experiment)
    logger.log({"a": 1.0})
    assert not logger.flush(0.2)
    (experiment / "rlship").unlink()
    assert logger.close()
    assert metrics(records(experiment)) == [{"m": {"a": 1.0}}]
    assert not elsewhere.exists() or not [*elsewhere.iterdir()]
    error = capfd.readouterr().err
    assert error.count("is a link, which is not followed: remove it, or give init()") == 1


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    """A writer whose file was exchanged for a link begins a new file."""
    target = tmp_path / "target"
    target.write_bytes(b"{}\n")
    logger = logger_at(tmp_path, timing=None)
    logger.log({"a": 1.0})
    assert logger.flush()
    assert logger.path is not None
    path = Path(logger.path)
    path.unlink()
    path.symlink_to(target)
    logger.log({"a": 2.0})
    assert logger.flush()
    assert target.read_bytes() == b"{}\n"
    assert logger.path != str(path)
    path.unlink()
    soon(tmp_path, lambda found: metrics(found) == [{"m": {"a": 2.0}}])
    logger.close()
    assert len(files(tmp_path)) == 1
