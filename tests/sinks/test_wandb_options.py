"""The W&B sink's options, before any process is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.wandb.sink import WandbSink, run_id
from tests.sinks.rows import make_run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "shared"}, "mode is 'shared'; allowed: auto, online, offline"),
        ({"project": 7}, "project is 7; allowed: a string"),
        ({"entity": ""}, "entity is ''; allowed: a string that is not empty"),
        ({"tags": "a"}, "tags is 'a'; allowed: a list of strings"),
        ({"tags": [1]}, r"tags is \[1\]; allowed: a list of strings"),
        ({"transmit_interval": 0.25}, "transmit_interval is 0.25; allowed: a number of seconds, at least 1"),
        ({"transmit_interval": float("nan")}, "transmit_interval is nan; allowed: a number of seconds"),
        ({"transmit_interval": True}, "transmit_interval is True; allowed: a number of seconds"),
        ({"projct": "x"}, r"projct \(= 'x'\) is not known; allowed: project"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """The error names the option, the value and what is allowed, before anything is started."""
    sink = WandbSink(env={})
    with pytest.raises(SinkRefused, match=message):
        sink.open(make_run(tmp_path, **options))
    assert sink.child_pid is None


def test_a_disabled_client_is_refused(tmp_path: Path) -> None:
    """WANDB_MODE=disabled would swallow every row; the message asks its user to leave the sink out."""
    with pytest.raises(SinkRefused, match='WANDB_MODE is "disabled": leave the sink out'):
        WandbSink(env={"WANDB_MODE": "disabled"}).open(make_run(tmp_path))


def test_the_run_id_is_the_stores_or_made_from_it() -> None:
    """The same store always has the same run, and the id is one that W&B accepts."""
    assert run_id("9f2c-abc_1") == "9f2c-abc_1"
    assert run_id("a/b c") == run_id("a/b c") != run_id("a/b d")
    assert len(run_id("a/b c")) == 16 and run_id("a/b c").isalnum()
