"""Foreign files that grow in random pieces, with restarts of the sidecar: the rows are those of their translation."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.foreign.titan import READER as TITAN
from rlship_sidecar.align.units import Patience
from rlship_sidecar.rows import Unit
from tests.foreign.made_up import FALLING, SHARED, reading
from tests.foreign.titan import instant, line, scalar, span
from tests.foreign.translated import native_files
from tests.kit.cases import statistical
from tests.pipeline.simulated import LOCAL, REMOTE, simulation
from tests.pipeline.test_against_reference import EACH, check_numbering
from tests.reference.reduction import NO_OVERRIDES, differing, final_rows

CASES = statistical(60)
STEPS = st.integers(0, 6)
VALUES = st.sampled_from([0.0, 1.5, -2.0, float("nan"), float("inf"), 3])
SHARED_LINES = st.one_of(
    st.builds(lambda n, a: {"n": n, "a": a}, STEPS, VALUES),
    st.builds(lambda n, b: {"n": n, "b": b}, STEPS, VALUES),
    st.builds(lambda n, a, b: {"n": n, "a": a, "b": b}, STEPS, VALUES, VALUES),
    st.builds(lambda step: {"back": step}, STEPS),
    st.sampled_from([{"x": 1}, {"a": 1}, {"n": -1, "a": 2.0, "b": 3.0}, {"n": "text", "a": 2.0}, []]),
).map(lambda found: json.dumps(found).encode() + b"\n")
FALLING_LINES = st.one_of(
    st.builds(lambda f, v: {"f": f, "v": v}, STEPS, st.integers(1, 9)),
    st.builds(lambda f, v, w: {"f": f, "v": v, "w": w}, STEPS, st.integers(1, 9), VALUES),
    st.sampled_from([{}, {"f": -1}, {"f": "torn"}, {"v": 1}]),
).map(lambda found: json.dumps(found).encode() + b"\n")
AFTER = st.floats(0, 200)
TITAN_LINES = st.one_of(
    st.builds(lambda after, ms, step, tags: span("fwd", after, ms, step, **tags), AFTER, st.floats(0, 500), STEPS,
              st.sampled_from([{}, {"step_tags": ["gc"]}, {"step_tags": ["eval", "gc"]}])),
    st.builds(lambda value, after, step: scalar("loss", value, after, step), VALUES, AFTER, STEPS | st.none()),
    st.builds(lambda after, step: instant("training_start", after, step), AFTER, STEPS | st.none()),
    st.builds(lambda after, step: line("event", "fwd_error", after, step=step), AFTER, STEPS),
    st.sampled_from([b"{}\n", b"\n", b"rubbish\n"]),
)  # fmt: skip
FILES = st.fixed_dictionaries(
    {},
    optional={
        "./one.shared.jsonl": st.lists(SHARED_LINES, max_size=20),
        "./three.falling.jsonl": st.lists(FALLING_LINES, max_size=30),
        "logs/two.shared.jsonl": st.lists(SHARED_LINES, max_size=20),
        "structured_logs/a.jsonl": st.lists(TITAN_LINES, max_size=20),
        "structured_logs/b.jsonl": st.lists(TITAN_LINES, max_size=20),
    },
).map(lambda found: {name: b"".join(lines) for name, lines in found.items()})


@CASES
@given(data=st.data(), files=FILES)
def test_live_equals_reference(data: st.DataObject, files: dict[str, bytes]) -> None:
    """However lines arrive and however often the sidecar starts anew, rows are those of the native files that the
    readers make; each line that is unusable is one dead letter.
    """
    readers = (SHARED, TITAN, FALLING)
    with (
        reading(*readers),
        simulation(
            filesystem=data.draw(st.sampled_from((LOCAL, REMOTE))), patience=Patience(grace_s=5.0, revise_s=2.0)
        ) as sim,
    ):
        seen = dict.fromkeys(files, 0)
        while any(seen[name] < len(files[name]) for name in files):
            for name in files:
                end = min(len(files[name]), seen[name] + data.draw(st.sampled_from((0, 1, 90, 400, 4000))))
                path = sim.directory / name
                path.parent.mkdir(exist_ok=True)
                with open(path, "ab") as file:
                    file.write(files[name][seen[name] : end])
                seen[name] = end
            sim.wait(data.draw(st.sampled_from((0.0, 0.4, 12.0, 70.0))))
            sim.tick()
            if data.draw(st.integers(0, 3)) == 0:
                sim.restart()
        sim.finish()
        native = native_files(sim.directory, readers)
        assert not differing(final_rows(native, NO_OVERRIDES, EACH), sim.final())
        check_numbering(sim.rows())
        letters = [(name, offset) for name, offset, _, metric in sim.dead() if metric is None]
        assert len(set(letters)) == len(letters)


def test_many_steps_are_read_again_from_their_blocks() -> None:
    """A late line of an early step of a long file makes a revision out of the file, whose lines have several records
    each.
    """
    with reading(SHARED), simulation() as sim:
        path = sim.directory / "one.shared.jsonl"
        lines = [json.dumps({"n": n, "a": n, "b": n, "pad": "x" * 2700}).encode() + b"\n" for n in range(500)]
        path.write_bytes(b"".join(lines))
        sim.tick()
        with open(path, "ab") as file:
            file.write(b'{"n":3,"a":9,"b":9}\n')
        sim.wait(20.0)
        sim.tick()
        sim.finish()
        revised = [row for row in sim.rows() if row.arrival.revision]
        assert {(row.unit.actor, row.unit.index) for row in revised} == {("a", 3), ("b", 3)}
        figures = {key: value for row in revised for key, value in row.values.items()}
        assert figures == {"a/v": 6.0, "a/again": 6.0, "b/w": 12.0, "b/w/max": 9.0, "b/s_s": 0.5, "b/s_s/max": 0.5}
        native = native_files(sim.directory, [SHARED])
        assert not differing(final_rows(native, NO_OVERRIDES, EACH), sim.final())


def test_a_step_that_falls_is_a_restart_wherever_the_file_is_read_from() -> None:
    """The steps that are done again count once, by their later lines, as they come and in a revision after a restart of
    the sidecar; so they do where a torn line stands between the lives, and where lives have begun in several blocks.
    """
    with reading(FALLING), simulation() as sim:
        path = sim.directory / "one.falling.jsonl"
        pad = "x" * 900

        def life(first: int, end: int, value: int, torn: bytes = b"") -> None:
            made = [json.dumps({"f": f, "v": value, "pad": pad}).encode() + b"\n" for f in range(first, end)]
            with open(path, "ab") as file:
                file.write(torn + b"".join(made))
            sim.wait(20.0)
            sim.tick()

        life(0, 600, 1)
        life(500, 900, 2, b'{"f": 600, "v"')
        sim.restart()
        life(700, 1000, 4)
        sim.restart()
        with open(path, "ab") as file:
            file.write(
                json.dumps({"f": 1000, "v": 8}).encode() + b"\n" + json.dumps({"f": 998, "w": 8}).encode() + b"\n"
            )
        sim.finish()
        sums = {unit.index: row.values["f/v"] for unit, row in sim.final().items()}
        # Line 500 of the second life was torn together with the last of the first.
        expected = {step: 1 if step <= 500 else 2 if step < 700 else 4 if step < 1000 else 8 for step in range(1001)}
        assert sums == expected
        assert sim.final()[Unit("f", "step", 998)].values == {
            "f/v": 4.0,
            "f/v/count": 1.0,
            "f/w": 8.0,
            "f/w/count": 1.0,
        }
        native = native_files(sim.directory, [FALLING])
        assert not differing(final_rows(native, NO_OVERRIDES, EACH), sim.final())
