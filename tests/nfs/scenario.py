"""What has to hold on NFS, tried in the guest: `python -m tests.nfs.scenario CASE RESULTS`.

Writers log on one client, the sidecar reads on another, and what came of it is looked at on the server.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Row, Unit
from tests.endtoend.evidence import files_of, newest, revisions, shipped, state_of, stored
from tests.nfs.hosts import MOUNTED, SERVED, Host, RemoteSidecar, RemoteWorker
from tests.nfs.sight import Sight, delays_of
from tests.reference.reduction import exactly, final_rows

TTL_S = 6.0
GRACE_S = 5.0
SETTINGS = {"RLSHIP_LEASE_TTL_S": str(TTL_S), "RLSHIP_GRACE_S": str(GRACE_S), "RLSHIP_REVISE_S": "1"}
CUT_S = 8.0
PAUSE_S = 0.8
PATIENCE_S = 90.0
ROLLBACK_JOURNAL = b"\1\1"  # what SQLite's file says of itself; 2 would be write-ahead logging


class Course:
    """The experiment while the scenario goes on, and what was found, as (fact, figure) pairs."""

    def __init__(self, case: str) -> None:
        self.folder = f"job-v{case.replace(':', '-')}"
        self.experiment = SERVED / self.folder
        self.one, self.two = Host(1), Host(2)
        self.found: list[tuple[str, str]] = []
        self.workers: list[RemoteWorker] = []
        self.removed: dict[str, bytes] = {}
        (self.experiment / "rlship").mkdir(parents=True)
        self.sight = Sight(self.experiment)
        self.sidecar, self.start_s = self.watch(self.two)

    def watch(self, host: Host) -> tuple[RemoteSidecar, float]:
        """Start a sidecar on a host and wait until it owns the experiment; returns it, and how long that took."""
        began = time.monotonic()
        before = self.generation()
        sidecar = RemoteSidecar(host, self.folder, SETTINGS)
        sidecar.until(lambda: self.generation() > before, PATIENCE_S)
        return sidecar, time.monotonic() - began

    def generation(self) -> int:
        """How often the experiment changed its owner; -1 before the first."""
        leases = state_of(self.experiment).glob("lease.*")
        return max((int(path.suffix[1:]) for path in leases), default=-1)

    def work(self, host: Host, actor: str, **facts: object) -> RemoteWorker:
        """Start a worker on a host."""
        worker = RemoteWorker(host, self.folder, actor, **facts)
        self.workers.append(worker)
        return worker

    def row(self, actor: str, step: int) -> Row | None:
        """The newest row of a step."""
        return newest(shipped(self.experiment)).get(Unit(actor, "step", step))

    def until_row(self, actor: str, step: int, ready: Callable[[Row], bool] = lambda row: True) -> float:
        """Wait for a step's row, or for one that is as wanted; returns the seconds it took."""

        def there() -> bool:
            row = self.row(actor, step)
            return row is not None and ready(row)

        return self.sidecar.until(there, PATIENCE_S)

    def file_of(self, actor: str, rank: int | None = None) -> Path:
        """The one file of an actor, or that of a rank, on the server."""
        (path,) = self.files_of(actor, rank)
        return path

    def files_of(self, actor: str, rank: int | None) -> list[Path]:
        """All files of an actor, or of a rank, that are on the server by now."""
        found = (self.experiment / "rlship").glob(f"{actor}-*.jsonl")
        return [path for path in found if rank is None or f"-r{rank}-" in path.name]

    def tell(self, fact: str, figure: object = "") -> None:
        """Note a fact that was found to hold."""
        self.found.append((fact, str(figure)))
        print(f"{time.strftime('%X')}  {fact}: {figure}", flush=True)


def go(course: Course) -> None:
    """The whole scenario; an assertion that fails ends it."""
    one, two = course.one, course.two
    trainers = [course.work(one, "trainer", rank=rank, world=2) for rank in range(2)]
    rewards = [course.work(host, "reward", rank=rank, world=2) for rank, host in enumerate((one, two))]
    for worker in (*trainers, *rewards):
        worker.answer()
    course.sidecar.until_status(lambda status: True)
    course.sidecar.until(lambda: course.files_of("trainer", 0) != [], PATIENCE_S)  # the writer's thread makes it
    opens_on_the_client(course)
    ready = time.time()
    for number, worker in enumerate((*trainers, *rewards)):
        worker.tell("run", 0, 99, seed=number, pause=PAUSE_S)
    course.until_row("trainer", 25)
    sight = course.sight
    for actor in ("trainer", "reward"):
        steps = sight.steps(actor, ready)
        called = delays_of(sight.rows[unit] - sight.called[unit] for unit in steps)
        shown = delays_of(sight.rows[unit] - sight.shown[unit] for unit in steps)
        course.tell(f"{actor}: last barrier's call to row", called)
        course.tell(f"{actor}: last barrier visible on the server to row", shown)
        assert shown.median < 5, shown

    new_file(course)
    restarted_writer(course, trainers)
    unlinked_and_replaced(course)
    unlinked_under_its_writer(course)
    for number, worker in enumerate((*trainers, *rewards)):
        worker.tell("run", 100, 299, seed=number, pause=PAUSE_S)
    takeover(course)
    frozen_owner(course)
    network_cut(course)

    for worker in course.workers:
        if worker.process.poll() is None:
            worker.end()
    course.until_row("trainer", 299)
    course.until_row("reward", 299)
    time.sleep(GRACE_S)
    assert course.sidecar.stop() == 0, course.sidecar.said()
    exactly_once(course)
    one_clock(course)


