"""What a run is: the records `run` of all writers, merged, against the slow reference and through restarts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.align.units import StreamConfig
from rlship_sidecar.run_data.merging import Change, RunData
from rlship_sidecar.run_data.trees import leaves
from rlship_sidecar.store.run_said import changes_of
from tests.kit.cases import statistical
from tests.kit.files import CLOSE, T0, event, file, log
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
    end = draw(st.sampled_from((None, None, CLOSE, {"kind": "close", "reason": "error"}, {"kind": "close", "reason": "roll"})))
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


def told(found: Iterable[Change]) -> list[tuple[Any, ...]]:
    return [(one.t, one.file, one.part, tuple(one.key), one.before, one.after) for one in found]


def check(sim: Simulation, files: Mapping[str, bytes], lead: str) -> None:
    data = sim.store.read_run()
    if sim.store.run_version():
        assert exact(flat(data)) == exact(run_data(files, lead))
        assert repr(told(changes_of(sim.store.merged_run()))) == repr(run_changes(files, lead))
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
