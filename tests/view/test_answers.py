"""What the server answers about an experiment whose rows a sidecar made."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from struct import unpack
from typing import Any

import pytest

from rlship_formats.reading import Span
from rlship_formats.records import Open
from rlship_sidecar.config import Config
from rlship_sidecar.export.reading import Entry
from rlship_sidecar.report.ended import FileEnds, ended_processes
from rlship_sidecar.rows import Coverage, Sample
from rlship_sidecar.view.entries import entry_of
from rlship_sidecar.view.exported import newest_of
from rlship_sidecar.view.folder import ViewedFolder
from rlship_sidecar.view.making import Making
from rlship_sidecar.view.records import FoundRecord, SoughtRecords
from rlship_sidecar.view.rollouts import Rolls, histogram
from rlship_sidecar.view.shown import Shown
from rlship_sidecar.view.timeline import MAX_NAMES, OTHERS, SpanTimeline
from tests.cli.sample import a_status, a_writer, an_actor
from tests.kit.files import CLOSE, T0, barrier, event, file, log, rollback, sample, span
from tests.tabular.stores import row, store
from tests.view.serving import Client, serving, watched

STEPS = 30


def rank(number: int) -> bytes:
    """A trainer's rank: its loss, its busy time by rank, spans of each step, and rollouts of one."""
    records: list[dict[str, Any]] = [{"kind": "define", "m": {"busy_s": {"reduce": ["max"], "per_rank": True}}}]
    for step in range(STEPS):
        at = 10.0 * step
        records += [
            log(step, **{"train/loss": step + number / 10, "busy_s": 1.0 + number}) | {"t": T0 + at + 9},
            span("rollout", 4.0, at, step=step),
            span("generate", 1.0, at + 1, step=step),
            span("update", 3.0, at + 5, step=step),
        ]
        if step == 12:
            texts = {"prompt": "2 + 2", "logprobs": [-0.5, -1.5], "mask": [1, 0]}
            for score, response in ((1.0, "4"), (0.0, "5")):
                said = {**texts, "response": response, "tokens": [response, "."], "reward": score}
                records.append(sample(score, pri=(score + number) / 8, step=step, row=said, t=T0 + at))
            records.append(event("samples_dropped", step=step, attrs={"n": 6}))
        records.append(barrier(step, at + 9.5))
    return file(*records, CLOSE, id=f"r{number}", rank=number, world=2, host=f"n0{number}")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A run of two ranks, of which the second never wrote step 29."""
    files = {f"r{number}.jsonl": rank(number) for number in range(2)}
    with serving(watched(tmp_path_factory.mktemp("outputs") / "grpo", files)) as client:
        yield client


def packed(matrix: dict[str, Any]) -> list[list[float]]:
    """The rows of a packed matrix."""
    data = base64.b64decode(matrix["f32"])
    values = unpack(f"<{matrix['rows'] * matrix['columns']}f", data)
    width = matrix["columns"]
    return [list(values[at * width : (at + 1) * width]) for at in range(matrix["rows"])]


def test_the_list_and_the_overview_are_those_of_status(client: Client) -> None:
    """State, steps, ranks and processes are taken from the last status."""
    listed = client.ask("/api/experiments")
    assert listed["single"] and [one["name"] for one in listed["experiments"]] == ["grpo"]
    entry = listed["experiments"][0]
    assert (entry["state"], entry["step"], entry["ranks"], entry["expected"]) == ("finished", STEPS - 1, 2, 2)
    overview = client.ask(f"{client.first}/overview")
    assert overview["entry"] == entry
    assert [one["actor"] for one in overview["actors"]] == ["trainer"] and overview["actors"][0]["lead"]
    assert [(one["rank"], one["host"], one["state"]) for one in overview["writers"]] == [
        ("0.0", "n00", "closed"),
        ("0.1", "n01", "closed"),
    ]
    assert overview["extent"]["step"] == [0, STEPS - 1] and overview["progress"] is None
    assert overview["panels"]["ranks"] == [client.ids()["trainer/busy_s"]]


def test_a_run_that_waits_beside_a_dead_process_is_held_up() -> None:
    """It is not called running while a process is gone without a close and a step waits, and its trouble names the
    process. Without a step that waits, or without such a process, it runs.
    """
    now = 1763600000.0
    gone = a_writer(file="r6", rank=6, silent_s=6.0, beats=True, awaited=True, gone=True)
    lives = a_writer(file="r0", beats=True, awaited=True)
    for writer, waiting, state in ((gone, "0.6", "held"), (gone, "", "running"), (lives, "0.0", "running")):
        held = an_actor(waiting=waiting, note="step 10 has waited 80 s" if waiting else "")
        status = a_status(t=now, running=True, writers=[writer, lives], actors=[held])
        entry = entry_of("a", "run", status, ended_processes(status, {}, FileEnds()), now)
        assert (entry["state"], "trainer r6 ended without a close" in entry["trouble"]) == (state, writer is gone)


def test_a_series_has_the_values_of_the_rows(client: Client) -> None:
    """Every row by itself where there is room; a range of steps or times has both of its ends."""
    one = client.ids()["trainer/train/loss"]
    answer = client.ask(f"{client.first}/series?m={one}")
    (grid,), curve = answer["grids"], answer["curves"][one]
    assert grid["x"] == list(range(STEPS)) and grid["width"] == 1 and set(grid["rows"]) == {1}
    assert curve["mean"] == pytest.approx([step + 0.05 for step in range(STEPS)])
    assert curve["min"] is None and curve["n"] is None
    some = client.ask(f"{client.first}/series?m={one}&from=3&to=5")
    assert some["grids"][0]["x"] == [3, 4, 5]
    late = client.ask(f"{client.first}/series?m={one}&axis=time&from={grid['t'][7]}&to={grid['t'][8]}")
    assert late["grids"][0]["x"] == grid["t"][7:9] and late["grids"][0]["axis"] == "time"


def test_extremes_survive_fewer_points(client: Client) -> None:
    """A bucket of several rows has their least, greatest and mean value, and their number."""
    one = client.ids()["trainer/train/loss"]
    answer = client.ask(f"{client.first}/series?m={one}&points=4")
    (grid,), curve = answer["grids"], answer["curves"][one]
    assert grid["x"] == [0, 8, 16, 24] and grid["rows"] == [8, 8, 8, 6] and grid["width"] == 8
    assert curve["min"] == pytest.approx([0.05, 8.05, 16.05, 24.05])
    assert curve["max"] == pytest.approx([7.05, 15.05, 23.05, 29.05])
    assert curve["mean"] == pytest.approx([3.55, 11.55, 19.55, 26.55])


def test_a_matrix_has_every_rank(client: Client) -> None:
    """Rows of ranks with their hosts, columns of steps, and of each step the ranks with the least and greatest."""
    one = client.ids()["trainer/busy_s"]
    answer = client.ask(f"{client.first}/ranks?m={one}&stat=mean,max&points=10")
    assert (answer["ranks"], answer["hosts"]) == (["0.0", "0.1"], ["n00", "n01"])
    assert packed(answer["mean"]) == [[1.0] * 8, [2.0] * 8] == packed(answer["max"])
    assert answer["min"] is None
    assert answer["high_rank"] == [1] * 8 and answer["low_rank"] == [0] * 8 and answer["median"] == [1.5] * 8
    assert client.get(f"{client.first}/ranks?m=nope").json()["code"] == "parameter"


def test_a_matrix_of_one_rank_is_small(client: Client) -> None:
    """It holds the rank that was asked for, and beside a name that no rank has the one with the greatest value; what is
    said of all ranks stays.
    """
    one = client.ids()["trainer/busy_s"]
    for name, only in (("0.0", 0), ("0.1", 1), ("worst", 1)):
        answer = client.ask(f"{client.first}/ranks?m={one}&rank={name}")
        assert answer["only"] == only and packed(answer["mean"]) == [[1.0 + only] * 30]
        assert len(answer["ranks"]) == 2 and answer["median"] == [1.5] * 30
    assert client.ask(f"{client.first}/ranks?m={one}")["only"] == -1


def test_rows_that_lie_apart_are_read_one_by_one(tmp_path: Path) -> None:
    """How many rows a range has decides, not how many steps: a job that logs each tenth step has its rows too, and an
    exported file has the newest 50 of them.
    """
    rows = [
        row(no, 10 * no, per_rank={"trainer/busy_s": [("0.0", float(no))]}, values={"trainer/busy_s/max": float(no)})
        for no in range(1_100)
    ]
    store(tmp_path / "run", rows).close()
    with serving(tmp_path / "run") as client:
        path = f"{client.first}/ranks?m={client.ids()['trainer/busy_s']}&points=1000"
        whole = client.ask(path)["grid"]
        assert max(whole["rows"]) > 1
        near = client.ask(f"{path}&from=2000&to=6990")
        assert set(near["grid"]["rows"]) == {1} and packed(near["mean"]) == [[float(no) for no in range(200, 700)]]
        newest = client.ask("&".join([path, *(f"{name}={value}" for name, value in (newest_of(whole) or {}).items())]))
        assert packed(newest["mean"]) == [[float(no) for no in range(1_050, 1_100)]]


@pytest.mark.parametrize(
    ("x", "rows", "width", "found"),
    [
        ([0, 8, 16], [8, 8, 3], 8, {"from": "0", "to": "23"}),
        ([0, 64, 128], [64, 64, 40], 64, {"from": "118", "to": "191"}),
        ([0, 1 << 40], [30, 5], 1 << 30, {"from": "0", "to": str((1 << 40) + (1 << 30) - 1)}),
        ([0], [100], 128, {"from": "50", "to": "127"}),
        ([0, 1, 2], [1, 1, 1], 1, None),
        ([], [], 1, None),
    ],
)
def test_the_newest_rows_of_a_grid(x: list[int], rows: list[int], width: int, found: dict[str, str] | None) -> None:
    """They are looked for among the last steps, at the distance that the last rows have; the range is never empty."""
    assert newest_of({"axis": "step", "x": x, "rows": rows, "width": float(width)}) == found


def test_spans_lie_in_lanes_and_stages_share_a_step(client: Client) -> None:
    """Spans of the asked steps alone, nested, and the mean over ranks of the seconds of each stage, those of
    spans that are left out too.
    """
    answer = client.ask(f"{client.first}/spans?first=3&last=4")
    assert [(lane["actor"], lane["rank"], lane["host"]) for lane in answer["lanes"]] == [
        ("trainer", "0.0", "n00"),
        ("trainer", "0.1", "n01"),
    ]
    spans = answer["spans"]
    named = [answer["names"][one] for one in spans["name"]]
    assert named == ["rollout", "generate", "update"] * 4 and spans["depth"] == [0, 1, 0] * 4
    assert answer["origin"] == T0 + 30 and spans["t"][:3] == [0.0, 1.0, 5.0]
    stages = answer["stages"]
    assert stages["step"] == [3, 4] and stages["names"] == ["rollout", "update"]
    assert stages["seconds"] == [[4.0, 4.0], [3.0, 3.0]]
    assert stages["dur"] == [9.5, 10.0] and stages["bubble"] == [2.5, 3.0]
    few = client.ask(f"{client.first}/spans?first=3&last=4&limit=4")
    assert few["left_out"] == 8 and {few["names"][one] for one in few["spans"]["name"]} == {"rollout"}
    assert few["stages"] == stages
    by_time = client.ask(f"{client.first}/spans?from={T0 + 31}&to={T0 + 34}")
    assert {by_time["names"][one] for one in by_time["spans"]["name"]} == {"rollout", "generate"}


def doing(step: int, at: float, rollout_s: float = 4.0, *more: dict[str, Any]) -> list[dict[str, Any]]:
    """A step that began at a time: a rollout, an update of 3 s and, a second after it, its barrier."""
    return [
        log(step, **{"train/loss": 1.0}) | {"t": T0 + at},
        span("rollout", rollout_s, at, step=step),
        span("update", 3.0, at + rollout_s, step=step),
        *more,
        barrier(step, at + rollout_s + 4),
    ]


def once(first: int, last: int, at: float, rollout_s: float = 4.0) -> list[dict[str, Any]]:
    """Some steps, one after the other."""
    return [
        one for step in range(first, last + 1) for one in doing(step, at + (step - first) * (rollout_s + 4), rollout_s)
    ]


SAVED = span("save", 2.0, 47.0, step=4)  # of a step's former doing alone
BACK = rollback(3) | {"t": T0 + 299.0}
PAD = [{"kind": "other", "pad": "x" * 100_000}] * 3  # what follows is of another block of the file
IN_ONE_FILE = (*once(0, 4, 0), SAVED, *once(5, 5, 40), *PAD, BACK, *once(3, 4, 300, 2.0), *PAD, *once(5, 5, 312, 2.0))


@pytest.mark.parametrize(
    ("files", "attempts"),
    [
        ({"a": file(*IN_ONE_FILE, CLOSE)}, [0]),
        (
            {
                "a": file(*once(0, 4, 0), SAVED, *once(5, 5, 40)),
                "b": file(*once(3, 5, 300, 2.0), CLOSE, id="b", attempt=1, t=T0 + 299.0),
            },
            [0, 1],
        ),
    ],
    ids=["a rollback in one file", "a restart in another file"],
)
def test_stages_are_those_of_a_steps_last_doing(tmp_path: Path, files: dict[str, bytes], attempts: list[int]) -> None:
    """A step that was done again has the seconds and the place of its last doing, and no stage that only a former one
    had; what lies between the two counts for no step. It is so whatever is asked for, also times at which a step was
    done for the first time. Spans of a former doing are in their lanes, but the range that was found is without them.
    """
    names = {f"{name}.jsonl": data for name, data in files.items()}
    with serving(watched(tmp_path / "again", names)) as client:
        answer = client.ask(f"{client.first}/spans?first=2&last=5")
        early = client.ask(f"{client.first}/spans?from={T0}&to={T0 + 60}")
        late = client.ask(f"{client.first}/spans?first=4&last=5")
        last = client.ask(f"{client.first}/spans?step=5")
    stages = answer["stages"]
    assert stages["step"] == [2, 3, 4, 5] and stages["t"] == [T0 + at for at in (16, 300, 306, 312)]
    assert stages["names"] == ["update", "rollout"]
    assert stages["seconds"] == [[3.0, 3.0, 3.0, 3.0], [4.0, 2.0, 2.0, 2.0]]
    assert stages["dur"] == [8.0, 6.0, 6.0, 6.0] and stages["bubble"] == [1.0] * 4
    assert early["stages"]["step"] == [0, 1, 2] and early["stages"]["bubble"] == [1.0] * 3
    assert last["stages"]["t"] == [T0 + 312] and last["stages"]["dur"] == [6.0]
    assert late["found"] == [T0 + 306, T0 + 318] and late["origin"] == T0 + 32
    assert [lane["attempt"] for lane in late["lanes"]] == attempts
    assert late["spans"]["step"] == [4, 4, 5, 5, 4, 4, 4, 5, 5] and late["spans"]["t"][5] == 274.0


def test_the_newest_steps_are_those_before_the_place_of_a_job_that_went_back(tmp_path: Path) -> None:
    """As long as it has not been as far as before, what it did there first is not what is newest."""
    went_back = file(*once(0, 19, 0), BACK, *once(3, 4, 300, 2.0))
    with serving(watched(tmp_path / "again", {"a.jsonl": went_back})) as client:
        answer = client.ask(f"{client.first}/spans")
    assert answer["stages"]["step"] == [0, 1, 2, 3, 4] and answer["stages"]["dur"] == [8.0, 8.0, 8.0, 6.0, 6.0]
    assert answer["found"] == [T0, T0 + 312]


def test_rollouts_are_grouped_by_prompt_with_the_values_of_tokens(client: Client) -> None:
    """A step's samples, how many the job took, and their rewards; a step without any is answered by the nearest."""
    answer = client.ask(f"{client.first}/rollouts?step=12")
    (table,) = answer["tables"]
    assert (answer["step"], table["table"], table["kept"], table["taken"]) == (12, "rollouts", 4, 16)
    assert table["groups"] == [[0, 1, 2, 3]] and sum(table["rewards"]["counts"]) == 4
    first = table["samples"][0]
    assert (first["prompt"], first["response"], first["score"], first["group"]) == ("2 + 2", "4", 1.0, "2 + 2")
    assert first["tokens"] == {"text": ["4", "."], "columns": {"logprobs": [-0.5, -1.5], "mask": [1.0, 0.0]}}
    assert {why for one in table["samples"] for why in one["why"]} == {"top", "bottom", "random"}
    assert client.ask(f"{client.first}/rollouts?step=25")["step"] == 12
    again = client.ask(f"{client.first}/rollouts")
    assert [one["id"] for one in again["tables"][0]["samples"]] == [one["id"] for one in table["samples"]]