def opens_on_the_client(course: Course) -> None:
    """How long the sidecar's client waits for the server when it opens a writer's file and closes it."""
    seen = MOUNTED / course.folder / "rlship" / course.file_of("trainer", 0).name
    found = json.loads(course.two.run(sys.executable, "-c", _OPENS, str(seen)))
    course.tell("an open and close of a file on a client, p50", f"{sorted(found)[len(found) // 2] * 1000:.2f} ms")


_OPENS = """
import json, os, sys, time
took = []
for _ in range(50):
    began = time.monotonic()
    os.close(os.open(sys.argv[1], os.O_RDONLY))
    took.append(time.monotonic() - began)
print(json.dumps(took))
"""


def one_clock(course: Course) -> None:
    """Server and clients have one clock here: what a writer measured has to allow for no difference at all."""
    found = []
    for path in (course.experiment / "rlship").glob("*.jsonl"):
        parsed = [json.loads(line) for line in path.read_text(errors="replace").split("\n")[:-1] if '"clock"' in line]
        found += [record for record in parsed if record.get("kind") == "clock"]
    assert found, "no writer measured its clock"
    wrong = [record for record in found if abs(record["offset"]) > record["err"]]
    assert not wrong, wrong
    same = sum("client_time" in record for record in found)
    course.tell("clock records, all with a true bound", f"{len(found)}, {same} of them with the kernel's own ticks")
    course.tell("their widest and narrowest bound, s", [max(r["err"] for r in found), min(r["err"] for r in found)])


def new_file(course: Course) -> None:
    """A writer that starts in the middle is found by listing the folder."""
    late = course.work(course.one, "late", rank=0, world=1)
    late.log({"loss": 1.0}, 0)
    late.barrier(0)
    late.flush()
    taken = course.until_row("late", 0)
    assert taken < 5, taken
    late.end()
    course.tell("a new file's first row after its flush", f"{taken:.2f} s")


def restarted_writer(course: Course, trainers: list[RemoteWorker]) -> None:
    """A rank is killed and comes back: its steps are revised with what the new attempt logs."""
    trainers[1].kill()
    time.sleep(GRACE_S)
    again = course.work(course.one, "trainer", rank=1, world=2, attempt=1)
    trainers[1] = again
    again.tell("run", 20, 99, seed=77, pause=0.0)
    taken = course.until_row("trainer", 20, lambda row: row.coverage.attempts == (0, 1))
    course.tell("a killed rank's step with the new attempt in it", f"{taken:.2f} s")


def unlinked_and_replaced(course: Course) -> None:
    """A file that is gone, and one that is another inode of the same content and more, under the reader: no trouble."""
    for actor in ("gone", "swapped"):
        worker = course.work(course.one, actor, rank=0, world=1)
        worker.log({"loss": 1.0}, 0)
        worker.barrier(0)
        worker.end()
    course.until_row("gone", 0)
    course.until_row("swapped", 0)
    gone, swapped = course.file_of("gone"), course.file_of("swapped")
    course.removed[gone.name] = gone.read_bytes()
    course.one.run("rm", str(MOUNTED / course.folder / "rlship" / gone.name))
    seen = MOUNTED / course.folder / "rlship" / swapped.name
    late = json.dumps({"t": time.time(), "step": 1, "m": {"loss": 2.0}})
    course.one.run("sh", "-c", f"cp {seen} {seen}.new && echo '{late}' >> {seen}.new && sync && mv {seen}.new {seen}")
    taken = course.until_row("swapped", 1)
    course.tell("a row of what a replaced file has more", f"{taken:.2f} s")
    told = course.sidecar.until_status(lambda status: bool(note_on(status, gone.name)))
    course.tell("an unlinked file is reported", note_on(told, gone.name))
    assert course.row("gone", 0) is not None


def note_on(status: Status, file: str) -> str:
    """What the status says about a file."""
    return next((writer.note for writer in status.writers if writer.file == file), "")


