"""Random experiments: mostly realistic jobs, on which accidents of every kind fall."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.reference import snippets
from tests.reference.custom import CUSTOM
from tests.reference.records import Entry
from tests.reference.settings import Settings, nothing_known
from tests.reference.snippets import T0
from tests.reference.strays import between, clock, crowd, pick, stray

REPLICAS = (("0",), ("0",), ("0", "1"), ("2", "10"), ("a", "10", "9"), ("1", "01"), ("",))
# Later starts of all ranks: (attempt, seconds after the first start, steps back). The second of one attempt is a claim
# on ranks that are taken, or a restart by a launcher that does not count.
# Jobs that writers name, by start: none, one for each, one for all, and what one would not expect.
JOBS: tuple[tuple[str | None, ...], ...] = (
    (),
    (),
    (),
    ("b", "a", "c"),
    ("b", "a", "c"),
    ("a",),
    ("a", None),
    ("", "b"),
)
AGAIN = ((1, 200.0, 1), (1, 200.0, 3), (0, 60.0, 1), (0, 0.5, 0), (0, 300.0, 2), (2, -5.0, 1))
RESIZED = (0, 0, -1, -2, 1)
# That a process never came, or logged nothing at a step, comes first: so failing examples lose what they do not need.
FATES = ("never", "whole", "whole", "whole", "whole", "whole", "whole", "short", "rolled back", "late")
LOGGED = ("nothing", "together", "together", "together", "together", "some", "apart", "first")
QUIRKS = ("implicit", "no define", "world + 1", "other axis", "no t", "bare", "integer replica", "odd host")
ENDS = ("exit", "", "exit", "", "roll", "torn", "bare", "error")
ACCIDENTS = ("value", "dead", "idle", "define", "barrier", "rollback", "time", "collision", "stream", "clock", "dead")
# The hosts that ranks live on, in turn; the last pool has one without a name.
HOSTS = (("n07",), ("n07",), ("n07", "n08"), ("n07", "n08", ""))
SKEWS = (0.0, 0.0, 0.0, -0.031, 40.0, -90.5)
LATE = (0.0, 0.0, 0.0, 0.0, 2.5, 70.0)
STREAMS = {"steps": (0,), "steps and streams": (0, 0, 1, 2), "streams": (1, 1, 0, 2, 3)}
COURSES = ("steps", "steps and streams", "streams")


@dataclass(frozen=True)
class Job:
    """What the writers of one actor have in common. `pace`: seconds a step; `skews`: the hosts that its ranks live on
    in turn, and how far their clocks are off; `course`: whether it has steps, streams between them, or streams alone.
    """

    actor: str
    axis: str
    metrics: tuple[str, ...]
    define: bytes
    explicit: bool
    pace: float
    skews: tuple[tuple[str, float], ...]
    course: str

    def host(self, life: Life) -> tuple[str, float]:
        """Where a process lives, and how far the clock there is off."""
        return self.skews[life.rank % len(self.skews)]


@dataclass(frozen=True)
class Life:
    """One process: who it is and which steps it logs. `t` is its `open`'s; `parent`: how many writers away it is;
    `job`: the one that its `open` names.
    """

    replica: str
    rank: int
    world: int | None
    attempt: int
    t: float
    first: int
    last: int
    parent: int | None = None
    job: str | None = None


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, bytes]:
    """File names and contents of one experiment: 1 to 3 actors, each of up to 3 replicas, 4 ranks and 3 starts.

    Compare what comes of them by `differing`: now and then a quantile is sketched.
    """
    files: dict[str, bytes] = {}
    count = pick(draw, (1, 1, 2, 3))
    for actor in ("trainer", "generator", "reward")[:count]:
        job, lives = crew(draw, actor, small=count > 1)
        for index, life in enumerate(lives):
            fate = pick(draw, FATES)
            if fate != "never":
                name = f"{actor}-{life.replica}-r{life.rank}-n07-{4000 + index}-{writer_id(actor, index)}.jsonl"
                files[name] = draw(writer_files(job, life, index, fate))
    if pick(draw, (False, False, False, True)):
        files["odd.jsonl"] = pick(draw, snippets.ODD_FILES)
    return files


def crew(draw: st.DrawFn, actor: str, small: bool) -> tuple[Job, list[Life]]:
    """One actor: what its writers share, and the lives of all its ranks, with restarts and children."""
    replicas = pick(draw, REPLICAS[:3] if small else REPLICAS)
    ranks = between(draw, 1, 2 if small or len(replicas) > 1 else 4)
    metrics = pick(draw, snippets.METRICS)
    job = Job(
        actor=actor,
        axis="global_step" if actor == "trainer" else pick(draw, ("global_step", "rollout")),
        metrics=metrics,
        define=draw(snippets.DEFINES[metrics]) if pick(draw, (False, True, True)) else b"",
        explicit=pick(draw, (True, True, True, False)),
        pace=pick(draw, (1.0, 0.25, 30.0, 61.0)),
        skews=tuple((host, pick(draw, SKEWS)) for host in pick(draw, HOSTS)),
        course=pick(draw, COURSES[:2] if actor == "trainer" else COURSES),
    )
    world = pick(draw, (ranks, ranks, ranks, None, ranks + 2, max(1, ranks - 1)))
    first = pick(draw, (0, 0, 3, 100))
    last = first + between(draw, 0, 3)
    starts = [(0, 0.0, last - first)]
    starts += [pick(draw, AGAIN) for _ in range(pick(draw, (0, 0, 1, 2)))]
    lives = []
    jobs = pick(draw, JOBS)
    for number, (attempt, after, back) in enumerate(starts):
        for place, replica in enumerate(replicas):
            if jobs and number and place and pick(draw, (False, True)):
                continue  # a later job with fewer replicas
            # A later attempt or submission may be of another size, and each replica has its own.
            size = ranks + (pick(draw, RESIZED) if (attempt or after >= 60) and world else 0)
            told = world if size == ranks else max(1, size)
            for rank in range(max(1, size)):
                t = T0 + after + 0.125 * rank + job.skews[rank % len(job.skews)][1]
                job_id = jobs[(number + rank) % len(jobs)] if jobs else None
                lives.append(Life(replica, rank, told, attempt, t, max(0, last - back), last, job=job_id))
    lives += [child(draw, lives) for _ in range(pick(draw, (0, 0, 1, 2)))]
    return job, lives


def child(draw: st.DrawFn, lives: Sequence[Life]) -> Life:
    """A forked child, usually of the rank of a writer that there is. Two of them may be each other's parents."""
    model = pick(draw, lives)
    return replace(
        model,
        rank=model.rank + pick(draw, (0, 0, 0, 1)),
        t=model.t + 0.5,
        last=model.first + 1,
        parent=pick(draw, (-1, -2, -3, 99, 1, 0)),
    )


