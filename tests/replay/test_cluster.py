"""The same on a real Ray cluster of this machine."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.endtoend.sidecar import NO_SETTINGS, RLSHIP, environment
from tests.kit.tools import module
from tests.kit.waiting import wait_until
from tests.reference.reduction import exactly
from tests.replay.replaying import make, newest_rows
from tests.replay.test_ahead import RANKS, lines

pytestmark = pytest.mark.ray

START_S = 60.0


def rlship(
    home: Path, *arguments: object, settings: Mapping[str, str] = NO_SETTINGS
) -> subprocess.CompletedProcess[str]:
    """Run a verb in a process of its own: Ray reads its variables once in a process."""
    return subprocess.run(
        [*RLSHIP, *map(str, arguments)],
        cwd=home.parent,
        env=environment(home, settings),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A cluster of two CPUs that asks for a token; what its user has to set."""
    module("ray")
    # Paths of sockets must be short, shorter than those of pytest.
    folder = Path(f"/tmp/rlship-ray-{os.getpid()}")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    known = folder / "ray_current_cluster"
    options = ["--head", "--port=0", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", "--block"]
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", *options),
        *(f"--temp-dir={folder}", "--object-store-memory=100000000"),
    ]
    log = tmp_path_factory.mktemp("ray") / "log"
    with open(log, "wb") as told:
        process = subprocess.Popen(command, env=os.environ | token, stdout=told, stderr=told, start_new_session=True)
    try:

        def started() -> bool:
            assert process.poll() is None, log.read_text()
            return b"Ray runtime started" in log.read_bytes()

        wait_until(started, log.read_text)
        yield token | {"RAY_ADDRESS": known.read_text().strip()}
    finally:
        process.send_signal(signal.SIGTERM)  # it ends its own
        process.wait(START_S)
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_rows_are_those_of_one_process(cluster: dict[str, str], tmp_path: Path) -> None:
    """Decoded by tasks of the cluster, the rows have the bits that one process makes."""
    home = tmp_path / "home"
    home.mkdir()
    job = make(tmp_path / "grpo", {f"r{rank}.jsonl": lines(rank) for rank in range(RANKS)})
    alone = rlship(home, "replay", job, "--sink", "jsonl", "--jobs", 1, "--out", tmp_path / "one")
    done = rlship(
        home, "replay", job, "--sink", "jsonl", "--engine", "ray", "--out", tmp_path / "two", settings=cluster
    )
    assert (alone.returncode, done.returncode) == (3, 3), done.stderr
    assert "are gone" not in done.stderr
    assert exactly(newest_rows(tmp_path / "two")) == exactly(newest_rows(tmp_path / "one"))


def test_nothing_is_started(tmp_path: Path) -> None:
    """Without a cluster it says how to name one, exits with 1 and starts none."""
    module("ray")
    home = tmp_path / "home"
    home.mkdir()
    job = make(tmp_path / "grpo", {"r0.jsonl": lines(0)})
    done = rlship(home, "replay", job, "--engine", "ray", settings={"RAY_ADDRESS": "127.0.0.1:1"})
    assert done.returncode == 1, done.stderr
    assert "no Ray cluster can be used" in done.stderr and "ray start --head" in done.stderr


def test_tasks_import_nothing_from_the_folder_of_the_replay(cluster: dict[str, str], tmp_path: Path) -> None:
    """A module planted in the current folder is not run by Ray's workers, and the current folder stays what it is."""
    home, witness = tmp_path / "home", tmp_path / "witness"
    home.mkdir()
    job = make(tmp_path / "grpo", {f"r{rank}.jsonl": lines(rank) for rank in range(RANKS)})
    (tmp_path / "rlship_formats.py").write_text(f"open({str(witness)!r}, 'a').write(__name__)\n")
    done = rlship(
        home, "replay", job, "--sink", "jsonl", "--engine", "ray", "--out", "out",
        settings={**cluster, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert not witness.exists() and (tmp_path / "out" / "rows.jsonl").is_file()
