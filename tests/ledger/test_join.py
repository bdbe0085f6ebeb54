"""The rows of the ledger against the slow reference: random entries, in any order of arrival, through restarts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.rows import LEDGER, Unit
from tests.kit.cases import statistical
from tests.kit.files import CLOSE, T0, beat, file, log, rollback
from tests.ledger.groups import as_rows, dropped, generated, rewarded, trained, values, weights
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.ledger import ledger_rows

KEYS = st.sampled_from(("a", "a", "b", "c"))
TIMES = st.sampled_from((1.0, 2.0, 3.0, 4.0, 100.0, 3600.0, 3602.0, 7300.0))
STEPS = st.sampled_from((None, 0, 0, 1, 2, 5))
PARTS = st.sampled_from((None, None, None, (0, 2), (1, 2), (0, 1)))
DIGESTS = st.dictionaries(
    st.sampled_from(("tokens", "reward", "mask", "sample")),
    st.sampled_from(([1, 2], [1, 2], [3, 4], [2, 4])),
    max_size=3,
)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """One record with members that mostly agree with those of others."""
    hop = draw(st.sampled_from(("generated", "rewarded", "dropped", "trained", "trained", "buffered", "weights")))
    found: dict[str, Any] = {"kind": "ledger", "t": T0 + draw(TIMES), "hop": hop, "key": draw(KEYS)}
    found |= {"n": draw(st.sampled_from((2, 2, 2, 1, 4, 0)))}
    if (step := draw(STEPS)) is not None:
        found["step"] = step
    if hop == "weights":
        return found | {"fingerprint": draw(st.sampled_from(("a:1", "a:1", "a:2", "b:2", "unknown", "")))}
    members: dict[str, Any] = {
        "d": draw(DIGESTS),
        "by": draw(st.sampled_from(("tokens", "tokens", "", "sample"))),
        "part": draw(PARTS),
        "try": draw(st.sampled_from((None, None, 0, 1))),
        "precision": draw(st.sampled_from((None, None, "bf16"))),
        "version": draw(st.sampled_from((None, [1, 1], [1, 2], [2, 2]))),
        "reward": draw(st.sampled_from((None, [2.0, 4.0], [1.0, 1.0]))),
        "advantage": draw(st.sampled_from((None, [0.0, 2.0], [0.0, 2.0, 1.5], [0.0, 2.0, -1.5]))),
        "mask": draw(st.sampled_from((None, [3, 4, 0], [5, 4, 0], [2, 4, 1]))),
        "response": draw(st.sampled_from((None, 3, 4))),
    }
    return found | {name: value for name, value in members.items() if value is not None}


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, bytes]:
    """Files of up to three actors, with rollbacks, restarts and copies."""
    files = {}
    for number in range(draw(st.integers(1, 4))):
        records: list[dict[str, Any]] = []
        for _ in range(draw(st.integers(0, 5))):
            other = st.sampled_from((log(0, x=1), log(2, x=1), rollback(1), rollback(0), beat(50.0)))
            records.append(draw(st.one_of(entries(), entries(), entries(), other)))
        if draw(st.booleans()):
            records.append(CLOSE)
        identity: dict[str, Any] = {
            "id": f"w{number}",
            "actor": draw(st.sampled_from(("trainer", "trainer", "generator", "reward"))),
            "rank": draw(st.sampled_from((0, 0, 1))),
            "replica": draw(st.sampled_from(("0", "0", "1"))),
            "attempt": draw(st.sampled_from((0, 0, 1))),
            "t": T0 + draw(st.sampled_from((0.0, 0.5, 100.0, 200.0))),
        }
        if draw(st.integers(0, 6)) == 0:
            identity["parent"] = f"w{draw(st.integers(0, 3))}"
        files[f"{number}.jsonl"] = file(*records, **identity)
    if draw(st.integers(0, 6)) == 0:
        files["copy.jsonl"] = files["0.jsonl"]
    return files


@statistical(300)
@given(data=st.data())
def test_rows_are_those_of_the_reference(data: st.DataObject) -> None:
    """However entries arrive, and however often the sidecar is killed, the rows are a function of the files."""
    files = data.draw(experiments())
    with simulation() as sim:
        visible = dict.fromkeys(files, 0)
        for _ in range(data.draw(st.integers(0, 4))):
            name = data.draw(st.sampled_from(sorted(files)))
            end = data.draw(st.integers(visible[name], len(files[name])))
            sim.write(name, files[name][visible[name] : end])
            visible[name] = end
            sim.wait(data.draw(st.sampled_from((0.0, 3.0, 40.0))))
            sim.tick()
            if data.draw(st.booleans()):
                sim.restart()
        for name, content in files.items():
            sim.write(name, content[visible[name] :])
        sim.finish()
        assert values(sim) == as_rows(ledger_rows(files))
        made = len(sim.rows())
        sim.restart()
        sim.finish()
        assert len(sim.rows()) == made, "nothing has changed meanwhile"


def seen(sim: Simulation, step: int) -> dict[str, float]:
    """What is not 0 in a step's row."""
    return {name: value for name, value in values(sim).get(step, {}).items() if value}


WHOLE = {"groups": 1.0, "generated_samples": 4.0, "trained_samples": 4.0}


