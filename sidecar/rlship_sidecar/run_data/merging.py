"""What a run is: what all writers of an experiment said of it, merged. Pure; docs/semantics.md, "What a run is".

The result depends on the files and on the configuration alone, never on the order in which lines came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import msgspec
import orjson

from rlship_formats.reading import RUN_TEXTS
from rlship_formats.records import MAX_RUN_KEYS
from rlship_sidecar.align.lineage import replica_key
from rlship_sidecar.run_data.said import OWN, PARTS, TRACED, Edit, Said, brief, typed
from rlship_sidecar.run_data.trees import Tree, changed, contradictions, lay_under, leaves, put

FINISHED, FAILED, OPEN = "finished", "failed", "open"
MAX_MERGED_SIZE = 1 << 23  # bytes of a merged part as JSON
MAX_CHANGES = 10_000
MAX_PLACES = 100
MAX_DROPPED = 1000
OF_EACH_START = ("command", "host", "job")  # facts that say how and where a process was started, this time


class Voice(NamedTuple):
    """One writer, as far as merging has to know it.

    `start` is (submission, attempt), `rank` and `replica` are those of its root, of which `child` says that it is
    another one. `t` and `id` are those of its `open`. `end` is how its process ended, FINISHED or FAILED, or OPEN.
    `gone`: another file has its name now.
    """

    file: str
    actor: str
    start: tuple[int, int]
    replica: str
    rank: int
    child: bool
    t: float
    id: str
    end: str
    gone: bool
    said: Said

    @property
    def seat(self) -> tuple[tuple[int, int, str], int]:
        """Its replica and rank, in merge order."""
        return replica_key(self.replica), self.rank


Ordered: TypeAlias = Mapping[str, Sequence[Voice]]  # by actor


class RunChange(msgspec.Struct, frozen=True):
    """At `t`, `file` said that a key has another value than an actor's deciding rank said before.

    `part` is config, facts or run; `before` and `after` are None where they are too long.
    """

    t: float
    file: str
    actor: str
    replica: str
    rank: int
    attempt: int
    part: str
    key: tuple[str, ...]
    before: Any
    after: Any


def counted(found: Sequence[RunChange]) -> int:
    """How many changes say something: not those of facts that each start of a job has of its own."""
    return sum(not (one.part == "facts" and one.key[0] in OF_EACH_START) for one in found)


class NamedPlace(msgspec.Struct, frozen=True):
    """A file that names a project or an entity (`member`) for the run."""

    member: str
    value: str
    file: str


class AboutRun(msgspec.Struct, frozen=True, kw_only=True):
    """What both the run's data and their status hold. `labels` are by actor."""

    name: str | None = None
    notes: str | None = None
    tags: list[str] | None = None
    group: str | None = None
    project: str | None = None
    entity: str | None = None
    job_type: str | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    summary: dict[str, Any] = msgspec.field(default_factory=dict)
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    labels: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    outcome: str = ""


class RunData(AboutRun, frozen=True, kw_only=True):
    """The merged data. `config`, `summary` and `facts` are nested as they were logged.

    `outcome` is FINISHED, FAILED or OPEN, "" without a writer of the job. `places` are the files that name a project or
    an entity, the deciding ones first. `dropped` are the dotted paths that writers kept to themselves because they look
    like secrets. `left_out` counts the values that met a bound. `actors` are those that said anything, the lead first.
    """

    places: list[NamedPlace] = msgspec.field(default_factory=list)
    dropped: list[str] = msgspec.field(default_factory=list)
    left_out: int = 0
    actors: list[str] = msgspec.field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        """Whether no writer said anything of the run."""
        return not (self.actors or self.labels)


def in_order(voices: Iterable[Voice], lead: str) -> Ordered:
    """The writers of each actor, the deciding one first; the lead that the configuration names first, others by code
    point.
    """
    actors: dict[str, list[Voice]] = {}
    for voice in voices:
        actors.setdefault(voice.actor, []).append(voice)
    for found in actors.values():
        found.sort(key=lambda voice: (voice.t, voice.id, not voice.gone, voice.file), reverse=True)
        found.sort(key=lambda voice: (*voice.seat, voice.child))
        found.sort(key=lambda voice: voice.start, reverse=True)
    return {actor: actors[actor] for actor in sorted(actors, key=lambda actor: (actor != lead, actor))}


