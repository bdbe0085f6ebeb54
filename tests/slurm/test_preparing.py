"""What `make slurm` does before it starts a daemon, and the batch script that it runs, as far as both can be tried."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.kit.debian import Missing, provide
from tests.slurm.__main__ import COMMAND, batch_script, main
from tests.slurm.node import PROGRAMS

ANOTHER_USER = 65534


def test_without_root_it_ends_with_the_list(capfd: pytest.CaptureFixture[str]) -> None:
    """A user who is not root reads what is needed, all of it, and gets exit code 2; nothing was installed or made."""
    before = sorted(Path(tempfile.gettempdir()).glob("rlship-slurm-*"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(ANOTHER_USER)
            code = main([])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    out, err = capfd.readouterr()
    packages = " ".join(sorted(set(PROGRAMS.values())))
    assert (out, f"these packages: {packages}. You are not root here: sudo {COMMAND}" in err) == ("", True), err
    assert sorted(Path(tempfile.gettempdir()).glob("rlship-slurm-*")) == before


def test_without_apt_it_says_where_it_can_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there is no apt-get, or no root, it names what is missing before anything else."""
    monkeypatch.setenv("PATH", str(tmp_path))
    lack = "no apt-get here" if os.geteuid() == 0 else "not root here"
    with pytest.raises(Missing, match=lack):
        provide(COMMAND, PROGRAMS, "nothing")


def test_the_batch_script_is_one() -> None:
    """The page has one batch script. It is valid shell, gives the sidecar a folder of this job's, and has the tasks
    signalled by Slurm rather than by way of srun.
    """
    script = batch_script()
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert "#SBATCH --signal=TERM@" in script
    assert '--dir "$SCRATCH/outputs/grpo-$SLURM_JOB_ID"' in script
