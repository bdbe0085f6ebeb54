"""What the job said of the run, at W&B: the real client against the loopback server, and offline."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.run_data.merging import NamedPlace, RunData
from rlship_sidecar.sinks.contract import SinkContext
from rlship_sidecar.sinks.wandb.described import described
from rlship_sidecar.sinks.wandb.place import place_of, remember
from rlship_sidecar.sinks.wandb.sink import WandbSink
from rlship_sidecar.sinks.wandb.told import ToldSummary
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend, isolated
from tests.sinks.kinds import client_env
from tests.sinks.readback import offline_folders, offline_rows
from tests.sinks.rows import MemorySource, make_row, make_rows, make_run
from tests.sinks.test_run_data import ship
from tests.sinks.test_wandb_offline import printed_sync
from tests.sinks.wandb_shipping import shipping

CONFIG = {"lr": 0.1, "opt": {"betas": [1, 2], "name": "adam"}, "none": None}


def context(folder: Path, data: RunData, **options: Any) -> SinkContext:
    run = make_run(folder, **options)
    return SinkContext(run.name, run.experiment, run.state_dir, run.store_id, 0, options, run_data=data)


def test_it_arrives_as_wandb_shows_it(tmp_path: Path) -> None:
    """Config at top level and nested, summary, name, notes, tags, group and type; labels by actor; facts of our own;
    updates within seconds, without a row; and what does not change is not sent again.
    """
    with LoopbackBackend() as backend, shipping(tmp_path, backend) as sent:
        sent.source.say(
            config=CONFIG,
            summary={"best": {"v": 0.5}},
            name="seven",
            notes="try",
            tags=["a", "b"],
            group="g",
            job_type="train",
            labels={"trainer": {"tp": 2}},
            facts={"host": "n07"},
            dropped=["config.key"],
        )
        sent.deliver(2)
        run = backend.run("rlship", "store1")
        assert {key: run.value(key) for key in CONFIG} == CONFIG
        assert run.value("trainer") == {"tp": 2} and run.value("store_id") == "store1"
        own = run.value("zz_rlship")
        assert (own["facts"], own["dropped"]) == ({"host": "n07"}, ["config.key"])
        assert (run.display_name, run.notes, run.tags, run.group, run.job_type) == (
            *("seven", "try", ["a", "b"], "g", "train"),
        )
        wait_until(lambda: run.summary.get("best") == {"v": 0.5})
        sent.source.say(
            config={**CONFIG, "lr": 0.2}, name="eight", tags=["c"], group="h", summary={"best": {"v": 0.75}}
        )
        sent.shipper.wake()
        assert wait_until(lambda: run.display_name == "eight") < 10.0
        wait_until(lambda: run.value("lr") == 0.2 and run.summary["best"] == {"v": 0.75})
        assert (run.tags, run.group, run.job_type) == (["c"], "h", "train")
        assert sent.shipper.drain(30.0)
        assert sent.shipper.status().next_row == 2
        upserts = len([one for one in backend.sent("graphql") if one.operation == "UpsertBucket"])
        sent.deliver(4)
        assert len([one for one in backend.sent("graphql") if one.operation == "UpsertBucket"]) == upserts
    assert run.steps() == [0, 1, 2, 3]


@pytest.mark.long
def test_a_new_process_sends_it_only_where_it_is_lacking(tmp_path: Path) -> None:
    """A complete run is not opened again; other data open it, without any row."""
    source, opened = MemorySource([make_row(0)]), list[WandbSink]()
    source.say(config=CONFIG)
    with LoopbackBackend() as backend:

        def make() -> WandbSink:
            opened.append(WandbSink(env=client_env(backend.environment(tmp_path / "home"))))
            return opened[-1]

        ship(tmp_path, make, source)
        run, before = backend.run("rlship", "store1"), len(backend.requests)
        ship(tmp_path, make, source)
        assert len(backend.requests) == before
        source.say(config={**CONFIG, "lr": 0.2})
        ship(tmp_path, make, source)
        assert run.value("lr") == 0.2 and run.value("opt") == CONFIG["opt"]
        assert run.steps() == [0] and run.overwritten() == []


@pytest.mark.long
def test_the_run_is_in_the_project_that_the_job_named_when_it_was_made(tmp_path: Path) -> None:
    """Another name later moves nothing. The client sends no empty list of tags, so the last ones stay."""
    (tmp_path / "rlship").mkdir()
    (tmp_path / "rlship" / "a.jsonl").write_bytes(b"")
    (tmp_path / "rlship" / "a.jsonl").chmod(0o600)
    source = MemorySource([make_row(0)])
    with LoopbackBackend() as backend:
        env = client_env(backend.environment(tmp_path / "home"))
        for number, name in enumerate(("p", "q")):
            tags = [] if number else ["a"]
            source.say(places=[NamedPlace("project", name, "a.jsonl")], project=name, tags=tags)
            ship(tmp_path, lambda: WandbSink(env=env), source)
            source.append([make_row(number + 1)])
        assert list(backend.runs) == [("loopback/p", "store1")]
        run = backend.run("p", "store1")
        assert run.steps() == [0, 1]
        assert run.tags == ["a"]


@pytest.mark.long
def test_a_killed_client_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL right after the data were given: the next client brings them."""
    with LoopbackBackend() as backend, shipping(tmp_path, backend) as sent:
        sent.source.say(config={"lr": 1})
        sent.deliver(1)
        run = backend.run("rlship", "store1")
        sent.source.say(config={"lr": 2}, name="late")
        child = sent.child
        sent.shipper.wake()
        child.kill()
        assert sent.shipper.drain(60.0), sent.shipper.status()
        assert (run.value("lr"), run.display_name) == (2, "late")