def merge(actors: Ordered) -> RunData:
    """The merged data of all writers of the job."""
    saying = {actor: found for actor, ordered in actors.items() if (found := _saying(ordered))}
    spoken = [voice.said for ordered in saying.values() for voice in ordered]
    merged = {part: _merged_part(part, saying) for part in PARTS}
    told: dict[str, Any] = {part: tree for part, (tree, _) in merged.items()}
    told |= {name: _first(said.about.texts.get(name) for said in spoken) for name in RUN_TEXTS}
    return RunData(
        **told,
        tags=_first(said.about.tags for said in spoken),
        labels={actor: typed(own) for actor, ordered in actors.items() if (own := ordered[0].said.about.labels)},
        outcome=_outcome(next(iter(actors.values()), [])),
        places=[*islice(_places(voice for ordered in saying.values() for voice in ordered), MAX_PLACES)],
        dropped=sorted({path for said in spoken for path in said.about.dropped})[:MAX_DROPPED],
        left_out=sum(said.about.left_out for said in spoken) + sum(lost for _, lost in merged.values()),
        actors=[*saying],
    )


def changes(actors: Ordered) -> list[RunChange]:
    """Who gave which key another value when: of each actor what its lowest rank said, in the order of its lives."""
    return [*islice((change for ordered in actors.values() for change in _changes(ordered)), MAX_CHANGES)]


def _saying(ordered: Sequence[Voice]) -> list[Voice]:
    return [voice for voice in ordered if not voice.said.is_nothing]


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _merged_part(part: str, saying: Mapping[str, Sequence[Voice]]) -> tuple[Tree, int]:
    """A part of all actors, and how many of its values are left out."""
    merged: Tree = {}
    against: list[tuple[str, Tree]] = []
    for actor, ordered in saying.items():
        own = _own_part(part, ordered)
        against.append((actor, contradictions(merged, own)))
        lay_under(merged, own)
    lost = 0
    for actor, found in against:
        prefixed = {f"{actor}/{name}": value for name, value in found.items()}
        lost += sum(1 for _ in leaves(contradictions(merged, prefixed)))
        lay_under(merged, prefixed)
    return _bounded(merged, lost)


def _own_part(part: str, ordered: Sequence[Voice]) -> Tree:
    """A part of one actor."""
    merged: Tree = {}
    for text in dict.fromkeys(getattr(voice.said, part) for voice in ordered):  # ranks say the same mostly
        lay_under(merged, orjson.loads(text))
    return merged


def _bounded(tree: Tree, lost: int) -> tuple[Tree, int]:
    found = [*leaves(tree)]
    if len(found) <= MAX_RUN_KEYS and len(orjson.dumps(tree)) <= MAX_MERGED_SIZE:
        return tree, lost
    kept: Tree = {}
    size = 0
    for place, (key, value) in enumerate(found):
        size += sum(map(len, key)) + len(orjson.dumps(value))
        if place >= MAX_RUN_KEYS or size > MAX_MERGED_SIZE:
            return kept, lost + len(found) - place
        put(kept, key, value)
    return kept, lost


def _places(ordered: Iterable[Voice]) -> Iterator[NamedPlace]:
    for voice in ordered:
        for member in ("project", "entity"):
            if value := voice.said.about.texts.get(member):
                yield NamedPlace(member, value, voice.file)


def _outcome(ordered: Sequence[Voice]) -> str:
    """How the newest start of an actor ended, given its writers in order."""
    roots = [voice for voice in ordered if not voice.child]
    if not roots:
        return ""
    newest: dict[object, Voice] = {}
    for voice in roots:
        if voice.start == roots[0].start:
            newest.setdefault(voice.seat, voice)  # the last life of each rank
    ends = {_end(voice) for voice in newest.values()}
    return FAILED if FAILED in ends else OPEN if OPEN in ends else FINISHED


def _end(voice: Voice) -> str:
    code = voice.said.about.exit_code
    if code is None:
        return voice.end
    return FAILED if code else FINISHED


def _changes(ordered: Sequence[Voice]) -> Iterator[RunChange]:
    """Of one actor, given its writers in order."""
    roots = [voice for voice in _saying(ordered) if not voice.child]
    if not roots:
        return
    seat = min(voice.seat for voice in roots)
    lives = [voice for voice in roots if voice.seat == seat]
    lives.sort(key=lambda voice: (voice.start, voice.t, voice.id, not voice.gone, voice.file))
    known: dict[str, Tree] = {part: {} for part in (*TRACED, OWN)}
    for voice in lives:
        said = voice.said
        for part, before in known.items():
            first = said.first(part)
            for key, old, new in changed(before, first, first):
                assert said.about.began is not None
                yield _change(voice, Edit(said.about.began, part, key, brief(old), brief(new)))
        yield from (_change(voice, edit) for edit in said.about.edits)
        for part, before in known.items():
            known[part] = said.own() if part == OWN else said.tree(part)
            lay_under(known[part], before)


def _change(voice: Voice, edit: Edit) -> RunChange:
    return RunChange(
        edit.t,
        voice.file,
        voice.actor,
        voice.replica,
        voice.rank,
        voice.start[1],
        edit.part,
        edit.key,
        edit.before,
        edit.after,
    )