def unlinked_under_its_writer(course: Course) -> None:
    """A file removed by the writer's own client lives on under another name: the writer notices and begins anew."""
    worker = course.work(course.one, "silly", rank=0, world=1)
    worker.log({"loss": 1.0}, 0)
    worker.barrier(0)
    worker.flush()
    course.until_row("silly", 0)
    file = course.file_of("silly")
    course.removed[file.name] = file.read_bytes()
    course.one.run("rm", str(MOUNTED / course.folder / "rlship" / file.name))
    assert list(file.parent.glob(".nfs*"))
    began = time.monotonic()
    step = 0
    while not list(file.parent.glob("silly-*.jsonl")):
        step += 1
        worker.log({"loss": 1.0}, step)
        worker.barrier(step)
        worker.flush()
        time.sleep(0.5)
        assert time.monotonic() - began < 40, "the writer goes on in a file that cannot be seen"
    taken = time.monotonic() - began
    course.until_row("silly", step)
    (anew,) = (path for path in file.parent.glob("silly-*.jsonl"))
    assert anew.name != file.name
    lost = sum(json.loads(line)["n"] for line in anew.read_bytes().splitlines() if b'"gap"' in line)
    worker.end()
    course.removed[anew.name] = anew.read_bytes()
    course.tell("a file unlinked under its own writer is replaced after", f"{taken:.1f} s")
    course.tell("… and lines that can no longer be seen are reported", f"{lost} lines")
    assert lost > 0


def takeover(course: Course) -> None:
    """kill -9 of the sidecar: one on the other host takes over once the lease has run out, and no sooner."""
    course.sidecar.kill()
    course.sidecar, taken = course.watch(course.one)
    assert taken > TTL_S, taken
    before = len(shipped(course.experiment))
    course.sidecar.until_status(lambda status: status.rows > before)
    course.tell(f"takeover on another host (ttl {TTL_S:g} s, start {course.start_s:.0f} s) after", f"{taken:.1f} s")


def frozen_owner(course: Course) -> None:
    """An owner that stood still while another took over ends by itself, and wrote nothing more."""
    frozen = course.sidecar
    frozen.process.send_signal(signal.SIGSTOP)
    course.sidecar, _ = course.watch(course.two)
    before = len(shipped(course.experiment))
    course.sidecar.until_status(lambda status: status.rows > before)
    frozen.process.send_signal(signal.SIGCONT)
    code = frozen.process.wait(60)
    assert code == 5, (code, frozen.said())
    course.tell("an owner that thaws after a takeover ends with exit code", code)


def network_cut(course: Course) -> None:
    """The writers' client loses the server for a while: no call waits for it, and the rows come afterwards."""
    worker = course.work(course.one, "cut", rank=0, world=1)
    worker.log({"loss": 1.0}, 0)
    worker.barrier(0)
    worker.flush()
    course.until_row("cut", 0)
    course.one.cut()
    began = time.monotonic()
    worker.tell("run", 1, 20, seed=5, pause=2 * CUT_S / 20)
    time.sleep(CUT_S)
    course.one.join()
    slowest = worker.answer()
    assert slowest < 1.0, slowest
    course.until_row("cut", 20)
    course.tell(f"server unreachable for {CUT_S:g} s: slowest step of the job", f"{slowest * 1000:.1f} ms")
    course.tell("… and the last row after", f"{time.monotonic() - began:.1f} s")
    worker.end()


def exactly_once(course: Course) -> None:
    """Every row number once, the rows in the store and in the sink alike, the newest ones as the files say."""
    rows = shipped(course.experiment)
    assert [row.arrival.row_number for row in rows] == list(range(len(rows)))
    state = state_of(course.experiment)
    store = state / f"store.{course.generation()}.db"
    assert store.read_bytes()[18:20] == ROLLBACK_JOURNAL and not list(state.glob("*-wal"))
    assert [row.to_json() for row in rows] == [row.to_json() for row in stored(course.experiment)]
    expected = final_rows({**files_of(course.experiment), **course.removed})
    kept = {unit: row for unit, row in newest(rows).items() if unit.actor != "silly"}
    wanted = exactly({unit: row for unit, row in expected.items() if unit.actor != "silly"})
    got = exactly(kept)
    assert got == wanted, "\n".join(
        f"{name}:\n  got    {got.get(name)}\n  wanted {wanted.get(name)}"
        for name in sorted({*got, *wanted})
        if got.get(name) != wanted.get(name)
    )
    revised = sum(row.arrival.revision > 0 for row in rows)
    course.tell("the store is one file with a rollback journal", store.name)
    course.tell("rows equal to the reference, each number once", f"{len(rows)} rows, {revised} of them revisions")
    assert len(revisions(rows, "trainer", 20)) > 1


@contextmanager
def course_of(case: str) -> Iterator[Course]:
    """A Course whose processes are gone afterwards."""
    course = Course(case)
    try:
        yield course
    except Exception:
        print(course.sidecar.said(), flush=True)
        raise
    finally:
        course.sight.stop()
        for worker in course.workers:
            if worker.process.poll() is None:
                worker.kill()
        course.sidecar.close()


def main(case: str, results: Path) -> int:
    """Run the scenario and leave what was found, and what failed, as JSON in `results`."""
    failure, found = "", []
    (results / f"clock-{case}-began").write_text(str(time.monotonic()))
    try:
        with course_of(case) as course:
            found = course.found
            go(course)
    except Exception:
        failure = traceback.format_exc()
        print(failure, flush=True)
    (results / f"clock-{case}-ended").write_text(str(time.monotonic()))
    (results / f"found-{case}.json").write_text(json.dumps({"found": found, "failure": failure}))
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
