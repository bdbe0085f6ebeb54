"""A Slurm of one node, of Debian's packages: its daemons run here alone, with settings, keys and ports of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from rlship_sidecar.launch.command import death_signal
from tests.kit.debian import PLACES
from tests.kit.waiting import wait_until

PROGRAMS: Mapping[str, str] = {
    "munged": "munge",
    **dict.fromkeys(("slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol"), "slurm-wlm"),
}
CPUS = 16  # of the node, as its settings say: jobs of four tasks run side by side
SETTINGS = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MinJobAge=3600
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
READY_S = 60.0
ENDS_S = 60.0


class Node:
    """Use as a context manager: at the end its jobs are cancelled, and the daemons and their folder are gone."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rlship-slurm-"))
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environment = {**os.environ, "PATH": PLACES, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self._jobs: list[int] = []

    def __enter__(self) -> Node:
        with ExitStack() as undo:
            undo.push(self.__exit__)
            self._start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if self._jobs:
                for how in (("--signal=KILL", "--full"), ()):
                    self.run("scancel", *how, *self._jobs, fails=True)  # it fails for jobs that have ended
                wait_until(lambda: not self.run("squeue", "--noheader"), "the end of all jobs", timeout_s=ENDS_S)
        finally:
            for daemon in reversed(self._daemons):
                daemon.terminate()
                try:
                    daemon.wait(ENDS_S)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        self.folder.chmod(0o755)  # munged refuses a socket that not everyone can reach
        keys = self.folder / "keys"
        keys.mkdir(mode=0o700)
        (keys / "key").write_bytes(secrets.token_bytes(128))
        (keys / "key").chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        controller_port, node_port = _free_ports()
        (self.folder / "slurm.conf").write_text(
            SETTINGS.format(
                host=host, folder=self.folder, controller_port=controller_port, node_port=node_port, cpus=CPUS
            )
        )
        files = {"key-file": keys / "key", "seed-file": keys / "seed", "log-file": keys / "log"}
        files |= {"socket": self.folder / "munge.socket", "pid-file": self.folder / "munge.pid"}
        self._daemon("munged", "--foreground", "--num-threads=4", *(f"--{name}={file}" for name, file in files.items()))
        self._until((self.folder / "munge.socket").exists, "munged")
        self._daemon("slurmctld", "-D")
        self._daemon("slurmd", "-D", "-N", host)
        self._until(lambda: self.run("sinfo", "--noheader", "--format=%T", fails=True) == "idle", "an idle node")

    def _daemon(self, program: str, *words: str) -> None:
        with open(self.folder / f"{program}.log", "wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    [self._found(program), *words],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=death_signal(signal.SIGTERM),
                )
            )

    def _found(self, program: str) -> str:
        return shutil.which(program, path=PLACES) or program

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        def is_ready() -> bool:
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            assert not ended, f"{ended} ended: {self.said()}"
            return ready()

        wait_until(is_ready, lambda: f"{what}: {self.said()}", timeout_s=READY_S)

    def said(self) -> str:
        """The last lines of the daemons."""
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in sorted(self.folder.glob("*.log")))

    def run(self, program: str, *words: object, fails: bool = False) -> str:
        """What a client of Slurm's prints; it must succeed unless it may fail."""
        command = [self._found(program), *map(str, words)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=READY_S)
        assert fails or done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
        return done.stdout.strip()

    def submit(self, script: Path, folder: Path, environment: Mapping[str, str], *options: str) -> int:
        """Submit a batch script, to run in `folder`; returns the job's id. What it prints goes to `<job>.out` there."""
        output = f"--output={folder}/%j.out"
        words = [self._found("sbatch"), "--parsable", f"--chdir={folder}", output, *options, str(script)]
        told = {**environment, "SLURM_CONF": self._environment["SLURM_CONF"]}
        done = subprocess.run(words, env=told, capture_output=True, text=True, timeout=READY_S)
        assert done.returncode == 0, done.stderr
        self._jobs.append(int(done.stdout))
        return self._jobs[-1]

    def told_of(self, job: int) -> dict[str, str]:
        """What Slurm knows of a job, such as `JobState` and `Restarts`."""
        words = self.run("scontrol", "--oneliner", "show", "job", job).split()
        return {name: value for name, _, value in (word.partition("=") for word in words)}


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