def test_a_score_that_is_the_advantage_is_no_reward() -> None:
    """TRL's completions have their advantage as score, and the values of reward functions as columns. Beside a reward
    the reward counts.
    """
    for row_of, measure, scores in (
        (lambda a: {"right": 1.0, "advantage": a}, "advantage", [-0.5, 0.5]),
        (lambda a: {"reward": 2 * a, "advantage": a}, "reward", [-1.0, 1.0]),
        (lambda a: {"advantage": a - 1}, "reward", [-0.5, 0.5]),
    ):
        rolls = Rolls(10)
        samples = [Sample(("top",), "0.0", T0, score, row_of(score)) for score in (-0.5, 0.5)]
        rolls.take_row(row(0, samples={"completions": samples}))
        (table,) = rolls.answer()
        assert (table["measure"], [one["score"] for one in table["samples"]]) == (measure, scores)
        assert table["rewards"] is not None and table["rewards"]["edges"][0] == scores[0]


@pytest.mark.parametrize(
    ("rewards", "counts"),
    [([0.3, 0.1 + 0.2], [2]), ([0.0, 5e-324], [2]), ([1.0, 1.0], [2]), ([0.0, 1.0], [1, 0, 0, 1])],
)
def test_rewards_that_differ_by_a_rounding_share_a_bar(rewards: list[float], counts: list[int]) -> None:
    """Between such rewards no number is left for an edge; all samples of the step are in the one bar there is."""
    found = histogram(rewards)
    assert found is not None and found["counts"] == counts
    assert found["edges"][0] <= min(rewards) and found["edges"][-1] >= max(rewards)


