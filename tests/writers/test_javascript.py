"""What only Node has: worker threads, an event loop, uncaught exceptions, and types."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlship import family
from tests.kit.tools import needed, without
from tests.writer.reading import CLEAN
from tests.writers.commands import command, init
from tests.writers.driver import Record, all_records, drive, files, of_kind, only_file, records
from tests.writers.languages import WRITERS, language_of

pytestmark = pytest.mark.toolchain

FOLDER = WRITERS / "js"
NODE = language_of("javascript")
TYPESCRIPT = Path(sys.prefix) / "typescript" / "node_modules" / ".bin" / "tsc"


def run(home: Path, *program: str, settings: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run an ES module, which has `init` already, in the folder `home`."""
    source = home / "program.mjs"
    source.write_text("\n".join([f'import {{ init }} from "{FOLDER / "rlship.mjs"}";', *program]))
    node = needed("node")
    environment = {**CLEAN, **(settings or {})}
    return subprocess.run([node, str(source)], cwd=home, env=environment, capture_output=True, text=True, timeout=60)


def steps(found: list[Record]) -> list[int]:
    """The steps of metrics records."""
    return [record["step"] for record in of_kind(found, None)]


def test_each_worker_thread_has_a_file_of_its_own_as_a_child(tmp_path: Path) -> None:
    """Threads log at once, each into its own file, which names that of the main thread as its parent."""
    ended = drive(NODE, tmp_path, init("job", "gen", rank=3), command("threads", 4, 1000), command("close"))
    assert (ended.code, ended.said) == (0, "")
    found = [records(path) for path in files(tmp_path / "job")]
    (root,) = [one for one in found if "parent" not in one[0]]
    children = [one for one in found if one is not root]
    assert [one[0]["parent"] for one in children] == [root[0]["id"]] * 4
    assert [(one[0]["rank"], one[0]["pid"]) for one in found] == [(3, ended.pid)] * 5
    assert [steps(one) for one in children] == [list(range(1000))] * 4
    assert [one[-1]["kind"] for one in found] == ["close"] * 5


