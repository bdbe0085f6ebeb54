"""Ctrl-C and SIGTERM, in a process of their own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import sys, signal, threading, time
from rlship_sidecar.cli.signals import stop_on_signals
with stop_on_signals(lambda line: print(line, flush=True)) as stop:
    print("ready", flush=True)
    stop.wait()
    if sys.argv[1:] == ["hang"]:
        time.sleep(60)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert threading.active_count() == 1
print("drained", flush=True)
sys.exit(3)
"""


def start(*args: str, prefix: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", prefix + PROGRAM, *args], stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_for_a_drain(number: signal.Signals) -> None:
    """After one signal the work goes on to its own end and exit code."""
    with start() as process:
        assert line(process) == "ready"
        process.send_signal(number)
        assert line(process).startswith("stopping")
        assert line(process) == "drained"
        assert process.wait(30) == 3


def test_the_second_signal_ends_at_once() -> None:
    """A second signal does not wait for a drain that hangs."""
    with start("hang") as process:
        assert line(process) == "ready"
        process.terminate()
        assert line(process).startswith("stopping")
        process.terminate()
        assert line(process).startswith("stopped without delivering")
        assert process.wait(30) == 128 + signal.SIGTERM


def test_nohup_is_respected() -> None:
    """A process started with SIGHUP ignored goes on ignoring it."""
    with start(prefix="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n") as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGHUP)
        process.terminate()
        assert line(process).startswith("stopping")
        assert line(process) == "drained"
        assert process.wait(30) == 3
