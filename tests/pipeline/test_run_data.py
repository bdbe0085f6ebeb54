"""What a run is: the records `run` of all writers, merged, against the slow reference and through restarts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.align.units import StreamConfig
from rlship_sidecar.rows import Unit
from rlship_sidecar.run_data.merging import RunChange, RunData
from rlship_sidecar.run_data.trees import leaves
from rlship_sidecar.store.run_said import changes_of
from tests.kit.cases import statistical
from tests.kit.files import CLOSE, T0, event, file, lines, log
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.runs import run_changes, run_data

CASES = statistical(200)

NAMES = st.sampled_from(("lr", "model", "opt", "generator/lr"))
LEAVES: st.SearchStrategy[Any] = st.sampled_from((1, 1.0, 2, True, "x", None, [1, {"a": 1}], {}, [], "NaN"))
TREES = st.recursive(LEAVES, lambda below: st.dictionaries(NAMES, below, max_size=3), max_leaves=5)
OBJECTS = st.dictionaries(NAMES, TREES, max_size=3)


def run(after: float = 1.0, **members: Any) -> dict[str, Any]:
    return {"kind": "run", "t": T0 + after, **members}


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What one writer writes."""
    found = []
    for number in range(draw(st.sampled_from((0, 1, 1, 2, 3)))):
        members: dict[str, Any] = {}
        for part in ("config", "summary", "facts"):
            if draw(st.booleans()):
                members[part] = draw(OBJECTS)
        if draw(st.booleans()):
            members["name"] = draw(st.sampled_from(("a", "b")))
        if draw(st.booleans()):
            members["tags"] = draw(st.sampled_from(([], ["a"], ["b", "a"])))
        if draw(st.integers(0, 5)) == 0:
            members["exit_code"] = draw(st.sampled_from((0, 1, -9)))
        if draw(st.integers(0, 5)) == 0:
            members["dropped"] = draw(st.sampled_from((["config.key"], ["config.b", "config.a"])))
        made = run(1.0 + number, **members)
        if draw(st.integers(0, 3)) == 0:
            made = event("config", attrs=members.get("config", {}), t=T0 + 1.0 + number)
        found.append(made)
    end = draw(
        st.sampled_from((None, None, CLOSE, {"kind": "close", "reason": "error"}, {"kind": "close", "reason": "roll"}))
    )
    return found if end is None else [*found, end]


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, bytes]:
    """Files of two or three actors, with restarts that count attempts or do not, and children."""
    files = {}
    for number in range(draw(st.integers(1, 6))):
        identity: dict[str, Any] = {
            "id": f"w{number}",
            "actor": draw(st.sampled_from(("trainer", "trainer", "generator", "reward"))),
            "rank": draw(st.sampled_from((0, 0, 1))),
            "replica": draw(st.sampled_from(("0", "0", "1", "a"))),
            "attempt": draw(st.sampled_from((0, 0, 1, 2))),
            "t": T0 + draw(st.sampled_from((0.0, 0.5, 100.0, 200.0))),
        }
        if job := draw(st.sampled_from((None, "one", "two"))):
            identity["job"] = job
        if draw(st.integers(0, 4)) == 0:
            identity["parent"] = f"w{draw(st.integers(0, 5))}"
        files[f"{identity['actor']}-{number}.jsonl"] = file(*draw(records()), **identity)
    return files


def flat(data: RunData) -> dict[str, Any]:
    """As the reference has it."""
    found: dict[str, Any] = {part: dict(leaves(getattr(data, part))) for part in ("config", "summary", "facts")}
    names = ("name", "notes", "group", "project", "entity", "job_type", "tags", "dropped", "outcome")
    return found | {name: getattr(data, name) for name in names}


def exact(found: Mapping[str, Any]) -> str:
    """So that 1, 1.0 and true differ."""
    return repr({name: sorted(value.items()) if isinstance(value, dict) else value for name, value in found.items()})


def told(found: Iterable[RunChange]) -> list[tuple[Any, ...]]:
    return [(one.t, one.file, one.part, tuple(one.key), one.before, one.after) for one in found]


def in_any_order(found: Iterable[tuple[Any, ...]]) -> str:
    """Neither members of an object nor changes of a part at one time have an order; 1, 1.0 and true differ."""
    alike = groupby(found, lambda change: change[:3])
    return json.dumps(
        [[*change] for _, changes in alike for change in sorted(changes, key=itemgetter(3))], sort_keys=True
    )


def check(sim: Simulation, files: Mapping[str, bytes], lead: str) -> None:
    data = sim.store.read_run()
    if sim.store.run_version():
        assert exact(flat(data)) == exact(run_data(files, lead))
        assert in_any_order(told(changes_of(sim.store.merged_run()))) == in_any_order(run_changes(files, lead))
    else:
        assert not any(b'"run"' in content or b'"config"' in content for content in files.values())