@pytest.mark.long
def test_offline_it_is_in_the_file(tmp_path: Path) -> None:
    """As `wandb sync` reads it; a complete run is left alone, and other data write it again with all rows."""
    source, env = MemorySource(make_rows(0, 2)), client_env(isolated(tmp_path / "home"))
    source.say(config={"lr": 5}, name="six")
    state, sinks = tmp_path / "rlship/state", list[WandbSink]()

    def make() -> WandbSink:
        sinks.append(WandbSink(env=env))
        return sinks[-1]

    ship(tmp_path, make, source)
    (folder,) = offline_folders(state)
    ship(tmp_path, make, source)
    assert offline_folders(state) == [folder]
    words = {"name": "seven", "notes": "try", "tags": ["a"], "group": "g", "job_type": "train"}
    source.say(config=CONFIG, summary={"best": 1}, **words)
    ship(tmp_path, make, source)
    assert [row["_step"] for row in offline_rows(state)] == [0, 1]
    with LoopbackBackend() as backend:
        printed_sync(sinks[-1].where, client_env(backend.environment(tmp_path / "home")))
        run = backend.run("rlship", "store1")
        assert {key: run.value(key) for key in CONFIG} == CONFIG
        assert run.summary["best"] == 1 and run.steps() == [0, 1]
        assert (run.display_name, run.notes, run.tags, run.group, run.job_type) == (*words.values(),)


def test_rows_do_not_cover_the_summary_that_the_job_gave(tmp_path: Path) -> None:
    """Keys that the job set keep its values after later rows and after a restart; other keys have the rows' values."""
    own: dict[str, object] = {"loss": 42.0, "acc": {"max": 0.9}}
    rows = [make_row(no, values={"loss": 0.5, "acc": 0.3, "lr": float(no)}) for no in range(8)]
    with LoopbackBackend() as backend:
        for first in (0, 4):
            with shipping(tmp_path, backend) as sent:
                sent.source.append(rows[:first])
                sent.source.say(summary=own)
                for at in (first, first + 2):
                    sent.source.append(rows[at : at + 2])
                    sent.shipper.wake()
                    assert sent.shipper.drain(60.0), sent.shipper.status()
                    shown = backend.run("rlship", "store1").summary
                    wait_until(partial(lambda found: {key: found.get(key) for key in own} == own, shown))
                assert shown["lr"] == first + 3.0


@pytest.mark.long
def test_offline_rows_do_not_cover_the_summary_that_the_job_gave(tmp_path: Path) -> None:
    """In the first folder, and in the one that a restart with more rows writes anew. A late line covers nothing."""
    source, env, sinks = MemorySource(), client_env(isolated(tmp_path / "home")), list[WandbSink]()
    source.say(summary={"loss": 42.0, "acc": {"max": 0.9}})

    def make() -> WandbSink:
        sinks.append(WandbSink(env=env))
        return sinks[-1]

    for end in (3, 6):
        values = {"loss": 0.5, "acc": 0.3}
        steps = {no: no if no % 3 < 2 else 0 for no in range(end - 3, end)}
        source.append([make_row(no, step=at, values={**values, "lr": float(at)}) for no, at in steps.items()])
        ship(tmp_path, make, source)
    with LoopbackBackend() as backend:
        printed_sync(sinks[-1].where, client_env(backend.environment(tmp_path / "home")))
        run = backend.run("rlship", "store1")
        assert run.steps() == [*range(6)]
        assert (run.summary["loss"], run.summary["acc"]) == (42.0, {"max": 0.9})
        assert (run.summary["lr"], run.summary["global_step"]) == (4.0, 4)


