"""A W&B server on 127.0.0.1 for a pod: `python -m tests.containers.wandb_server PORT KEY RESULT`. On SIGTERM it writes
which steps it has of each run, and how many requests had another key.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from tests.loopback.backend import LoopbackBackend


def main() -> None:
    """Serve until SIGTERM."""
    port, key, result = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with LoopbackBackend(api_key=key, port=port) as backend:
        signal.sigwait({signal.SIGTERM})
        with backend.lock:
            runs = {name: run.steps() for (_, name), run in backend.runs.items()}
            refused = sum(request.status == 401 for request in backend.requests)
    result.write_text(json.dumps({"runs": runs, "refused": refused}))


if __name__ == "__main__":
    main()
