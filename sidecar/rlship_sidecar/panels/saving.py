"""Saves a view at W&B by one child process, which runs the client and lives for this alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from rlship_sidecar.child_process import module_command
from rlship_sidecar.panels.protocol import Answer, Push
from rlship_sidecar.scratch import scratch
from rlship_sidecar.sinks.wandb.link import KEY_VARIABLE, child_env

ANSWERS_WITHIN_S = 90.0  # the client gives a request up after ten seconds, and makes a handful of them
_SHOWN = 500  # characters of what a child printed that gave no answer


def save(push: Push, env: Mapping[str, str]) -> Answer:
    """Save the view. `push["scratch"]` is filled in here; `env` has the key."""
    with scratch("panels") as folder:
        process = subprocess.Popen(
            module_command("rlship_sidecar.panels.pushing"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=child_env(env),
            start_new_session=True,  # with the client's own process, so that both can be ended
        )
        asked = json.dumps({**push, "scratch": str(folder)}).encode() + b"\n"
        try:
            out, printed = process.communicate(asked, ANSWERS_WITHIN_S)
        except subprocess.TimeoutExpired:
            return _failed(f"no answer within {ANSWERS_WITHIN_S:g} s")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    for line in reversed(out.splitlines()):
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict) and ("done" in answer or "trouble" in answer):
                return cast(Answer, answer)
    said = hidden(" ".join(printed.decode(errors="replace").split()), env)[-_SHOWN:]
    ended = f"the client ended with status {process.returncode}"
    return _failed(f"{ended}: {said}" if said else ended)


def _failed(why: str) -> Answer:
    return {"trouble": "unavailable", "text": why, "elsewhere": []}


def hidden(text: str, env: Mapping[str, str]) -> str:
    """The text without the key."""
    key = env.get(KEY_VARIABLE)
    return text.replace(key, "***") if key else text