def test_names_of_ours_and_of_wandb_get_another_name(tmp_path: Path) -> None:
    """So that no job can take a run over, nor make the client ask for an artifact."""
    config = {
        "store_id": "x",
        "_wandb": 1,
        "_name_or_path": "org/model",
        "zz_rlship": 2,
        "model": "wandb-artifact://a/b",
        "data": {"_type": "artifactVersion", "id": "1"},
        "trainer": 7,
    }
    labels = {"trainer": {"tp": 2}, "generator": {"tp": 1}}
    data = RunData(config=config, summary={"_step": 7, "best": 1}, labels=labels, actors=["trainer"])
    assert described(context(tmp_path, data), {}, {})["summary"] == {"zz_rlship/_step": 7, "best": 1}
    found = described(context(tmp_path, data), {}, {})["config"]
    own = found.pop("zz_rlship")
    assert found == {
        "zz_rlship/store_id": "x",
        "zz_rlship/_wandb": 1,
        "_name_or_path": "org/model",
        "zz_rlship/zz_rlship": 2,
        "model": " wandb-artifact://a/b",
        "data": {"id": "1", "zz_rlship/_type": "artifactVersion"},
        "trainer": 7,
        "generator": {"tp": 1},
    }
    assert list(own) == ["run_data"]


def test_settings_win_over_the_job(tmp_path: Path) -> None:
    """`[sink.wandb]`, then W&B's variables, then the job, then the default; the tags of both count."""
    data = RunData(name="job", group="jobs", tags=["b", "x" * 70, ""], actors=["trainer"])
    run = context(tmp_path, data)
    words = described(run, {"tags": ["a", "b"]}, {"WANDB_RUN_GROUP": "env"})["words"]
    assert (words["name"], words["group"], words["tags"]) == ("job", "env", ["a", "b", "x" * 64])
    assert described(run, {"name": "mine"}, {"WANDB_NAME": "env"})["words"]["name"] == "mine"
    assert described(run, {}, {"WANDB_NAME": "env"})["words"]["name"] == "env"
    assert described(context(tmp_path, RunData()), {}, {})["words"]["name"] == "grpo"
    assert described(replace(run, is_replay=True), {}, {})["words"]["name"] == "job-replay"


@pytest.mark.parametrize(("mode", "counts"), [(0o644, True), (0o664, False), (0o646, False)])
def test_the_job_names_the_project_only_by_files_that_no_other_user_writes(
    tmp_path: Path, mode: int, counts: bool
) -> None:
    """As settings do; and only when the run is made."""
    (tmp_path / "rlship").mkdir()
    written = tmp_path / "rlship" / "a.jsonl"
    written.write_bytes(b"")
    written.chmod(mode)
    places = [
        NamedPlace("project", "bad/name", "a.jsonl"),
        NamedPlace("project", "p", "a.jsonl"),
        NamedPlace("entity", "e", "a.jsonl"),
    ]
    run = context(tmp_path, RunData(places=places, actors=["trainer"]))
    assert place_of(run, {}, {}) == (("p", "e") if counts else ("rlship", None))
    assert place_of(run, {"project": "mine"}, {"WANDB_ENTITY": "env"}) == ("mine", "env")
    remember(run)
    later = context(tmp_path, RunData(places=[NamedPlace("project", "q", "a.jsonl")], actors=["trainer"]))
    assert place_of(later, {}, {}) == (("p", "e") if counts else ("rlship", None))


def test_a_link_names_no_project(tmp_path: Path) -> None:
    """It leads to a file of whose owner nothing is known."""
    (tmp_path / "rlship").mkdir()
    (tmp_path / "own").write_bytes(b"")
    (tmp_path / "rlship" / "a.jsonl").symlink_to(tmp_path / "own")
    run = context(tmp_path, RunData(places=[NamedPlace("project", "p", "a.jsonl")], actors=["trainer"]))
    assert place_of(run, {}, {}).project == "rlship"


def test_a_run_of_an_earlier_release_stays_where_it_is(tmp_path: Path) -> None:
    """Its axes show that it was made."""
    (tmp_path / "rlship").mkdir()
    (tmp_path / "rlship" / "a.jsonl").write_bytes(b"")
    (tmp_path / "rlship" / "a.jsonl").chmod(0o600)
    run = context(tmp_path, RunData(places=[NamedPlace("project", "p", "a.jsonl")], actors=["trainer"]))
    (run.state_dir / "wandb-axes.json").write_text("[]")
    assert place_of(run, {}, {}).project == "rlship"


def test_a_value_of_the_summary_that_the_job_took_back() -> None:
    """Null in the summary takes the job's value back: W&B has what lines have of the key, null if they have nothing,
    and a later line's value stays. Told again, as after a restart, it displaces nothing.
    """
    shown: dict[str, Any] = {}
    told = ToldSummary(shown.update, lambda: shown)
    told.described({"best": 1, "kl": 2, "gone": 3})
    shown["kl"] = 0.5
    told.logged({"kl": 0.5}, {})
    told.settle()
    assert shown == {"best": 1, "kl": 2, "gone": 3}
    told.described({"best": None, "kl": None, "gone": None})
    assert shown == {"best": None, "kl": 0.5, "gone": None}
    shown["best"] = 9
    told.logged({"best": 9}, {})
    told.settle()
    told.described({"best": None, "kl": None, "gone": None})
    ToldSummary(shown.update, lambda: shown).described({"best": None})
    assert shown == {"best": 9, "kl": 0.5, "gone": None}
