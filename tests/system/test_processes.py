"""Whose processes are whose: trees, containers, and writers found by what they have open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship.system.attribution import Attribution, Share, under
from rlship.system.processes import Processes, Use, in_first_pid_namespace, open_files
from rlship.system.readings import GpuProcess
from rlship_agents.sysmon.crew import Crew, Member, Scout, first_line, member_of
from rlship_agents.sysmon.post import rival
from rlship_agents.sysmon.residents import Residents
from tests.kit.waiting import wait_until

BOOT = 1_700_000_000
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Proc:
    """A /proc that a test fills."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        (root / "proc/stat").write_text(f"cpu 1 2 3\nbtime {BOOT}\n")

    def add(
        self,
        pid: int,
        parent: int = 1,
        *,
        started: float = 10,
        inner: int | None = None,
        opened: tuple[str, ...] | None = None,
        cpu_s: float = 0,
        pages: int = 0,
        state: str = "S",
    ) -> None:
        """A process; `opened` None: one may not look at what it has open."""
        folder = self.root / f"proc/{pid}"
        folder.mkdir(exist_ok=True)
        fields = [state, str(parent), *["0"] * 9, str(int(cpu_s * TICKS)), "0", *["0"] * 6]
        fields += [str(int(started * TICKS)), "0", str(pages), "0"]
        (folder / "stat").write_text(f"{pid} (a (odd) name) {' '.join(fields)}\n")
        (folder / "status").write_text(f"Name:\tx\nNSpid:\t{pid}{'' if inner is None else f' {inner}'}\n")
        if opened is not None:
            (folder / "fd").mkdir(exist_ok=True)
            for number, target in enumerate(opened):
                (folder / "fd" / str(number)).symlink_to(target)

    def processes(self) -> Processes:
        """Looked at once."""
        found = Processes(root=str(self.root))
        found.look(0.0)
        return found


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """No process yet."""
    return Proc(tmp_path)


def test_trees_stop_at_other_writers(proc: Proc) -> None:
    """A launcher with two workers, each with children: what is below a worker is its own, and no more."""
    for pid, parent in ((10, 1), (20, 10), (21, 20), (22, 21), (30, 10), (31, 30)):
        proc.add(pid, parent)
    found = proc.processes()
    assert sorted(found.tree(20, {20, 30})) == [20, 21, 22]
    assert sorted(found.tree(10, {20, 30})) == [10]
    assert sorted(found.tree(10)) == [10, 20, 21, 22, 30, 31]
    assert found.above(22, {20, 30, 10}) == 20
    assert found.above(22, {30}) is None
    assert not found.alive(99)


def test_what_a_tree_uses(proc: Proc) -> None:
    """CPU seconds and resident memory of all of them; a child that is found late does not count what it used before."""
    proc.add(20, cpu_s=5, pages=100)
    proc.add(21, 20, cpu_s=1, pages=10)
    found = proc.processes()
    first = found.use([20, 21])
    assert (first.memory, first.count) == (110 * PAGE, 2)
    proc.add(20, cpu_s=5.5, pages=100)
    proc.add(22, 20, cpu_s=100)
    proc.add(23, 20, state="Z", pages=1)
    assert found.use([20, 21, 22, 23, 404]).since(first) == pytest.approx(0.5)


def test_a_pid_that_is_used_again_is_another_process(proc: Proc) -> None:
    """CPU of another process under the same pid does not count as the first one's."""
    proc.add(20, cpu_s=5)
    found = proc.processes()
    before = found.use([20])
    proc.add(20, started=99, cpu_s=7)
    assert found.use([20]).since(before) == 0


def test_looking_is_bounded(proc: Proc) -> None:
    """All processes are listed anew only after a while, or when that is forced."""
    found = proc.processes()
    proc.add(77)
    assert not found.look(0.5)
    assert not found.alive(77)
    assert found.look(0.6, force=True)
    assert found.alive(77)
    assert found.look(100.0)