def writer_id(actor: str, index: int) -> str:
    """The id of an actor's n-th writer: ids sort unlike the order in which writers start."""
    return f"{zlib.crc32(f'{actor} {index}'.encode()):08x}"


@st.composite
def writer_files(draw: st.DrawFn, job: Job, life: Life, index: int, fate: str) -> bytes:
    """The bytes of one writer's file."""
    quirk = pick(draw, QUIRKS) if pick(draw, (False, False, True)) else ""
    explicit = job.explicit and quirk != "implicit" and (life.parent is None or pick(draw, (False, True)))
    lines = [open_line(job, life, index, quirk)]
    if job.define and quirk != "no define":
        lines.append(job.define)
    if "policy_version" in job.metrics and pick(draw, (True, True, False)):
        lines.append(VERSIONED)
    lines += [clock(draw, job.host(life)[1], life.t) for _ in range(pick(draw, (0, 0, 0, 1, 1, 2)))]
    lines += body_lines(draw, job, life, fate, explicit)
    end = pick(draw, ENDS)
    if end in ("exit", "roll", "error"):
        lines.append(b'{"kind":"close","reason":"%s"}' % end.encode())
    elif end == "bare":
        lines.append(b'{"kind":"close"}')
    for _ in range(pick(draw, (0, 0, 0, 1, 2, 4))):
        lines.insert(between(draw, 0, len(lines)), accident(draw, job, life))
    if between(draw, 0, 399) == 77:  # not one of the ends, which are drawn more often
        lines += [CROWDED, *(crowded(draw, life) for _ in range(pick(draw, (1, 2, 1))))]
    whole = b"".join(line + b"\n" for line in lines)
    return whole[: -between(draw, 1, 20)] if end == "torn" else whole


