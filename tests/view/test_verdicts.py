"""Alerts, causes and the ledger of a job that goes wrong, as the server answers them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlship_sidecar import config
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.config import Config
from rlship_sidecar.daemon import loop
from rlship_sidecar.tabular.asked import history_of
from rlship_sidecar.tabular.snapshot import look
from rlship_sidecar.tabular.source import ExperimentTables
from tests.kit.files import barrier, file, log
from tests.kit.waiting import wait_until
from tests.view.serving import Client, serving, trainer_state, watched, with_a_ledger
from tests.why.job import FAULT_AT, Job, Now


def gradient_is_nan(now: Now) -> None:
    """A trainer's gradient is no number any more."""
    now.value |= {"train/grad_norm": float("nan"), "train/loss": float("nan")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose gradient is NaN from step 60 on, with its rows."""
    made = Job(tmp_path_factory.mktemp("outputs") / "run", gradient_is_nan).run()
    loop.watch(made, Config(sinks=[]), once=True)
    return made


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with serving(folder) as client:
        yield client


def said(verb: str, folder: Path) -> list[dict[str, object]]:
    """What a verb prints as JSON."""
    done = CliRunner().invoke(rlship, [verb, "--json", str(folder)], env={"TZ": "UTC"})
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_episodes_are_those_of_the_verb(client: Client, folder: Path) -> None:
    """By id, with what the rule is about and where to look."""
    answer = client.ask(f"{client.first}/alerts")
    listed = {str(one["id"]): one for one in said("alerts", folder)}
    assert {one["id"] for one in answer["episodes"]} == set(listed) != set()
    for one in answer["episodes"]:
        assert (one["rule"], one["fired"]) == (listed[one["id"]]["rule"], listed[one["id"]]["fired"])
        assert one["about"]
    assert answer["episodes"][0]["fired"]["step"] >= FAULT_AT


def test_an_episode_that_clears_is_said_so(tmp_path: Path) -> None:
    """With the step of its last breach, as the verb says both; rows leave them out while an episode goes on."""
    steps = [(log(n, reward=0.5, loss="NaN" if n == 80 else 0.3), barrier(n, n)) for n in range(85)]
    folder = watched(tmp_path / "run", {"a.jsonl": file(*(line for step in steps for line in step))})
    (listed,) = said("alerts", folder)
    with serving(folder) as client:
        (one,) = client.ask(f"{client.first}/alerts")["episodes"]
    assert one["state"] == listed["state"] == "clearing"
    assert isinstance(listed["last"], dict) and one["last"]["step"] == listed["last"]["step"] == 80


def test_causes_are_those_of_the_verb(client: Client, folder: Path) -> None:
    """Of the episode that a person clicks, and as lines; an episode that does not exist is refused."""
    (wanted,) = said("why", folder)
    one = wanted["episode"]
    assert isinstance(one, dict)
    answer = client.ask(f"{client.first}/why?step={one['fired']['step']}")
    assert answer["answer"]["episode"]["rule"] == one["rule"]
    assert answer["answer"]["causes"] and answer["text"]
    by_id = client.ask(f"{client.first}/why?episode={one['id']}")
    assert by_id["answer"]["episode"] is not None
    assert client.get(f"{client.first}/why?episode=nope").json()["code"] == "parameter"
    assert client.get(f"{client.first}/why?metric=trainer/nothing").json()["code"] == "parameter"


def test_what_became_of_groups_is_counted(tmp_path: Path) -> None:
    """The ledger's curves and totals, and which of them should be 0 and are not."""
    with serving(watched(tmp_path / "run", {"a.jsonl": with_a_ledger()})) as client:
        answer = client.ask(f"{client.first}/ledger")
        assert answer["logged"] and answer["totals"]["groups"] == 3
        assert answer["wrong"] == ["twice"]
        assert sum(value or 0 for value in answer["curves"]["twice"]["mean"]) == 1


def test_logs_of_another_framework_are_shown(tmp_path: Path) -> None:
    """Rows are made of them while the page is open."""
    with serving(trainer_state(tmp_path / "trl")) as client:
        path = client.first
        wait_until(lambda: any("loss" in one["key"] for one in client.get(f"{path}/metrics").json().get("metrics", [])))
        one = next(one for one in client.ask(f"{path}/metrics")["metrics"] if one["name"] == "loss")
        curve = client.ask(f"{path}/series?m={one['id']}")["curves"][one["id"]]
        assert curve["mean"][:2] == pytest.approx([1.0, 0.5])
    assert [path.name for path in (tmp_path / "trl").iterdir()] == ["checkpoint-3"]


def test_rules_without_metrics_are_named(client: Client, folder: Path) -> None:
    """Those that saw none of their metrics, as an evaluation over all rows finds them; how many steps rules looked at,
    and with how many earlier ones they compare.
    """
    settings = config.load(folder, {}, {}, ships=False)
    with look(config.state_dir_for(folder, settings)) as snapshot:
        history = history_of(ExperimentTables("run", folder, snapshot), settings.lead, rules_of(settings.alert))
    answer = client.ask(f"{client.first}/alerts")
    assert answer["blind"] == history.blind() != []
    assert len(answer["needs"]) == len(rules_of(settings.alert)) and max(answer["needs"]) >= 40
    assert client.ask(f"{client.first}/overview")["lead_steps"] == answer["last_step"] + 1