@CASES
@given(data=st.data())
def test_the_data_are_those_of_the_reference(data: st.DataObject) -> None:
    """However the lines come, and however often the sidecar starts anew, they are a function of the files."""
    files = data.draw(experiments())
    lead = data.draw(st.sampled_from(("trainer", "trainer", "generator", "absent")))
    with simulation(streams=StreamConfig(lead)) as sim:
        visible = dict.fromkeys(files, 0)
        for _ in range(data.draw(st.integers(0, 4))):
            name = data.draw(st.sampled_from(sorted(files)))
            end = data.draw(st.integers(visible[name], len(files[name])))
            sim.write(name, files[name][visible[name] : end])
            visible[name] = end
            sim.wait(data.draw(st.sampled_from((0.0, 0.4, 3.0))))
            sim.tick()
            if data.draw(st.booleans()):
                sim.restart()
        for name, content in files.items():
            sim.write(name, content[visible[name] :])
        sim.finish()
        check(sim, files, lead)
        version = sim.store.run_version()
        sim.restart()
        sim.finish()
        check(sim, files, lead)
        assert sim.store.run_version() == version, "nothing was said meanwhile"


def merged(sim: Simulation) -> RunData:
    sim.finish()
    return sim.store.read_run()


def test_a_restart_reads_no_file_again() -> None:
    """What was said is in the transaction of the position: it stays although the file is gone."""
    with simulation() as sim:
        sim.write("a.jsonl", file(run(config={"lr": 1}), labels={"tp": "2"}))
        sim.tick()
        (sim.directory / "rlship" / "a.jsonl").unlink()
        sim.restart()
        sim.write("b.jsonl", file(run(config={"seed": 1}), id="b", rank=1))
        data = merged(sim)
        assert (data.config, data.labels) == ({"lr": 1, "seed": 1}, {"trainer": {"tp": 2}})


def test_a_later_job_of_other_replicas_decides() -> None:
    """Unnamed actors of Ray have another replica each time. What the second submission says of the run counts, though
    its replica comes after the first one's; its rows are of a later lineage, and a third job's of a later one still.
    """
    with simulation() as sim:
        for number, job in enumerate(("one", "two", "three")):
            step = [log(1, loss=number), {"kind": "barrier", "step": 1, "t": T0 + 100.0 * number + 2.0}]
            said = run(100.0 * number + 1.0, name=job, config={"lr": number}, exit_code=int(number < 2))
            replica = ("c", "d", "a")[number]
            opened = {"id": job, "job": job, "replica": replica, "t": T0 + 100.0 * number}
            sim.write(f"{job}.jsonl", file(said, *step, CLOSE, **opened))
            data = merged(sim)
            assert (data.name, data.config, data.outcome) == (
                job,
                {"lr": number},
                ("failed", "failed", "finished")[number],
            )
            lineage = sim.final()[Unit("trainer", "step", 1)].coverage.lineage
            assert lineage == ((number, 0, 0) if number else None)


def test_a_replaced_file_stays_beside_the_one_that_took_its_name() -> None:
    """As rows keep what they took from it."""
    with simulation() as sim:
        sim.write("a.jsonl", file(run(config={"lr": 1, "old": 1}), CLOSE))
        sim.tick()
        sim.stop()
        (sim.directory / "rlship" / "a.jsonl").write_bytes(file(run(config={"lr": 2}), id="b", t=T0 + 5))
        sim._start()
        assert merged(sim).config == {"lr": 2, "old": 1}
        assert merged(sim).outcome == "open"


def test_files_without_such_records_cost_nothing() -> None:
    """No row of a table, no version."""
    with simulation() as sim:
        sim.write("a.jsonl", file(log(1, loss=1), CLOSE))
        sim.finish()
        assert sim.store.run_version() == 0
        assert sim.store.ask("select count(*) from said") == [(0,)]
        assert sim.store.ask("select count(*) from run") == [(0,)]


def test_observers_say_nothing_of_the_run() -> None:
    """A machine's agent is no part of the job."""
    with simulation() as sim:
        sim.write("n.jsonl", file(run(config={"x": 1}), actor="node", labels={"agent": "sysmon"}))
        sim.write("a.jsonl", file(run(config={"lr": 1}), id="b"))
        data = merged(sim)
        assert (data.config, data.actors, data.labels) == ({"lr": 1}, ["trainer"], {})


def test_other_ranks_add_no_labels() -> None:
    """A mixture would be the labels of no process."""
    with simulation() as sim:
        sim.write("a.jsonl", file(id="a", rank=1, labels={"host": "n1", "gpu": "1"}))
        sim.write("b.jsonl", file(id="b", labels={"host": "n0", "id": "007", "lr": "0.5", "on": "True"}))
        assert merged(sim).labels == {"trainer": {"host": "n0", "id": "007", "lr": 0.5, "on": True}}


