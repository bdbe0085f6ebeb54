"""Says once that a destination which holds rows under the names of an earlier rlship goes on under other names."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from rlship_sidecar import state_file
from rlship_sidecar.sinks.names import EXTRAS, FIRST, SinkNames

NAMES_FILE = "sink-names.json"
NUMBER = 2  # of the names in `names`; 1 were the row's own keys, and no file


def tell_once(sink: str, state_dir: Path, rows: int, shown: SinkNames) -> None:
    """Log it if the destination holds `rows` that were written under other names. Raises OSError."""
    path = state_dir / NAMES_FILE
    try:
        known = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):  # a torn file: it is said again
        known = {}
    if known.get(sink) == NUMBER:
        return
    if rows:
        lifted = (
            f"the metrics of `first` (reward and loss, unless you set it) stand under {FIRST}/, " if shown.first else ""
        )
        logging.getLogger(f"rlship.sinks.{sink}").warning(
            "sink %s: the run was begun under other names: from row %d on %swhat rlship adds stands under %s/; "
            "docs/sinks.md has all names",
            sink,
            rows,
            lifted,
            EXTRAS,
        )
    state_file.replace(path, json.dumps({**known, sink: NUMBER}).encode() + b"\n")
