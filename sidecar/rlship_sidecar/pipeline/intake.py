"""The files of one experiment: which there are, which have grown, and what their next lines say."""

from __future__ import annotations

import errno
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from rlship_formats.records import MAX_LINE_BYTES
from rlship_sidecar.decode.known import known
from rlship_sidecar.decode.lines import Batch, Dead, excerpt_of, too_long
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.pipeline.looking import CLOSED_S, OPENS_PER_S, SETTLED_S, Turns
from rlship_sidecar.pipeline.rereading import fetch
from rlship_sidecar.pipeline.source import NOT_THERE, Fetched, Source, new_source, removed
from rlship_sidecar.plainfiles import NotAFile
from rlship_sidecar.store.changes import SavedBlock
from rlship_sidecar.tail.listing import WRITERS_FOLDER, Folder, is_foreign
from rlship_sidecar.tail.looks import Looks, Repeated
from rlship_sidecar.tail.newcomers import Newcomers
from rlship_sidecar.tail.opening import Opener
from rlship_sidecar.tail.tail import MAX_WAIT_S, NO_ANSWER, START, Descriptors, Glance, Position, Replaced, Tail
from rlship_sidecar.tally import Tally

ROUND_STEPS = 60  # that one look takes in while history is read: not quite as many as there are units that keep values
GATHER_S = 0.02  # how long a tick waits for looks that are under way
HELD_BYTES = 1 << 25  # of lines that looks may bring along at once
LOOK_BYTES = 1 << 16  # of one file: what a writer adds between two looks, not its history
FETCHED_AT_ONCE = 128  # files of which blocks are read again
NUL_WAIT_S = 30.0  # how long NUL bytes on a network filesystem count as not there yet

_ALL = 1 << 62

Apply = Callable[[Source, Batch, float], None]


class Taken(NamedTuple):
    """The next lines of a file, decoded elsewhere: up to `position`, after which there are more or not. `batch` None:
    they are beyond the step up to which lines are wanted.
    """

    batch: Batch | None
    position: Position
    more: bool


class Ahead(Protocol):
    """Decodes files ahead, elsewhere."""

    def want(self, group: Sequence[Source]) -> None:
        """Lines of these files will be asked for next, in this order."""

    def take(self, source: Source, limit: int) -> Taken | None:
        """The next lines of a file up to about step `limit`, once they are there; its decoder has followed. None: they
        are not decoded elsewhere.
        """


@dataclass(frozen=True, slots=True)
class Access:
    """How files may be read: at most `max_open` stay open; on a network filesystem `looks` looks at many at once, at
    most `opens_per_s` of them a second, and every `poll_s` at each where that is given.
    """

    max_open: int = 256
    looks: Looks | None = None
    opens_per_s: float = OPENS_PER_S
    poll_s: float | None = None