def test_a_row_waits_for_the_other_hops() -> None:
    """While the generator's file has not been read up to the trainer's time, no row calls its group incomplete; a
    writer that is silent for `grace_s` is not waited for.
    """
    with simulation() as sim:
        sim.write("g.jsonl", file(beat(1.0), id="g", actor="generator", beat=10.0))
        sim.write("t.jsonl", file(trained(after=3.0), id="t"))
        sim.write("r.jsonl", file(rewarded(after=2.0), id="r", actor="reward"))
        sim.tick()
        assert not values(sim)
        sim.write("r.jsonl", file(rewarded("q", after=4.0)).split(b"\n", 1)[1])
        sim.wait(6.0)
        sim.tick()
        assert seen(sim, 0)["groups"] == 1
        sim.write("t.jsonl", file(trained("late", 1, after=9.0)).split(b"\n", 1)[1])
        sim.wait(6.0)
        sim.tick()
        assert not seen(sim, 1)
        sim.wait(31.0)
        sim.tick()
        assert seen(sim, 1)["groups"] == 1


def test_a_late_line_revises_the_row() -> None:
    """A hop whose line is read after the row makes one revision, with the keys that changed."""
    with simulation() as sim:
        sim.write("t.jsonl", file(trained(), CLOSE, id="t"))
        sim.write("g.jsonl", file(generated(), CLOSE, id="g", actor="generator"))
        sim.tick()
        assert seen(sim, 0) == WHOLE
        sim.write("r.jsonl", file(rewarded(reward=[1.0, 0.0, 0.5, 0.0]), CLOSE, id="r", actor="reward"))
        sim.wait(6.0)
        sim.tick()
        newest = sim.final()[Unit("", LEDGER, 0)]
        assert newest.arrival.revision == 1
        assert newest.arrival.changed == ("zz_rlship/ledger/reward_differs",)
        assert seen(sim, 0) == WHOLE | {"reward_differs": 1.0}


def test_open_groups_are_in_the_last_row_once_all_have_closed() -> None:
    """A group that no one trained on is open at the end of the run; where the job goes on behind its time, it is lost
    there, and the former row takes it back.
    """
    with simulation() as sim:
        sim.write("t.jsonl", file(trained("a", 0), CLOSE, id="t"))
        sim.write("g.jsonl", file(generated("a"), generated("b"), CLOSE, id="g", actor="generator"))
        sim.tick()
        assert seen(sim, 0) == WHOLE | {"groups": 2.0, "generated_samples": 8.0, "open": 1.0, "open_samples": 4.0}
        sim.write("t2.jsonl", file(trained("c", 7, after=4000.0), id="t2", attempt=1, t=T0 + 3900.0))
        sim.wait(6.0)
        sim.tick()
        sim.finish()
        assert seen(sim, 0) == WHOLE
        assert seen(sim, 7)["lost"] == 1.0 and "open" not in seen(sim, 7)


def test_versions_are_judged_where_the_trainer_goes_on() -> None:
    """Fingerprints of a version that disagree stand at the trainer's next step."""
    with simulation() as sim:
        sim.write("t.jsonl", file(weights(3, "a:1", 1.0), trained(step=4), CLOSE, id="t"))
        sim.write("g.jsonl", file(weights(3, "a:2", 1.5), generated(), CLOSE, id="g", actor="generator"))
        sim.tick()
        assert seen(sim, 4) == WHOLE | {"version_disagrees": 1.0}


def test_samples_are_conserved() -> None:
    """Where no group is trained on twice or short, generated = trained + dropped + open + lost."""
    with simulation() as sim:
        rest = {"tokens": [[1, 2, 3]], "reward": [0.0], "advantage": [0.0], "mask": None, "response": None}
        sim.write(
            "t.jsonl",
            file(trained("a", 0), trained("b", 0, **rest), trained("z", 1, after=4000.0), CLOSE, id="t"),
        )
        named = [generated(key) for key in "abcd"] + [generated("z", 3990.0), generated("y", 3995.0)]
        sim.write("g.jsonl", file(*named, dropped("b", n=3), dropped("c", n=4), CLOSE, id="g", actor="generator"))
        sim.finish()
        total: dict[str, float] = {}
        for row in values(sim).values():
            for name, value in row.items():
                total[name] = total.get(name, 0) + value
    assert total["generated_samples"] == 24
    parts = ("trained_samples", "dropped_samples", "open_samples", "lost_samples")
    assert [total[name] for name in parts] == [9, 7, 4, 4]


def test_another_wait_makes_rows_again() -> None:
    """With another `ledger_wait_s`, rows that are there already are judged again, as a replay would."""
    files = {
        "t.jsonl": file(trained("z", 0, after=3.0), trained("y", 1, after=100.0), CLOSE, id="t"),
        "g.jsonl": file(generated("a"), generated("z"), generated("y", 90.0), CLOSE, id="g", actor="generator"),
        "r.jsonl": file(rewarded("z", after=99.0, reward=[1.0] * 4), CLOSE, id="r", actor="reward"),
    }
    with simulation() as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.finish()
        assert values(sim) == as_rows(ledger_rows(files))
        assert seen(sim, 1)["open"] == 1 and seen(sim, 0)["reward_differs"] == 1
        for wait_s in (50.0, 3600.0):
            sim.ledger_wait_s = wait_s
            sim.restart()
            sim.finish()
            assert values(sim) == as_rows(ledger_rows(files, wait_s))
            assert ("lost" in seen(sim, 1)) == (wait_s == 50.0)


def test_a_group_that_is_trained_twice_has_its_row_at_the_lesser_step() -> None:
    """Also where the entry of the greater step comes first."""
    entry = {"kind": "ledger", "hop": "trained", "key": "a", "n": 2, "d": {}, "by": "tokens"}
    with simulation() as sim:
        sim.write("0.jsonl", file({**entry, "t": T0 + 1, "step": 1}, {**entry, "t": T0 + 2, "step": 0}, CLOSE, id="t"))
        sim.finish()
        assert {step: found["twice"] for step, found in values(sim).items()} == {0: 1.0}