def test_a_child_process_of_the_same_rank_names_its_parent(tmp_path: Path) -> None:
    """A process that a program spawns is its child where it is the same rank, and none where it is another."""
    done = run(
        tmp_path,
        'import { fork } from "node:child_process";',
        'const rank = Number(process.argv[2] ?? "0");',
        'const rl = init("job", { actor: "gen", rank });',
        "rl.log({ rank }, { step: process.argv.length });",
        "if (process.argv.length === 2) for (const other of [0, 1]) fork(process.argv[1], [String(other)]);",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = [records(path) for path in files(tmp_path / "job")]
    (root,) = [one for one in found if steps(one) == [2]]
    assert {one[0]["rank"]: one[0].get("parent") for one in found if one is not root} == {0: root[0]["id"], 1: None}


def test_a_child_of_a_program_in_python_names_its_parent(tmp_path: Path) -> None:
    """The checksum of who writes is the one that Python makes, whatever is in the names."""
    done = subprocess.run(
        [sys.executable, "-c", _PYTHON, needed("node"), str(tmp_path / "child.mjs")],
        cwd=tmp_path,
        env=CLEAN,
        input=f'import {{ init }} from "{FOLDER / "rlship.mjs"}";\ninit("it\'s ö", {{ actor: "g\\\\n\'x" }});\n',
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (parent, child) = [records(path)[0] for path in files(tmp_path / "it's ö")]
    assert (parent["writer"][:7], child["writer"][:3]) == ("python/", "js/")
    assert child["parent"] == parent["id"]


_PYTHON = """
import pathlib, subprocess, sys
import rlship
pathlib.Path(sys.argv[2]).write_text(sys.stdin.read())
rlship.init("it's ö", actor="g\\\\n'x").flush()
subprocess.run(sys.argv[1:], check=True)
"""


def test_the_writer_keeps_no_process_alive_and_no_signal_from_it(tmp_path: Path) -> None:
    """A program ends when its own work is done; SIGTERM ends it as if nothing were, with what was flushed."""
    began = time.monotonic()
    done = run(tmp_path, 'init("job", { actor: "gen" }).log({ x: 1 }, { step: 1 });')
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 5.0
    done = run(
        tmp_path,
        'const rl = init("killed", { actor: "gen" });',
        "rl.log({ x: 1 }, { step: 1 });",
        "rl.barrier(1);",
        'if (process.listenerCount("SIGTERM") + process.listenerCount("uncaughtException")) process.exit(9);',
        'process.kill(process.pid, "SIGTERM");',
        "setTimeout(() => {}, 60_000);",
    )
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert steps(all_records(tmp_path / "job")) == steps(all_records(tmp_path / "killed")) == [1]


def test_an_exception_that_nobody_catches_ends_the_program_as_ever(tmp_path: Path) -> None:
    """Node prints it and exits with 1; what was logged is in the file, and so it is after process.exit."""
    done = run(tmp_path, 'init("job", { actor: "gen" }).log({ x: 1 }, { step: 1 });', 'throw new TypeError("mine");')
    assert done.returncode == 1
    assert "TypeError: mine" in done.stderr
    assert "rlship:" not in done.stderr
    done = run(tmp_path, 'init("exit", { actor: "gen" }).log({ x: 1 }, { step: 1 });', "process.exit(7);")
    assert (done.returncode, done.stderr) == (7, "")
    for name in ("job", "exit"):
        found = all_records(tmp_path / name)
        assert (steps(found), found[-1]["kind"]) == ([1], "close")


def test_a_program_that_never_yields_is_seen(tmp_path: Path) -> None:
    """Without an event loop that turns no timer fires: then calls themselves write every half second."""
    done = run(
        tmp_path,
        'import fs from "node:fs";',
        'const rl = init("job", { actor: "gen" });',
        "const began = Date.now();",
        "for (let i = 0; Date.now() - began < 1500; i++) rl.log({ x: i }, { step: i });",
        'if (!fs.readFileSync(rl.path, "utf8").includes(\'"step":9,\')) process.exit(9);',
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_call_throws_whatever_it_is_given(tmp_path: Path) -> None:
    """Odd arguments are left out, counted by a gap or told, and the next call is as good as ever."""
    done = run(
        tmp_path,
        'const odd = [undefined, null, 3, 3n, "x", NaN, Symbol("s"), () => 1, [], new Date(NaN), new Proxy({}, {',
        '  ownKeys() { throw new Error("no keys"); }, get() { throw new Error("no"); } }), -1, 1.5, 2 ** 60];',
        "const round = {}; round.round = round; odd.push(round);",
        'const rl = init("job", { actor: "gen", rank: -3, world: "x", attempt: 1.5, replica: {}, labels: { a: 3n } });',
        "for (const a of odd) {",
        "  for (const b of odd) {",
        "    rl.log(a, b); rl.log({ x: a }, { step: b }); rl.log({ x: a }, { weight: b }); rl.define({ x: a });",
        "    rl.event(a, b); rl.event('e', { x: a }, { step: b }); rl.event('e', a, b); rl.tag(a, b);",
        "    rl.sample(a, b); rl.sample('t', { x: a }, { score: b }); rl.span(a, b).end(); rl.took(a, b);",
        "    rl.span(a, { step: b }).end({ error: a }); rl.define(a); rl.define({ x: { reduce: a, unit: b } });",
        "  }",
        "  rl.barrier(a); rl.rollback(a);",
        "  init(a ?? 'other', { actor: 'gen' }).close();",
        "}",
        "rl.log({ last: 1 }, { step: 7 });",
        "rl.flush(); rl.close();",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = records(files(tmp_path / "job")[0])
    assert [record for record in found if record.get("m") == {"last": 1}]
    assert of_kind(found, "gap")


def test_spans_side_by_side_have_lanes_of_their_own(tmp_path: Path) -> None:
    """What nests in one lane nests in time, also when asynchronous tasks overlap; results and errors are passed on."""
    done = run(
        tmp_path,
        'const rl = init("job", { actor: "gen" });',
        "const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));",
        'rl.timed("outer", () => rl.timed("inner", () => 3)) === 3 || process.exit(9);',
        "const task = (i) => rl.timed('task', async () => { await wait(20 * i); return i; }, { step: i });",
        "const tasks = [1, 2, 3].map(task);",
        "const failing = rl.timed('failing', async () => { await wait(30); throw new RangeError('mine'); });",
        "const caught = failing.catch((error) => error instanceof RangeError || process.exit(9));",
        "(await Promise.all(tasks)).join() === '1,2,3' || process.exit(9);",
        "await caught;",
    )
    assert (done.returncode, done.stderr) == (0, "")
    spans = of_kind(all_records(tmp_path / "job"), "span")
    assert [span["name"] for span in spans[:2]] == ["inner", "outer"]
    assert [span["lane"] for span in spans[:2]] == ["main", "main"]
    assert [span.get("err") for span in spans if span["name"] == "failing"] == ["RangeError"]
    for one in spans:
        for other in spans:
            if one is not other and one["lane"] == other["lane"]:
                (_, b), (c, d) = sorted((span["t"], span["t"] + span["dur"]) for span in (one, other))
                assert c >= b - 1e-5 or d <= b + 1e-5, (one, other)


def test_samples_of_a_step_are_bounded_and_the_dropped_ones_told(tmp_path: Path) -> None:
    """Of 20 MB of samples about 1 MiB is written, all with a small `pri`; an event before the barrier tells more."""
    done = run(
        tmp_path,
        'const rl = init("job", { actor: "gen" });',
        'for (let i = 0; i < 20_000; i++) rl.sample("rollouts", { i, text: "x".repeat(1000) }, { step: 1 });',
        "rl.barrier(1);",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = all_records(tmp_path / "job")
    samples, events = of_kind(found, "sample"), of_kind(found, "event")
    assert 400 < len(samples) < 1200
    assert len({sample["pri"] for sample in samples}) == len(samples)
    assert [(event["name"], event["step"], event["attrs"]["n"]) for event in events] == [
        ("samples_dropped", 1, 20_000 - len(samples))
    ]
    assert sorted(sample["pri"] for sample in samples)[20] < events[0]["attrs"]["pri"]
    assert [record.get("kind") for record in found][-3:] == ["event", "barrier", "close"]


def test_the_same_place_and_actor_is_the_same_logger(tmp_path: Path) -> None:
    """A second `init` opens no second file, until the first is closed."""
    done = run(
        tmp_path,
        'const [a, b] = [init("job", { actor: "gen" }), init("./job", { actor: "gen" })];',
        "if (a !== b) process.exit(9);",
        "a.close();",
        'if (init("job", { actor: "gen" }) === a) process.exit(9);',
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(files(tmp_path / "job")) == 2


def test_an_idle_program_beats(tmp_path: Path) -> None:
    """The `open` promises a beat, and one comes when no line was written for that long."""
    done = run(
        tmp_path,
        "const now = performance.now.bind(performance);",
        "let ahead = 0;",
        'Object.defineProperty(performance, "now", { value: () => now() + ahead });',
        'const rl = init("job", { actor: "gen" });',
        "ahead = 11_000;",
        "setTimeout(() => {}, 1200);",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = records(only_file(tmp_path / "job"))
    assert [record["kind"] for record in found] == ["open", "beat", "close"]
    assert found[0]["beat"] == 10


def test_the_types_are_those_of_the_module(tmp_path: Path) -> None:
    """A strict TypeScript program may call everything, is refused what the module would leave out, and runs."""
    if not TYPESCRIPT.exists():
        without(str(TYPESCRIPT))
    program = tmp_path / "program.mts"
    for name in ("rlship.mjs", "rlship.d.mts"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    program.write_text(_TYPED)
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--types", "", "--lib", "es2022,dom")
    done = subprocess.run(
        [str(TYPESCRIPT), *options, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "")
    done = subprocess.run(
        [needed("node"), "program.mjs"], cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all_records(tmp_path / "job")[-1]["kind"] == "close"


_TYPED = """
import { init, type Logger, type Metrics } from "./rlship.mjs";

const rl: Logger = init("job", { actor: "env", rank: 0, labels: { host: "a" } });
const metrics: Metrics = {
  a: 1, b: [1, 2], c: new Float32Array(3), d: { n: 3, sum: 1 }, e: { v: [1], w: [2] }, f: { g: 1n }, h: null,
};
interface Row { reward: number }
const row: Row = { reward: 1 };
rl.log(metrics, { step: 3 });
rl.log(new Map([["x", 1]]), { weight: 2 });
rl.define({ a: "mean", b: ["max", "mean"], c: { reduce: "my.own", perRank: true } });
rl.sample("rollouts", row, { score: 0.5 });
const three: number = rl.timed("x", () => 3);
const later: Promise<number> = rl.timed("x", async () => 3, { step: 3 });
rl.span("x", { step: 3 }).end({ error: new Error("x") });
rl.took("x", 0.5);
rl.event("x", { bytes: three }, { step: 4n });
rl.tag("eval", { step: 3 });
rl.barrier(3);
const done: boolean = rl.flush() && (await later) === 3;
if (done) rl.close();

export function refused(): void {
  // @ts-expect-error a step is no text
  rl.barrier("3");
  // @ts-expect-error a metric is no text
  rl.log({ a: "x" });
  // @ts-expect-error there is no such reduction
  rl.define({ a: "median" });
  // @ts-expect-error options are an object
  rl.log({ a: 1 }, 3);
  // @ts-expect-error a tag has a step
  rl.tag("eval");
}
"""


def test_the_checksum_is_that_of_the_family() -> None:
    """What two languages compare is one text: this pins it."""
    assert family.checksum(("/a b", "gen", "0", 3, None, 0, "given")) == "dd9804e8"


# A network filesystem whose `fdatasync` fails as `trouble(sync)` says, which is asked at each; `counts` counts them.
_NFS = """
import fs from "node:fs";
const counts = { now: 0, later: 0 };
let trouble = () => null;
const failing = (code) => code && Object.assign(new Error(code), { code });
const read = fs.readFileSync;
const mounts = "1 1 0:1 / / rw - nfs4 a:/b rw";
fs.readFileSync = (path, ...more) => (path === "/proc/self/mountinfo" ? mounts : read(path, ...more));
fs.fdatasyncSync = () => {
  counts.now++;
  const error = failing(trouble(counts));
  if (error) throw error;
};
fs.fdatasync = (fd, done) => {
  counts.later++;
  setTimeout(() => done(failing(trouble(counts))), 5).unref();
};
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
"""


def test_lines_on_a_network_filesystem_are_synced(tmp_path: Path) -> None:
    """By a timer without waiting for it, once for several lines and not without any, and before `flush` returns."""
    done = run(
        tmp_path,
        _NFS,
        'const rl = init("job", { actor: "gen" });',
        "for (let i = 0; i < 10; i++) { rl.log({ x: i }, { step: i }); rl.barrier(i); }",
        "if (counts.now + counts.later !== 0) process.exit(1);",
        "await wait(1300);",
        "if (counts.now !== 0 || counts.later !== 1) process.exit(2);",
        "rl.log({ x: 10 }, { step: 10 });",
        "if (!rl.flush() || counts.now !== 1 || counts.later !== 1) process.exit(3);",
        "rl.flush(); rl.close();",
        "if (counts.now !== 2) process.exit(4);",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert steps(records(only_file(tmp_path / "job"))) == list(range(11))


def test_a_sync_that_fails_puts_its_lines_in_doubt(tmp_path: Path) -> None:
    """A gap tells the lines since the last good sync, behind the definitions again; none of them is written twice."""
    done = run(
        tmp_path,
        _NFS,
        'const rl = init("job", { actor: "gen" });',
        'rl.define({ x: "max" });',
        "rl.log({ x: 1 }, { step: 1 });",
        "if (!rl.flush()) process.exit(1);",
        'trouble = ({ later }) => (later === 1 ? "EIO" : null);',
        "rl.log({ x: 2 }, { step: 2 });",
        "rl.log({ x: 3 }, { step: 3 });",
        "await wait(2500);",
        "rl.log({ x: 4 }, { step: 4 });",
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 2), done.stderr
    found = [one for one in records(only_file(tmp_path / "job")) if one.get("name") != "rlship_error"]
    kinds = [record.get("kind") for record in found]
    assert kinds == ["open", "define", None, None, None, "gap", "define", None, "close"]
    assert steps(found) == [1, 2, 3, 4]
    assert [(gap["n"], gap["from"], gap["to"]) for gap in of_kind(found, "gap")] == [(2, 2, 3)]


def test_a_file_whose_first_line_cannot_be_synced_is_given_up(tmp_path: Path) -> None:
    """Then no reader may see the `open`: the next file has another id, its definitions and a gap for what is in
    doubt.
    """
    done = run(
        tmp_path,
        _NFS,
        'trouble = ({ now }) => (now === 1 ? "EIO" : null);',
        'const rl = init("job", { actor: "gen" });',
        'rl.define({ x: "max" });',
        "rl.log({ x: 1 }, { step: 1 });",
        "if (rl.flush()) process.exit(1);",
        "rl.log({ x: 2 }, { step: 2 });",
        "if (!rl.flush()) process.exit(2);",
    )
    assert done.returncode == 0, done.stderr
    (before, after) = [records(path) for path in files(tmp_path / "job")]
    assert before[0]["id"] != after[0]["id"]
    assert steps(after) == [2]
    assert [record.get("kind") for record in after[:3]] == ["open", "define", "gap"]
    assert sum(gap["n"] for gap in of_kind(after, "gap")) >= 1


def test_a_stale_handle_is_opened_again(tmp_path: Path) -> None:
    """After ESTALE the file is opened by its path, and goes on at the right byte."""
    done = run(
        tmp_path,
        'import fs from "node:fs";',
        "const write = fs.writeSync;",
        'const rl = init("job", { actor: "gen" });',
        "rl.log({ x: 1 }, { step: 1 }); rl.flush();",
        "fs.writeSync = (fd, ...more) => {",
        "  if (fd === 2) return write(fd, ...more);",
        "  fs.writeSync = write;",
        '  throw Object.assign(new Error("stale"), { code: "ESTALE" });',
        "};",
        "rl.log({ x: 2 }, { step: 2 });",
        "if (rl.flush() || !rl.flush()) process.exit(1);",
        "rl.log({ x: 3 }, { step: 3 });",
    )
    assert done.returncode == 0, done.stderr
    found = records(only_file(tmp_path / "job"))
    assert steps(found) == [1, 2, 3]
    assert of_kind(found, "gap") == []


def test_memory_is_bounded_while_nothing_can_be_written(tmp_path: Path) -> None:
    """Of 40 MB of lines the first 8 MiB are kept; one gap reports the rest once there is room, barriers are kept."""
    done = run(
        tmp_path,
        'import fs from "node:fs";',
        'fs.writeFileSync("job", "");',
        'const rl = init("job/run", { actor: "gen" });',
        "for (let i = 0; i < 40_000; i++) rl.log({ ['x'.repeat(900)]: i }, { step: i });",
        "rl.barrier(39_999);",
        'fs.unlinkSync("job");',
        "if (!rl.flush()) process.exit(1);",
        "rl.log({ x: 1 }, { step: 40_000 });",
        "if (rl.droppedLines < 30_000) process.exit(2);",
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 2), done.stderr
    path = only_file(tmp_path / "job" / "run")
    assert 8_000_000 < path.stat().st_size < 9_500_000
    found = records(path)
    (gap,) = of_kind(found, "gap")
    kept = steps(found)
    assert kept == [*range(len(kept) - 1), 40_000]
    assert (gap["n"], gap["from"], gap["to"]) == (40_000 - len(kept) + 1, len(kept) - 1, 39_999)
    assert [record["step"] for record in of_kind(found, "barrier")] == [39_999]