class Intake:
    """`sources` are all files ever read, by name.

    `most_steps`: that a look at a file takes in now. `room`: how many units of an actor may keep their values yet.
    `replaced` are files that do not hold any more what was read of them; they are not read on. `holding`: some file
    has lines with NUL bytes that are waited for. `tally` counts what was read, `lines` all lines of it.
    """

    def __init__(self, directory: str, filesystem: Filesystem, access: Access) -> None:
        self._given = directory, filesystem, access
        self.files = Descriptors(access.max_open, keep=filesystem.local, root=directory, looks=access.looks)
        self._opener = Opener(directory, self.files)
        self.folder = self._opener.folder
        self.sources: dict[str, Source] = {}
        self._odd: dict[str, str] = {}
        self.replaced: list[Source] = []
        self.holding = False
        self.tally = Tally()
        self.lines = 0
        self.ahead: Ahead | None = None
        self.schemas = Schemas(known)
        self.most_steps = ROUND_STEPS
        self.room: Callable[[str], int] = lambda actor: ROUND_STEPS
        self._went_abreast: set[str] = set()  # actors
        self._unread: set[str] = set()  # files of a local filesystem of which more is left, looked at or not
        self._turns: Turns | None = None
        if not filesystem.local and access.looks is not None:
            self._turns = Turns(access.looks, access.opens_per_s, access.poll_s)
        folder = Folder(self.folder, directory, local=filesystem.local)
        self._listing = Repeated(folder.look, self.files.looks)
        self._newcomers = Newcomers(self._opener, local=filesystem.local)

    def close(self) -> None:
        """Release the files."""
        self.files.close()
        self._opener.close()

    def anew(self) -> Intake:
        """One that knows no file yet, in place of this one, which is closed."""
        self.close()
        anew = Intake(*self._given)
        anew.tally, anew.room = self.tally, self.room
        anew.lines = self.lines
        return anew

    @property
    def oddities(self) -> dict[str, str]:
        """Why other entries of the folders are not among the files, by name."""
        return {**self._odd, **self._newcomers.oddities}

    @property
    def torn(self) -> list[str]:
        """The foreign files that are half written, and of which nothing can be read."""
        return sorted(self._newcomers.torn)

    def tail(self, name: str) -> Tail:
        """A reader of the file of this name."""
        return self._opener.tail(name)

    @property
    def folders(self) -> list[str]:
        """Where files may change or appear."""
        return [self.folder, *self._newcomers.folders]

    @property
    def foreign_paths(self) -> list[str]:
        """Where the files of other frameworks are, and those that may turn out to be such."""
        names = [name for name, source in self.sources.items() if is_foreign(name) and not source.gone]
        return sorted({self._opener.path(name) for name in (*names, *self._newcomers.unrecognised)})

    def limit_files(self, limit: int) -> None:
        """Keep at most `limit` files open."""
        directory, filesystem, access = self._given
        self._given = directory, filesystem, replace(access, max_open=limit)
        self.files.limit_to(limit)

    def hinted(self, changed: Mapping[str, Iterable[str]]) -> set[str]:
        """Names of files, given which changed in which folder. One that is not known yet is among them."""
        names = set(changed.get(self.folder, ()))
        for folder in self._newcomers.folders:
            for file in changed.get(folder, ()):
                names.update(self._newcomers.names_of(os.path.join(folder, file)))
        return names

    def news(self) -> list[str]:
        """What a person should hear of files that are left alone."""
        return self._newcomers.news()

    def formats(self) -> Counter[str]:
        """How many foreign files there are of each format."""
        return self._newcomers.formats

    def discover(self, now: float, *, force: bool) -> None:
        """Take in new files, if it is time to list the folders, and what listings found that were under way."""
        self._discover_foreign(now, force=force)
        try:
            listed = self._listing(now, force=force, wait_s=GATHER_S)
        except OSError as error:
            if not (isinstance(error, FileNotFoundError) and self.sources and self._newcomers.alone(self.sources)):
                link = isinstance(error, NotADirectoryError)
                self._odd[WRITERS_FOLDER] = "a link or no folder: not followed" if link else words(error)
            return
        if hung_s := self._listing.hung_s(time.monotonic()):
            self._odd[WRITERS_FOLDER] = f"{NO_ANSWER}: listing it has taken {hung_s:.0f} s so far"
        elif listed is None:
            self._odd.pop(WRITERS_FOLDER, None)
        if listed is None:
            return
        self._odd = dict.fromkeys(listed.odd, "not a regular file, or its name is not UTF-8")
        if self.files.keep:  # on a network filesystem no file stays open, so the next look finds out
            for there in self.sources.values():
                there.sightings.unlisted = not (there.gone or is_foreign(there.name) or there.name in listed.files)
        for name, inode in listed.files.items():
            source = self.sources.get(name)
            if source is None:
                source = self.add(new_source(name, self.tail(name), self.schemas), now)
            _note(source, inode)

    def add(self, source: Source, now: float) -> Source:
        """A file, new or known."""
        self.sources[source.name] = source
        if self._turns is not None and not source.gone:
            self._turns.schedule.add(source, now)
        return source

    def _discover_foreign(self, now: float, *, force: bool) -> None:
        for name, tail in self._newcomers.look(now, force=force, wait_s=GATHER_S).items():
            source = self.sources.get(name)
            if source is None:
                self.add(new_source(name, tail, self.schemas), now)
        for name, inode in self._newcomers.inodes.items():
            if name in self.sources:
                _note(self.sources[name], inode)

    @property
    def next_look(self) -> float:
        """When the next file is due, in monotonic seconds; infinite where all are looked at together."""
        if self._turns is None:
            return math.inf
        return time.monotonic() if self._turns.is_working or self.is_listing else self._turns.next_due()

    @property
    def is_listing(self) -> bool:
        """True while a thread lists a folder, unless it hangs; `discover` takes in what it finds."""
        now = time.monotonic()
        return self._listing.is_working(now) or self._newcomers.is_working(now)

    def grew(self) -> bool:
        """True if a file is larger than at the last look, or does not answer. Looks at all."""
        looks, found = self.files.looks, []
        for source in self.sources.values():
            if source.gone:
                continue
            if looks is None:
                try:
                    if source.tail.size() > max(source.size, source.read):
                        return True
                except OSError:  # the next look reports what is wrong with it
                    continue
            else:
                tail = source.tail
                found.append((source, looks.begin(partial(tail.look, START, 0, check=False, hold_nul=False))))
        if looks is not None and not looks.wait([look for _, look in found], math.inf):
            return True
        sizes = ((source, look.result.size) for source, look in found if look.result is not None)
        return any(size > max(source.size, source.read) for source, size in sizes)

    def fetched(
        self, sources: Iterable[Source], blocks_of: Callable[[Source], Sequence[SavedBlock]]
    ) -> Iterator[Source]:
        """These files one after the other. On a network filesystem blocks of many are read at once, before their turn:
        what reads them again finds them in `Source.fetched` meanwhile.
        """
        left = iter(sources)
        while some := list(islice(left, FETCHED_AT_ONCE)):
            if self._turns is not None:
                self._fetch([source for source in some if not source.gone], blocks_of)
            try:
                yield from some
            finally:
                for source in some:
                    source.fetched = None

    def _fetch(self, sources: Iterable[Source], blocks_of: Callable[[Source], Sequence[SavedBlock]]) -> None:
        looks, found = self.files.looks, []
        assert looks is not None
        for source in sources:
            if blocks := blocks_of(source):
                source.fetched = Fetched({}, OSError(errno.ETIMEDOUT, NO_ANSWER, source.tail.path))
                if not source.tail.is_hanging:
                    found.append((source, looks.begin(partial(fetch, source.tail, source.position, blocks))))
        looks.wait([look for _, look in found], math.inf)
        for source, look in found:
            if look.error is not None:
                raise look.error
            if look.result is None:
                source.tail.hangs(look)
            else:
                source.fetched = look.result

    def replaced_of(self, known: Iterable[tuple[str, Position]]) -> list[str]:
        """The files, by name and position, that no longer hold what was read of them. One that does not answer or
        cannot be read now is not among them.
        """
        looks = self.files.looks
        if looks is None:
            return [name for name, mark in known if _is_replaced(self.tail(name), mark)]
        tails = [(name, self.tail(name), mark) for name, mark in known]
        asked = [(name, tail, looks.begin(partial(_is_replaced, tail, mark))) for name, tail, mark in tails]
        looks.wait([look for _, _, look in asked], math.inf)
        for _, tail, look in asked:
            if not look.is_done:
                tail.hangs(look)
            elif look.error is not None:
                raise look.error
        return [name for name, _, look in asked if look.result]

    def read(self, now: float, names: Iterable[str], apply: Apply, *, end: bool) -> bool:
        """One look at every file that may have grown; within an actor the hindmost file first, the others only as far
        as it got. Returns whether there is more to read at once.

        On a network filesystem, the looks at files that are due now begin, and what earlier ones found is read.
        """
        self.holding = False
        if self._turns is not None and not end:
            grown = self._look_in_turn(now)
        else:
            grown = self._look_at(names, now, end=end)
        groups: dict[str, list[Source]] = {}
        for source in grown:
            actor = source.writer.open.actor if source.writer is not None else ""
            groups.setdefault(actor, []).append(source)
        more = end and self._turns is not None and self._turns.is_waiting
        for actor, group in groups.items():
            group.sort(key=lambda source: source.at_step)
            limit = _ALL
            abreast = self._pace(actor, group)
            if self.ahead is not None:
                self.ahead.want(group)
            for place, source in enumerate(group):
                if source.at_step > limit:
                    more = True
                    self._left(source, left=True)
                    continue
                before = source.read
                left = self._take(source, limit, now, apply)
                self._left(source, left=left)
                if not (left or source.problem):
                    source.sightings.found_all = now
                if end:
                    self._note_end(source, left=left)
                more = more or left
                # What others decoded is taken a stretch at a time: none may go far beyond the hindmost file even then.
                ahead = self.ahead is not None and source.read > before
                if place == 0 and (left or ahead) and source.at_step >= 0:
                    limit = source.at_step
            if abreast and _abreast(group):
                self._went_abreast.add(actor)
            else:
                self._went_abreast.discard(actor)
        if self._turns is not None:
            self._turns.plan(now)
        return more

    def _left(self, source: Source, *, left: bool) -> None:
        """Whether more of a file is to be read, without another look at it or another event."""
        source.sightings.waits = left and not source.problem
        if self._turns is not None:
            self._turns.left(source, left=left)
        elif left:
            self._unread.add(source.name)
            source.size = max(source.size, source.read + 1)
        else:
            self._unread.discard(source.name)

    def _pace(self, actor: str, group: Sequence[Source]) -> bool:
        """Decide how many steps are taken in: half as many where some files go or went faster than others, as every
        step that any of them has gone to is open then. Returns whether all are at one step.
        """
        abreast = _abreast(group)
        alike = len(group) == 1 or (abreast and actor in self._went_abreast)
        self.most_steps = ROUND_STEPS if alike and self.room(actor) >= ROUND_STEPS else ROUND_STEPS // 2
        return abreast

    def _note_end(self, source: Source, *, left: bool) -> None:
        """A file that is read to its end gets no more lines: its writer is not waited for any more."""
        if source.writer is not None:
            source.writer.ended = not (left or source.held_since is not None or source.problem)

    def _look_at(self, names: Iterable[str], now: float, *, end: bool) -> list[Source]:
        """Look at these files now. Returns those of which there may be more to read."""
        every = names is self.sources
        sources = []
        # In one order each time: what was found out of many ranks in their order is found again (`Roster.order`).
        for name in names if every else sorted(self._unread.union(names)):
            source = self.sources.get(name)
            if source is not None and not (source.gone or source.unrestored is not None or _rests(source, now, end)):
                sources.append(source)
        room = 0 if self.files.keep else HELD_BYTES // max(1, len(sources))
        if self._turns is not None:
            self._turns.begin([(source, self._looking(source, room, now, check=end)) for source in sources])
            self._turns.wait(MAX_WAIT_S)
            return self._seen(now, end=end)
        grown = []
        for source in sources:
            # Where a file is said to have changed, reading tells at once how far it goes.
            if self.files.keep and not (every or source.moved or source.problem) and type(source.tail) is Tail:
                source.pace.hinted = True
                grown.append(source)
                continue
            left = self._look(source, room, now, check=end)
            if left:
                grown.append(source)
            elif end and left is not None:
                self._note_end(source, left=False)
        return grown

    def _look(self, source: Source, room: int, now: float, *, check: bool) -> bool | None:
        """Look at a file now. Returns whether there is more of it to read; None if it cannot be read."""
        try:
            glance = self._looking(source, room, now, check=check)()
            if source.moved and glance.size <= source.read:
                # All of the file that had the name is read; what has it now is found out by the position.
                self.files.forget(source.tail.path)
                source.moved = False
                glance = self._looking(source, room, now, check=True)()
        except OSError as error:
            self._note_look(source, now)
            self._failed(source, error)
            return None
        source.pace.piece = glance.piece
        return self._saw(source, glance.size, now)

    def _look_in_turn(self, now: float) -> list[Source]:
        """Begin to look at the files that are due. Returns those of which there is more to read, as far as that is
        known.
        """
        turns = self._turns
        assert turns is not None
        due = turns.due(self.sources, now)
        room = HELD_BYTES // max(1, len(due))
        turns.begin([(source, self._looking(source, room, now, check=source.moved)) for source in due])
        turns.wait(GATHER_S)
        return self._seen(now, end=False)

    def _holds_nul(self, source: Source, now: float) -> bool:
        return not self.files.keep and not (source.held_since is not None and now - source.held_since >= NUL_WAIT_S)

    def _looking(self, source: Source, room: int, now: float, *, check: bool) -> Callable[[], Glance]:
        """The look at a file, which may bring along `room` bytes."""
        room = 0 if self.ahead is not None else min(LOOK_BYTES, room)
        return partial(source.tail.look, source.position, room, check=check, hold_nul=self._holds_nul(source, now))

    def _seen(self, now: float, *, end: bool) -> list[Source]:
        """Take in what looks found that have returned. Returns the files of which there is more to read."""
        turns = self._turns
        assert turns is not None
        for source, look in turns.returned():
            if isinstance(look.error, OSError):
                self._note_look(source, now)
                self._failed(source, look.error)
            elif look.error is not None:
                raise look.error
            elif look.result is not None:
                if source.moved and look.result.size <= source.read:
                    source.moved = False
                source.pace.piece = look.result.piece
                if self._saw(source, look.result.size, now):
                    turns.left(source, left=True)
                elif end:
                    self._note_end(source, left=False)
        for source, look, hung_s in turns.hanging():
            source.problem = f"{NO_ANSWER}: a look at it has taken {hung_s:.0f} s so far"
            source.sightings.waits = False
            source.tail.hangs(look)
        return turns.unread()

    def _note_look(self, source: Source, now: float) -> None:
        if not source.pace.looked_at:
            source.pace.grown_at = now  # it is new: its writer may be about to write
        source.pace.looked_at = now

    def _saw(self, source: Source, size: int, now: float) -> bool:
        """Take in the size that was found. Returns whether there is more to read."""
        self._note_look(source, now)
        source.size, source.problem, read = size, "", source.read
        if size < read:
            source.problem = f"shorter than what was read of it ({size} < {read} bytes): not read further"
            return False
        source.sightings.missed_at = None
        if size > read:
            source.sightings.waits = True
            source.pace.grew(now)
            return True
        source.sightings.found_all, source.sightings.waits = now, False
        return False

    def _failed(self, source: Source, error: OSError) -> None:
        self.files.forget(source.tail.path)
        source.sightings.waits = False
        source.problem = "" if removed(source, error) else words(error)
        if isinstance(error, Replaced):
            self.replaced.append(source)

    def _take(self, source: Source, limit: int, now: float, apply: Apply) -> bool:
        """Read and apply one piece of a file. Returns whether complete lines are left in it, as far as one can know."""
        if self.ahead is not None and (taken := self.ahead.take(source, limit)) is not None:
            if taken.batch is not None:
                before = source.read
                source.advance(taken.batch, taken.position)
                self._count(source, taken.batch, taken.position.offset - before)
                apply(source, taken.batch, now)
            return taken.more
        start, pace = source.position, source.pace
        piece, pace.piece = pace.piece, None
        size = None if pace.hinted else source.size
        pace.hinted = False
        try:
            if piece is not None and piece.start.offset == start.offset:
                piece = source.tail.translated(piece)
            else:
                piece = source.tail.read(start, source.piece_bytes, size=size, hold_nul=self._holds_nul(source, now))
        except OSError as error:
            self._note_look(source, now)
            self._failed(source, error)
            return False
        if size is None and not self._saw(source, piece.size, now):
            return piece.size < start.offset and self._look(source, 0, now, check=True) is True
        if piece.end == start.offset:
            if piece.held:
                self._hold(source, now)
            elif source.tail.searching:
                source.problem = f"a line of more than {MAX_LINE_BYTES >> 20} MiB begins at byte {source.read}"
            elif piece.hole:
                source.problem = f"NUL bytes from byte {source.read} on, to the end: what was written there is lacking"
            elif source.moved and not piece.more:
                source.size = source.read  # half a line is all that is left of the file that had the name
                self.files.forget(source.tail.path)
            return piece.more
        batch = source.decoder.decode(
            piece.lines, piece.offsets, max_steps=self.most_steps, last_step=limit, together=piece.together
        )
        whole = batch.consumed == len(piece.lines)
        end = piece.end if whole else piece.begin_of(batch.consumed)
        # Read about as much next time as could be used this time, and more where there was more to use.
        used = end - start.offset
        source.wants(2 * used if whole and piece.more else used)
        for offset, excerpt in piece.too_long:
            if offset < end:
                batch.dead.append(too_long(offset, excerpt))
        batch.dead += [Dead(offset, why, excerpt_of(raw)) for offset, why, raw in piece.dead if offset < end]
        source.held_since = None
        source.advance(batch, piece.position(end))
        apply(source, batch, now)
        self._count(source, batch, end - start.offset)
        if piece.held and whole:
            self._hold(source, now)
        return not whole or piece.more

    def _count(self, source: Source, batch: Batch, read_bytes: int) -> None:
        self.lines += batch.consumed
        actor = source.writer.open.actor if source.writer is not None else ""
        self.tally.took(actor, batch.consumed, read_bytes)

    def _hold(self, source: Source, now: float) -> None:
        if source.held_since is None:
            source.held_since = now
        source.problem = f"NUL bytes from byte {source.read} on: waiting for what belongs there"
        self.holding = True


def _rests(source: Source, now: float, end: bool) -> bool:
    """Whether no look at a file is due: its writer said that it is done, or it has none and does not grow either."""
    writer, looked_at = source.writer, source.pace.looked_at
    if end or not looked_at or now - looked_at >= CLOSED_S:
        return False
    done_s = now - source.pace.grown_at if writer is None else now - writer.line_at if writer.closed else 0.0
    return done_s > SETTLED_S


def _is_replaced(tail: Tail, mark: Position) -> bool:
    try:
        tail.check(mark)
    except Replaced:
        return True
    except OSError:
        return False
    return False


def _abreast(group: Iterable[Source]) -> bool:
    return len({source.at_step for source in group}) == 1


def _note(source: Source, inode: int) -> None:
    """A file was listed with this inode."""
    source.moved = source.moved or source.inode not in (0, inode)
    source.inode = inode


def words(error: OSError) -> str:
    """What is wrong with a file, for people."""
    if isinstance(error, NotAFile) or error.errno == errno.ENXIO:  # a socket
        return "not a regular file"
    if error.errno == errno.ELOOP:
        return "a link, which is not followed"
    if isinstance(error, FileNotFoundError):
        return NOT_THERE
    return error.strerror or type(error).__name__
