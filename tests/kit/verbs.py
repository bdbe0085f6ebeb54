"""A verb of the command line, run within the process of the test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner

from rlship_sidecar.cli.group import rlship


def run_here(*arguments: object, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end in `cwd`, with the variables `env` and no others.

    It reads, writes, says and returns what a process of its own would, without the half second of CPU time that such a
    process takes to start. Two things differ: an exception that would be a traceback there is raised here, and as this
    process lives on, `status` takes a sidecar that ended in it for one that runs.
    """
    words = [str(argument) for argument in arguments]
    former = os.getcwd()
    os.chdir(cwd)
    try:
        with patch.dict(os.environ, env, clear=True):
            result = CliRunner().invoke(rlship, words, catch_exceptions=False)
    finally:
        os.chdir(former)
    return subprocess.CompletedProcess(words, result.exit_code, result.stdout, result.stderr)