def open_line(job: Job, life: Life, index: int, quirk: str) -> bytes:
    """The `open` of one writer."""
    body: dict[str, Any] = {"kind": "open", "rlship": 1, "id": writer_id(job.actor, index), "actor": job.actor}
    body |= {"replica": life.replica, "rank": life.rank, "attempt": life.attempt}
    body |= {"t": life.t, "axis": job.axis, "beat": 10, "host": job.host(life)[0]}
    if life.world is not None:
        body["world"] = life.world + (1 if quirk == "world + 1" else 0)
    if life.job is not None:
        body["job"] = life.job
    if life.parent is not None:
        body["parent"] = writer_id(job.actor, index + life.parent)
    if quirk == "no t":
        del body["t"]
    elif quirk == "odd host":
        body["host"] = 7
    elif quirk == "other axis":
        body["axis"] = "episode"
    elif quirk == "integer replica" and life.replica in ("0", "1", "2", "9", "10"):
        body["replica"] = int(life.replica)
    elif quirk == "bare":
        defaults = {"rlship": 1, "replica": "0", "rank": 0, "attempt": 0, "axis": "global_step", "beat": 10}
        body = {name: value for name, value in body.items() if name not in defaults or defaults[name] != value}
    return json.dumps(body).encode()


def body_lines(draw: st.DrawFn, job: Job, life: Life, fate: str, explicit: bool) -> list[bytes]:
    """The steps of one life, then perhaps the end of them once more after a rollback."""
    t = life.t
    if job.course == "streams":
        explicit = False
    steps = list(range(life.first + (fate == "late"), life.last + 1))
    adopts = explicit and pick(draw, (False, True))
    lines = early_lines(draw, job, t) if adopts or job.course != "steps" else []
    for step in steps:
        t += job.pace
        lines += draw(step_lines(job, step, t, explicit, adopts=adopts and step == steps[0]))
    if fate == "short":
        return lines[: -between(draw, 1, 2)]
    if fate == "rolled back" and steps:
        back = between(draw, max(0, steps[0] - 1), steps[-1])
        lines.append(f'{{"kind":"rollback","step":{back},"t":{t + 0.2}}}'.encode())
        for step in range(back, steps[-1] + 1):
            t += job.pace
            lines += draw(step_lines(job, step, t, explicit and step < steps[-1]))
    return lines


def early_lines(draw: st.DrawFn, job: Job, t: float) -> list[bytes]:
    """What a process records before it knows its step; some of it has none on purpose."""
    lines = [stray(draw, job.metrics, None, t + pick(draw, (0.0, 0.5, 12.0))) for _ in range(pick(draw, (0, 1, 3)))]
    return [line[:-1] + b',"stream":true}' if pick(draw, (False, False, True)) else line for line in lines]


@st.composite
def step_lines(draw: st.DrawFn, job: Job, step: int, t: float, explicit: bool, adopts: bool = False) -> list[bytes]:
    """One step: usually one metrics record with all metrics, at times one for each, or none; what else there is to
    tell of the step; then the barrier, which some ranks reach late; and streams, which may be all there is.
    """
    streams = [stray(draw, job.metrics, None, t) for _ in range(pick(draw, STREAMS[job.course]))]
    if job.course == "streams":
        return streams
    how = pick(draw, LOGGED)
    metrics = {"first": job.metrics[:1], "nothing": ()}.get(how, job.metrics)
    if how == "some":
        metrics = tuple(metric for metric in metrics if pick(draw, (False, True)))
    values = snippets.ANY_NUMBER if how == "some" else snippets.VALUES
    entries = [f"{json.dumps(metric)}:{draw(values)}" for metric in metrics]
    if how in ("together", "some"):
        entries = [",".join(entries)]
    lines = [f'{{"t":{t},"step":{step},"m":{{{entry}}}}}'.encode() for entry in entries]
    lines += [stray(draw, job.metrics, step, t) for _ in range(pick(draw, (0, 0, 0, 1, 2)))]
    if explicit:
        mark = ',"adopts":true' if adopts else ""
        lines.append(f'{{"kind":"barrier","step":{step},"t":{t + 0.1 + pick(draw, LATE)}{mark}}}'.encode())
    return lines + streams