def test_bounds() -> None:
    """A writer has 10,000 keys of a part, 2^22 characters, and 100 levels; what meets a bound is counted."""
    many = {f"k{number}": number for number in range(10_005)}
    deep: Any = 1
    for _ in range(200):
        deep = {"d": deep}
    wide: Any = []
    for _ in range(200):
        wide = [wide]
    with simulation() as sim:
        sim.write(
            "a.jsonl", file(run(config=many), run(config={"k0": "new", "more": 1}, summary={"d": deep, "w": wide}))
        )
        data = merged(sim)
        assert len(data.config) == 10_000 and data.config["k0"] == "new" and "more" not in data.config
        assert data.summary == {} and data.left_out == 5 + 1 + 2
    long = "x" * 1_000_000
    with simulation() as sim:
        records = [run(config={f"k{number}": long}) for number in range(5)]
        sim.write("a.jsonl", file(*records))
        data = merged(sim)
        assert (sorted(data.config), data.left_out) == (["k0", "k1", "k2", "k3"], 1)


def test_changes_are_bounded() -> None:
    """The first thousand of a writer are listed, a long value is null; the rest are counted."""
    with simulation() as sim:
        records = [run(config={"lr": number}) for number in range(1003)]
        sim.write("a.jsonl", file(*records, run(config={"lr": "x" * 2000})))
        data = merged(sim)
        found = changes_of(sim.store.merged_run())
        assert (len(found), data.left_out) == (1000, 3)
        assert [(one.before, one.after) for one in found[:2]] == [(0, 1), (1, 2)]
    with simulation() as sim:
        sim.write("a.jsonl", file(run(config={"lr": 1}), run(config={"lr": "x" * 2000})))
        sim.finish()
        assert [(one.before, one.after) for one in changes_of(sim.store.merged_run())] == [(1, None)]


def test_ranks_that_say_the_same_share_it() -> None:
    """So that the configuration of a job of thousands of ranks is held once, after a restart too."""
    with simulation() as sim:
        for rank in range(4):
            sim.write(f"{rank}.jsonl", file(run(config={"lr": 1, "opt": {"name": "adam"}}), id=f"w{rank}", rank=rank))
        for _ in range(2):
            sim.tick()
            assert len({id(said.config) for said in sim.experiment.run_book.said.values()}) == 1
            sim.restart()


def test_the_first_row_comes_with_all_that_was_said() -> None:
    """W&B's run is made with it, and its project cannot change. Later, merging waits a while."""
    with simulation() as sim:
        sim.write("g.jsonl", file(run(config={"g": 1}), id="g", actor="generator"))
        sim.tick()
        sim.write("a.jsonl", file(run(project="p", config={"n": 0}), log(0, loss=1), CLOSE, id="a"))
        sim.tick()
        assert (len(sim.rows()), sim.store.read_run().project) == (1, "p")
        for number in (1, 2):
            sim.write("g.jsonl", lines(run(config={"g": number + 1})))
            sim.wait(0.1)
            sim.tick()
        assert sim.store.read_run().config["g"] == 1 and not sim.experiment.is_settled
        sim.wait(3.0)
        sim.tick()
        assert sim.store.read_run().config["g"] == 3 and not sim.experiment.run_book.pending


def test_how_an_attempt_was_started_is_no_change_of_the_run() -> None:
    """Its command, host and job are listed as changes and not counted, also after a restart of the sidecar."""
    with simulation() as sim:
        for attempt in (0, 1):
            facts = {"command": ["python", str(attempt)], "host": f"n{attempt}", "git": f"9f{attempt}"}
            sim.write(f"{attempt}.jsonl", file(run(1.0, facts=facts), id=f"w{attempt}", attempt=attempt))
        sim.finish()
        for _ in range(2):
            listed = {one.key[0] for one in changes_of(sim.store.merged_run())}
            assert (listed, sim.experiment.run_book.changes) == ({"command", "host", "git"}, 1)
            sim.restart()


def test_members_of_a_changed_object_have_no_order() -> None:
    """Two records name a key's members in different orders: the store and the reference have one change."""
    files = {
        "trainer-0.jsonl": file(
            run(1.0, config={"opt": {"lr": 1}}),
            run(2.0, config={"opt": {"model": 1, "lr": 1}}),
            id="w0",
            actor="trainer",
        ),
        "trainer-1.jsonl": file(run(1.0, config={"opt": 1}), id="w1", actor="trainer", t=T0 + 100.0),
    }
    with simulation(streams=StreamConfig("trainer")) as sim:
        for name, content in files.items():
            sim.write(name, content)
        sim.finish()
        check(sim, files, "trainer")
        (change,) = changes_of(sim.store.merged_run())
        assert (change.before, change.after) == ({"lr": 1, "model": 1}, 1)
