"""The W&B sink's options, before any process is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.wandb.remote import RemoteRun, objection, read_run
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
    """WANDB_MODE=disabled would swallow every row; whoever set it is asked to leave the sink out."""
    with pytest.raises(SinkRefused, match='WANDB_MODE is "disabled": leave the sink out'):
        WandbSink(env={"WANDB_MODE": "disabled"}).open(make_run(tmp_path))


def test_the_run_id_is_the_stores_or_made_from_it() -> None:
    """The same store always has the same run, and the id is one that W&B accepts."""
    assert run_id("9f2c-abc_1") == "9f2c-abc_1"
    assert run_id("a/b c") == run_id("a/b c") != run_id("a/b d")
    assert len(run_id("a/b c")) == 16 and run_id("a/b c").isalnum()


def answer(**run: Any) -> Any:
    return lambda query, variables: {"project": {"run": run}}


def test_what_a_server_says_of_a_run() -> None:
    """Lines, last step and store are read whether config and keys come as JSON text or as objects."""
    text = answer(historyLineCount=5, historyKeys='{"lastStep": 4}', config='{"store_id": {"value": "s"}}')
    objects = answer(historyLineCount=5, historyKeys={"lastStep": 4}, config={"store_id": {"value": "s"}})
    fresh = answer(historyLineCount=0, historyKeys=None, config=None)

    assert read_run(text, "e", "p", "r") == read_run(objects, "e", "p", "r") == RemoteRun(5, 5, "s")
    assert read_run(fresh, "e", "p", "r") == RemoteRun(0, 0, None)
    assert read_run(lambda query, variables: {"project": None}, "e", "p", "r") is None
    assert read_run(lambda query, variables: {"project": {"run": None}}, "e", "p", "r") is None


def test_which_runs_are_ours() -> None:
    """Ours, a new one, and an empty one without a mark may be continued; anything else is objected to by name."""
    assert objection(None, "s", 5, "p/r") is None
    assert objection(RemoteRun(5, 5, "s"), "s", 5, "p/r") is None
    assert objection(RemoteRun(0, 0, None), "s", 5, "p/r") is None
    assert "another store (t)" in (objection(RemoteRun(0, 0, "t"), "s", 5, "p/r") or "")
    assert "that no rlship store wrote" in (objection(RemoteRun(5, 5, None), "s", 5, "p/r") or "")
    assert "6 rows, but the store has only 5" in (objection(RemoteRun(6, 6, "s"), "s", 5, "p/r") or "")


def test_a_run_is_settled_when_lines_and_steps_agree() -> None:
    """Line number and `_step` are the same thing; where they differ, the server has not caught up."""
    assert RemoteRun(5, 5, "s").settled
    assert not RemoteRun(5, 7, "s").settled