def accident(draw: st.DrawFn, job: Job, life: Life) -> bytes:
    """One line that does not belong to the smooth course of things, to be put anywhere."""
    what = pick(draw, ACCIDENTS)
    if what == "dead":
        return pick(draw, snippets.DEAD_LINES)
    if what == "idle":
        return pick(draw, snippets.IDLE_LINES)
    if what == "define":
        return draw(snippets.DEFINES[job.metrics])
    if what == "stream":
        return stray(draw, job.metrics, None, life.t + pick(draw, (0.0, 3.5, 65.0)))
    if what == "clock":
        return clock(draw, job.host(life)[1], life.t + pick(draw, (0.0, 3.5, 65.0)))
    step = between(draw, max(0, life.first - 1), life.last + 1)
    if what in ("barrier", "rollback"):
        return f'{{"kind":"{what}","step":{step}}}'.encode()
    time = pick(draw, snippets.UNUSUAL_TIMES) if what == "time" else f'"t":{life.t + 3.5},'
    metric = "loss/max" if what == "collision" else pick(draw, (*job.metrics, "seldom", ""))
    return f'{{{time}"step":{step},"m":{{{json.dumps(metric)}:{draw(snippets.VALUES)}}},"new":[1]}}'.encode()


VERSIONED = b'{"kind":"define","m":{"policy_version":{"reduce":["min","max"],"unit":"global_step","stream":true}}}'
CROWDED = b'{"kind":"define","m":{"loss":{"reduce":["p50","p99","mean","hist"],"per_rank":true}}}'


def crowded(draw: st.DrawFn, life: Life) -> bytes:
    """A line with so many observations that quantiles are no longer exact."""
    at = pick(draw, (f'"step":{life.last},', f'"step":{life.last},', ""))
    return f'{{"t":{life.t + 3.5},{at}"m":{{"loss":{crowd(between(draw, 0, 3))}}}}}'.encode()


def configurations() -> st.SearchStrategy[dict[str, list[str]]]:
    """The configuration's reductions: usually none, else for one or two metrics, of one actor or of all."""
    names = st.sampled_from(("loss", "reward", "loss/max", "trainer/loss", "trainer/loss/max"))
    reduces = st.sampled_from([reduce for reduce in snippets.REDUCES if isinstance(reduce, list)])
    asked = st.one_of(reduces, snippets.ASKED)
    return st.one_of(st.just({}), st.just({}), st.dictionaries(names, asked, max_size=2))


CATALOGUE = {
    "loss": Entry(("mean", "p50", "std")),
    "reward": Entry(("max", "hist"), per_rank=True),
    "rollout_s": Entry(("min",), per_rank=True),
    "policy_version": Entry(("min", "max"), unit="global_step"),
    "tokens": Entry(("sum_last", "rate", "sum"), per_rank=True),
}


def catalogue(actor: str, metric: str) -> Entry | None:
    """What a catalogue might say; of the loss it knows only a trainer's."""
    return CATALOGUE.get(metric) if actor == "trainer" or metric != "loss" else None


def configured() -> st.SearchStrategy[Settings]:
    """The rest of the configuration: usually the defaults. The custom reductions are always installed."""
    return st.builds(
        Settings,
        per_rank=st.sampled_from((False, False, True)),
        samples=st.sampled_from((4, 4, 1, 2, 0)),
        samples_every=st.sampled_from((1, 1, 2, 10)),
        lead=st.sampled_from(("trainer", "trainer", "trainer", "generator", "absent")),
        window=st.sampled_from((10.0, 10.0, 10.0, 1.0, 60.0, 0.25)),
        catalogue=st.sampled_from((nothing_known, catalogue)),
        custom=st.just(CUSTOM),
    )


@st.composite
def arrivals(draw: st.DrawFn, files: Mapping[str, bytes]) -> list[dict[str, int]]:
    """Moments of a live watch: how many bytes of each file are visible, never fewer than before, at last all of them.

    Pieces are cut anywhere, and files appear in any order: a length of 0 is an empty file or one that is not there yet.
    """
    moments = range(pick(draw, (0, 1, 2, 3, 5)))
    lengths = {}
    for name, data in files.items():
        cuts = [pick(draw, (len(data), 0, None)) for _ in moments]
        lengths[name] = sorted(between(draw, 0, len(data)) if cut is None else cut for cut in cuts)
    course = [{name: lengths[name][moment] for name in files} for moment in moments]
    return [*course, {name: len(data) for name, data in files.items()}]