def test_shares_of_one_process() -> None:
    """CPU comes with the second look; memory of several GPUs adds up, use of several is a list; unknown is absent."""
    share, use = Share(), Use()
    use.cpu_s, use.memory, use.count = {(1, 1): 2.0}, 500, 1
    on = [GpuProcess("0", 1, 70, 0.5), GpuProcess("0", 2, 30, 0.75), GpuProcess("1", 1, None, 0.25)]
    assert share.figures(1.0, use, on) == {"host_mem": 500, "gpu_mem": 100, "gpu_util": [1.0, 0.25]}
    later = Use()
    later.cpu_s, later.memory, later.count = {(1, 1): 5.0}, 600, 1
    found = share.figures(3.0, later, [GpuProcess("1", 1, None, None)])
    assert found == {"host_mem": 600, "cpu": 1.5}
    assert under("proc/a", found) == {"proc/a/cpu": 1.5, "proc/a/host_mem": 600}
    assert share.figures(4.0, Use(), []) == {}


def namespace(root: Path, monkeypatch: pytest.MonkeyPatch, *, first: bool) -> None:
    """Make `root` look like the machine's first pid namespace, or another."""
    monkeypatch.setattr("rlship.system.attribution.in_first_pid_namespace", lambda _: first)


def test_gpu_processes_of_the_same_namespace(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on a GPU belongs to the writer that it is or that is above it, a stranger to no writer."""
    namespace(proc.root, monkeypatch, first=True)
    for pid, parent in ((20, 1), (21, 20), (40, 1)):
        proc.add(pid, parent)
    whose = Attribution(proc.processes(), root=str(proc.root))
    assert [whose.owner(pid, {20, 30}) for pid in (20, 21, 40, 999)] == [20, 20, None, None]


def test_gpu_processes_seen_from_a_container(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the driver's pids are the host's: they count only where that process has a GPU open here."""
    namespace(proc.root, monkeypatch, first=False)
    proc.add(20, opened=("/dev/null", "/dev/nvidia0"))
    proc.add(21, 20, opened=("/dev/null",))
    proc.add(22, 20, opened=None)
    whose = Attribution(proc.processes(), root=str(proc.root))
    assert not whose.trusted
    assert [whose.owner(pid, {20}) for pid in (20, 21, 22, 5555)] == [20, None, None, None]


def test_namespaces_here() -> None:
    """Whether this process is in the first namespace shows in the kernel's number of it."""
    assert in_first_pid_namespace() == (os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC)
    assert not in_first_pid_namespace("/nowhere")


def member(pid: int, *, host: str = "n1", actor: str = "trainer", rank: int = 0, t: float = BOOT + 20) -> Member:
    """A writer with a file of its own."""
    return Member(
        f"id{pid}{host}", actor, "0", rank, host, pid, t, f"{actor}-0-r{rank}-{host}-{pid}-id{pid}{host}.jsonl"
    )


def test_writers_are_found_by_their_open_files(proc: Proc) -> None:
    """The process of the writer's pid that has its file open is it, in a container under another pid and host name."""
    here, pod, elsewhere = member(20), member(7, host="pod-3", rank=1), member(20, host="n2", rank=2)
    proc.add(20, opened=(f"/mnt/{here.file}",))
    proc.add(500, inner=7, opened=(f"/data/rlship/{pod.file}", "/dev/nvidia0"))
    proc.add(600, inner=7, opened=("/other",))
    proc.add(7, opened=("/x",))
    found = Residents(proc.processes(), "n1", root=str(proc.root)).find([here, pod, elsewhere])
    assert found == {20: [here], 500: [pod]}


def test_writers_whose_files_cannot_be_seen(proc: Proc) -> None:
    """Without a look at open files the host's name and the start of the process decide; a later process of the same
    pid is another one, and a process in a container is not taken for one outside.
    """
    early, late, nested = member(20), member(21), member(22)
    proc.add(20, started=10)
    proc.add(21, started=9_000)
    proc.add(22, started=10, inner=4)
    found = Residents(proc.processes(), "n1", root=str(proc.root)).find([early, late, nested])
    assert found == {20: [early]}


def test_one_process_may_be_several_writers(proc: Proc) -> None:
    """A process that logs as two actors is both."""
    one, two = member(20), member(20, actor="buffer")
    proc.add(20, opened=(one.file, two.file))
    assert Residents(proc.processes(), "n1", root=str(proc.root)).find([one, two]) == {20: [one, two]}


def test_of_two_agents_the_later_gives_way() -> None:
    """An agent that comes to a node that is logged already, or began at the same time with a greater id, hears of the
    other; the first one stays.
    """
    first, second = member(20, actor="node", t=100.0), member(21, actor="node", t=100.0)
    alive: Mapping[int, list[Member]] = {20: [first], 21: [second]}

    class Mine:
        def __init__(self, name: str) -> None:
            self.id = name

    assert rival([first, second], alive, None) == first
    assert rival([first, second], alive, Mine(second.id)) == first  # type: ignore[arg-type]
    assert rival([first, second], alive, Mine(first.id)) is None  # type: ignore[arg-type]
    assert rival([first], {}, None) is None
    own = {os.getpid(): [first]}
    assert rival([first], own, None) is None


# The writers' files


def opening(**more: object) -> str:
    """An `open` line."""
    record = {"kind": "open", "rlship": 1, "id": "ab", "actor": "trainer", "host": "n1", "pid": 7, "t": 1763600000.0}
    return json.dumps(record | more) + "\n"


def test_first_lines() -> None:
    """An `open` record says who writes; anything else names no writer."""
    found = member_of(opening(replica="2", rank=3).encode(), "f")
    assert found == Member("ab", "trainer", "2", 3, "n1", 7, 1763600000.0, "f")
    assert member_of(opening(rank=3).encode(), "f").label == "trainer/r0.3"  # type: ignore[union-attr]
    odd = [
        "",
        "{",
        "[]",
        "null",
        '{"kind":"beat"}',
        "[" * 100_000,
        opening(actor=3),
        opening(rank="x"),
        opening(id=None),
    ]
    assert [member_of(line.encode(), "f") for line in odd] == [None] * len(odd)


@given(
    st.dictionaries(
        st.sampled_from(["id", "actor", "replica", "rank", "host", "pid", "t", "x"]),
        st.none()
        | st.booleans()
        | st.text()
        | st.floats()
        | st.integers(-(10**400), 10**400)
        | st.lists(st.integers(), max_size=2),
    )
)
def test_any_first_line_is_somebody_or_nobody(record: dict[str, object]) -> None:
    """Whatever a first line holds, it gives a writer of plain values or none, and never an error."""
    found = member_of(json.dumps({"kind": "open", **record}).encode(), "f")
    if found is not None:
        assert 0 <= found.rank < 1 << 20
        assert len(found.label) < 500
        assert isinstance(found.t, float)
        assert isinstance(found.pid, int)


def test_only_whole_first_lines_of_files_are_read(tmp_path: Path) -> None:
    """A line that is being written is waited for; links, pipes and endless lines have no writer, without hanging."""
    (tmp_path / "whole").write_text(opening() + "{}\n")
    (tmp_path / "half").write_text('{"kind":"op')
    (tmp_path / "endless").write_bytes(b"x" * 200_000)
    (tmp_path / "link").symlink_to(tmp_path / "whole")
    os.mkfifo(tmp_path / "pipe")
    found = {name: first_line(str(tmp_path / name)) for name in ("whole", "half", "endless", "link", "pipe", "gone")}
    assert found.pop("whole") == opening().strip().encode()
    assert found == {"half": None, "endless": b"", "link": b"", "pipe": b"", "gone": b""}


def test_a_crew_grows_and_falls_silent(tmp_path: Path) -> None:
    """New files are taken in as their first lines come; an experiment goes on while a writer, not an agent, writes."""
    folder = tmp_path / "rlship"
    folder.mkdir()
    (folder / "a.jsonl").write_text(opening())
    (folder / "b.jsonl").write_text("")
    (folder / "n.jsonl").write_text(opening(actor="node", id="me"))
    crew = Crew(tmp_path, "node")
    crew.look(0.0)
    assert [one.file for one in crew.workers()] == ["a.jsonl"]
    assert [one.id for one in crew.agents("n1")] == ["me"]
    (folder / "b.jsonl").write_text(opening(id="cd", actor="reward"))
    crew.look(100.0)
    assert [one.actor for one in crew.workers()] == ["trainer", "reward"]
    wall = time.time()
    assert crew.fresh(wall, 60)
    for name in ("a.jsonl", "b.jsonl"):
        os.utime(folder / name, (wall - 500, wall - 500))
    assert not crew.fresh(wall, 60)
    os.utime(folder / "a.jsonl", (wall - 10, wall - 10))
    assert crew.fresh(wall, 60)


def test_who_writes_beside_the_job_is_no_sign_of_it(tmp_path: Path) -> None:
    """Neither the sidecar's own file nor a scrape's, whose actor may be one of the job, keeps an experiment going."""
    folder = tmp_path / "rlship"
    folder.mkdir()
    (folder / "own.jsonl").write_text(opening(actor="rlship"))
    (folder / "scrape.jsonl").write_text(opening(actor="generator", labels={"agent": "scrape"}))
    crew = Crew(tmp_path, "node")
    crew.look(0.0)
    assert [one.actor for one in crew.workers()] == ["rlship", "generator"]
    assert not crew.fresh(time.time(), 60)
    (folder / "job.jsonl").write_text(opening(actor="generator", labels={"agent": "3"}))
    crew.look(1000.0)
    assert crew.fresh(time.time(), 60)


def test_experiments_that_ended_are_seldom_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of experiments in which no process writes are not all asked in every look, the less the more there are; a
    new file tells at once that one goes on.
    """
    for number in range(20):
        folder = tmp_path / f"e{number:02}" / "rlship"
        folder.mkdir(parents=True)
        for rank in range(10):
            (folder / f"{rank}.jsonl").write_text(opening(id=f"{rank}", rank=rank))
            os.utime(folder / f"{rank}.jsonl", (1e9, 1e9))
    asked = []
    written = Crew._written
    monkeypatch.setattr(Crew, "_written", lambda crew, *args: asked.append(args) or written(crew, *args))
    monkeypatch.setattr("rlship_agents.sysmon.crew._SHARE", 1e-9)
    scout = Scout(tmp_path, "node", "n1", 60)
    for _ in range(5):
        assert not any(sight.fresh for sight in scout.look())
    assert len(asked) == 200
    (tmp_path / "e07" / "rlship" / "new.jsonl").write_text(opening(id="new"))
    monkeypatch.setattr(Crew, "look", lambda crew, now: crew._take_in(now))
    fresh: list[str] = []
    wait_until(lambda: fresh.extend(sight.path.name for sight in scout.look() if sight.fresh) or fresh, "a fresh one")
    assert fresh == ["e07"]


def test_this_nodes_writers_are_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many files those of this host are read in the first look, whatever their names begin with."""
    monkeypatch.setattr("rlship_agents.sysmon.crew._MAX_AT_ONCE", 3)
    folder = tmp_path / "rlship"
    folder.mkdir()
    for number in range(20):
        (folder / f"a-0-r{number}-n2-{number}-x.jsonl").write_text(opening(id=f"x{number}", host="n2"))
    (folder / "z-0-r0-n1-7-y.jsonl").write_text(opening(actor="z"))
    crew = Crew(tmp_path, "node", "n1")
    crew.look(0.0)
    assert "z" in {one.actor for one in crew.workers()}
    for second in range(1, 9):
        crew.look(second * 1000.0)
    assert len(crew.workers()) == 21


def test_a_scout_sees_several_experiments(tmp_path: Path) -> None:
    """Of a folder all experiments are seen, as they come and go."""
    scout = Scout(tmp_path, "node", "n1", 60)
    assert scout.look() == []
    for name in ("one", "two"):
        (tmp_path / name / "rlship").mkdir(parents=True)
        (tmp_path / name / "rlship" / "a.jsonl").write_text(opening(actor=name))
    sights = scout.look()
    assert [(sight.path.name, sight.fresh, sight.workers[0].actor) for sight in sights] == [
        ("one", True, "one"),
        ("two", True, "two"),
    ]
    assert [sight.path.name for sight in Scout(tmp_path / "one", "node", "n1", 60).look()] == ["one"]


def test_real_processes() -> None:
    """A child of this process is below it, with its memory and its open files."""
    child = subprocess.Popen(
        [sys.executable, "-c", "f = open('/dev/null'); print('up', flush=True); import time; time.sleep(60)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        found = Processes()
        found.look(time.monotonic())
        assert child.pid in found.tree(os.getpid())
        assert found.above(child.pid, {os.getpid()}) == os.getpid()
        assert found.use([child.pid]).memory > 1e6
        assert "/dev/null" in (open_files(child.pid) or [])
        boot = found.boot_t()
        assert boot is not None
        began = found.start_t(child.pid, boot)
        assert began is not None
        assert abs(began - time.time()) < 60
    finally:
        child.kill()
        child.communicate()