def test_names_that_no_other_span_has_are_bounded() -> None:
    """A job may put the step into each name: the stages are the longest ones, found in one pass, and names beyond a
    number share one.
    """
    opened = Open("a", "trainer")
    timeline = SpanTimeline(100_000, "trainer")
    spans = [Span(f"step {at}", "main", float(at), at * 1e-5, at, None) for at in range(MAX_NAMES + 5_000)]
    timeline.take(FoundRecord(opened, Entry("span", one.t, one.step, one), one.t, "a:0") for one in spans)
    answer = timeline.answer()
    assert len(answer["names"]) == MAX_NAMES + 1 and answer["names"][-1] == OTHERS
    assert answer["stages"]["names"][:2] == [OTHERS, f"step {MAX_NAMES - 1}"]
    assert len(answer["spans"]["t"]) == len(spans)


def test_events_are_by_time_and_by_name(client: Client) -> None:
    """The newest of them, with what their process said."""
    answer = client.ask(f"{client.first}/events")
    assert [(one["name"], one["rank"], one["step"]) for one in answer["events"]] == [
        ("samples_dropped", "0.0", 12),
        ("samples_dropped", "0.1", 12),
    ]
    assert client.ask(f"{client.first}/events?name=other")["events"] == []


def test_what_rows_lack_and_what_was_revised_is_counted(tmp_path: Path) -> None:
    """A bucket says how many of its rows lack ranks or were revised; a metric that a revision takes away is gone."""
    lacks = Coverage(("0.0-2",), 4, ("0.3",), attempts=(0,))
    rows = [row(no, values={"trainer/loss": float(no), "trainer/kl": 1.0}) for no in range(8)]
    rows[5] = row(5, coverage=lacks, values={"trainer/loss": 5.0}, per_rank={"trainer/busy_s": [("0.0", 1.0)]})
    rows.append(row(8, 2, revision=1, changed=("trainer/kl",), values={"trainer/loss": 9.0}))
    made = store(tmp_path / "run", rows)
    with serving(tmp_path / "run") as client:
        ids = client.ids()
        answer = client.ask(f"{client.first}/series?m={ids['trainer/loss']},{ids['trainer/kl']}&points=4")
        (grid,) = answer["grids"]
        assert (grid["rows"], grid["partial"], grid["revised"]) == ([2] * 4, [0, 0, 1, 0], [0, 1, 0, 0])
        assert answer["curves"][ids["trainer/kl"]]["n"] == [2, 1, 1, 2]
        assert answer["curves"][ids["trainer/loss"]]["max"] == [1.0, 9.0, 5.0, 7.0]
        ranks = client.ask(f"{client.first}/ranks?m={ids['trainer/busy_s']}")
        assert (ranks["grid"]["x"], ranks["missing"]) == ([5], [["0.3"]])
    made.close()


