"""Runs the checks one after the other, each in a process of its own, and says what came of them."""

from __future__ import annotations

import subprocess
import sys

from tests.gpu import checks


def main() -> int:
    """0 if all checks hold, 1 if one does not, 2 where there is no GPU to check on."""
    try:
        import torch
    except ImportError:
        print("torch is not installed here: these checks need torch with CUDA, and a GPU", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} finds no CUDA device here", file=sys.stderr)
        return 2
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}")
    failed = 0
    for name in checks.NAMES:
        done = subprocess.run([sys.executable, "-m", "tests.gpu.checks", name], timeout=300)
        print(f"{'ok' if done.returncode == 0 else 'FAILED'}  {name}", flush=True)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
