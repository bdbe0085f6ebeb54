"""The command line, one module a verb. What a verb needs beyond click is imported when it runs: help is quick."""

from __future__ import annotations

from rlship_sidecar.cli.group import main

__all__ = ["main"]