def test_what_rlship_says_of_the_job_is_no_headline(tmp_path: Path) -> None:
    """The curve of an alert has the name of a metric at its end; it is in the list of all metrics alone."""
    rows = [row(0, values={"trainer/entropy": 1.0}), row(1, kind="alert", values={"zz_rlship/alert/entropy": 1.0})]
    store(tmp_path / "run", rows).close()
    with serving(tmp_path / "run") as client:
        first, second = client.ask(f"{client.first}/metrics")["metrics"]
        assert (first["key"], first["headline"]) == ("trainer/entropy", 1)
        assert (second["key"], second["headline"]) == ("zz_rlship/alert/entropy", None)
        assert client.ask(f"{client.first}/overview")["panels"]["stability"] == [first["id"]]


def test_two_runs_are_compared(tmp_path: Path) -> None:
    """A folder of experiments: each by its id, and what two of them differ in, as `rlship diff` says."""
    for name, at in (("a", 3), ("b", 9)):
        rows = [row(no, values={"trainer/loss": 2.0 if no == at else 1.0}) for no in range(5)]
        store(tmp_path / name, rows).close()
    with serving(tmp_path) as client:
        listed = client.ask("/api/experiments")
        a, b = (one["id"] for one in listed["experiments"])
        assert not listed["single"]
        found = client.ask(f"/api/e/{a}/diff?with={b}")
        assert (found["a"], found["b"], found["both"]) == ("a", "b", 5)
        assert [(one["key"], one["first"]) for one in found["metrics"]] == [
            ("trainer/loss", {"step": 3, "a": 2.0, "b": 1.0})
        ]
        assert client.get(f"/api/e/{a}/diff?with=nope").json()["code"] == "unknown"


def test_only_the_stretches_of_a_step_are_read(tmp_path: Path) -> None:
    """The store knows where in a file the records of a step are: a question about one step reads little of it."""
    records: list[dict[str, Any]] = []
    for step in range(400):
        at = 10.0 * step
        records += [log(step, loss=1.0, text=[0.5] * 400), span("rollout", 4.0, at, step=step), barrier(step, at + 9)]
    made = watched(tmp_path / "run", {"a.jsonl": file(*records, CLOSE)})
    whole = (made / "rlship" / "a.jsonl").stat().st_size
    shown = Shown(ViewedFolder(made, Config(), Making(tmp_path), any_owner=False), "x", made)
    shown.look()
    read: list[int] = []
    blocks, clocks = shown.where()
    for steps, most in (((200, 200), 0.6), ((None, None), 1.01)):
        sought = SoughtRecords(*steps)
        held = blocks.blocks(sought)["a.jsonl"]
        read.append(sum(block.stop - block.start for block in held if sought.has_block(block, 0.0)))
        assert 0 < read[-1] <= most * whole
        found = list(shown.files.find(sought, ("span",), blocks, clocks))
        assert [one.entry.step for one in found] == ([200] if steps[0] else list(range(400)))
    assert read[0] < read[1]
