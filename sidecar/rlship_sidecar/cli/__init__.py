"""The command line, with one module for each verb. Each verb imports what it needs when it runs, so that help is
quick.
"""

from __future__ import annotations

from rlship_sidecar.cli.group import main

__all__ = ["main"]
