"""The screen of `watch` and `status` on a real terminal."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlship_sidecar.cli import live
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.cli.live import Live
from rlship_sidecar.report.status import write_status
from tests.cli.sample import a_sink, a_status, an_actor
from tests.cli.test_watch import command, environment
from tests.kit.screens import Session, TerminalScreen


def an_experiment(folder: Path, steps: int, *, closed: bool) -> Path:
    """One trainer rank that logs a loss now; if not `closed` it goes on."""
    t = time.time() - steps
    records: list[dict[str, object]] = [
        {"kind": "open", "rlship": 1, "id": folder.name, "actor": "trainer", "rank": 0, "world": 1, "t": t, "beat": 30}
    ]
    for step in range(steps):
        records.append({"t": t + step, "step": step, "m": {"loss": 1.0 / (step + 1)}})
        records.append({"kind": "barrier", "step": step, "t": t + step})
    records += [{"kind": "close", "t": t + steps}] if closed else []
    (folder / "rlship").mkdir(parents=True)
    (folder / "rlship" / "trainer-0-r0.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def begins(lines: list[str], *words: str) -> list[str]:
    return [line for line in lines if line.startswith(words)]


def test_watch_on_a_terminal(tmp_path: Path) -> None:
    """`watch` on three experiments fits its terminal, also after this became smaller and larger, and shows new rows
    below the messages. After Ctrl-C the last screen stays, the cursor is below it, and nothing is hidden or coloured.
    """
    outputs = tmp_path / "outputs"
    first = an_experiment(outputs / "run-2", 8, closed=False)
    an_experiment(outputs / "run-10", 4, closed=False)
    an_experiment(outputs / "done", 4, closed=True)
    env = environment(tmp_path) | {"TERM": "xterm", "LANG": "C.UTF-8"}
    watch = command("watch", outputs, "--sink", "jsonl")
    with Session(watch, env) as session:
        lines = session.until(lambda lines: any("2 running, 1 finished" in line for line in lines))
        lines = session.until(lambda lines: len(begins(lines, "  loss")) == 2 and begins(lines, "done") != [])
        top = next(number for number, line in enumerate(lines) if "2 running, 1 finished" in line)
        found = [line.split("  ")[0] for line in begins(lines[top:], "run-", "done")]
        assert found == ["run-2", "run-10", "done"]
        assert begins(lines, "  loss")[0].endswith("█▄▂▂▁▁▁▁  steps 0..7")
        assert begins(lines, "  trainer")[0].startswith("  trainer  1/1 rank, step 7")

        session.resize(40, 8)
        lines = session.until(lambda lines: len(lines) == 7 and all(map(len, lines)))
        assert max(map(len, lines)) <= 40 and begins(lines, "done", "and 1 more: 1 finished")

        session.resize(100, 30)
        session.until(lambda lines: len(begins(lines, "  loss")) == 2)
        with (first / "rlship" / "trainer-0-r0.jsonl").open("a") as file:
            for record in (
                {"t": time.time(), "step": 8, "m": {"loss": 0.75}},
                {"kind": "event", "name": "rlship_error", "t": time.time(), "attrs": {"where": "log", "error": "no!"}},
                {"kind": "barrier", "step": 8, "t": time.time()},
            ):
                file.write(json.dumps(record) + "\n")
        lines = session.until(lambda lines: any("step 8" in line for line in begins(lines, "run-2")))
        session.until(lambda lines: "  reported to the job: log: no!" in lines)

        os.kill(session.process.pid, signal.SIGINT)
        assert session.end() == 0
        lines, screen = session.screen.lines, session.screen
        assert any(line.startswith("rlship: stopping: ") for line in [*screen.scrolled, *lines])
        assert begins(lines, "run-2") and begins(lines, "done")
        assert (screen.column, screen.row) == (0, len(lines))


def drawn(width: int, height: int) -> tuple[Live, TerminalScreen, io.StringIO]:
    stream, screen = io.StringIO(), TerminalScreen(width, height)
    live = Live(stream, "outputs", {"NO_COLOR": "1"}, lambda: (screen.width, screen.height))
    return live, screen, stream


def take(screen: TerminalScreen, stream: io.StringIO) -> list[str]:
    screen.feed(stream.getvalue())
    stream.seek(0)
    stream.truncate()
    return screen.lines


def test_the_screen_shrinks_and_grows_in_place() -> None:
    """A later screen takes the place of the former one, however many lines each has; nothing scrolls."""
    live, screen, stream = drawn(60, 12)
    many = [a_status(experiment=f"/o/run-{i}", t=time.time()) for i in range(20)]
    for count in (1, 20, 2, 0):
        live.show(many[:count])
        lines = take(screen, stream)
        assert lines[0].startswith("outputs  ")
        assert len(lines) <= 11
        assert len([line for line in lines if line.startswith("run-")]) in (count, 9)
    assert screen.scrolled == []


def test_a_message_stays_in_sight_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen that filled the terminal leaves room for what was just said, and takes it back later."""
    live, screen, stream = drawn(40, 12)
    many = [a_status(experiment=f"/o/run-{i}", t=time.time()) for i in range(20)]
    live.show(many)
    live.message("rlship: the disk is full, which takes more than one line here\n")
    lines = take(screen, stream)
    assert lines[0].startswith("rlship: the disk")
    assert lines[2].startswith("outputs") and len(lines) == 11
    monkeypatch.setattr("rlship_sidecar.cli.live.MESSAGE_S", -1.0)
    live.show(many)
    lines = take(screen, stream)
    assert lines[0].startswith("outputs") and len(lines) == 11
    assert "".join(screen.scrolled).startswith("rlship: the disk is full")


def test_an_old_message_leaves_a_screen_that_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It scrolls off, with what the terminal showed before, and the screen goes on at the top; nothing is lost."""
    live, screen, stream = drawn(40, 12)
    screen.feed("$ rlship watch outputs\n")
    live.show([a_status(t=time.time())])
    live.message("rlship: no network\n")
    lines = take(screen, stream)
    assert [line.split()[0] for line in lines[:3]] == ["$", "rlship:", "outputs"]
    monkeypatch.setattr("rlship_sidecar.cli.live.MESSAGE_S", -1.0)
    for _ in range(2):
        live.show([a_status(t=time.time())])
        lines = take(screen, stream)
        assert lines[0].startswith("outputs")
        assert [line for line in screen.scrolled if line.strip()] == ["$ rlship watch outputs", "rlship: no network"]
    assert screen.row == len(lines)


def test_a_line_as_wide_as_the_terminal_is_drawn_whole() -> None:
    """The last column is not lost, and the next line stands right below."""
    live, screen, stream = drawn(40, 6)
    live.show([a_status(experiment="/o/run", t=time.time(), actors=[an_actor(note="x" * 80)])])
    lines = take(screen, stream)
    assert max(map(len, lines)) == 40
    assert [line[:9] for line in lines[:2]] == ["outputs  ", "run  runn"]


def test_a_wrapped_path_is_drawn_over_an_older_screen() -> None:
    """The terminal wraps it, so that it is copied in one piece: no line break or blank stands in it."""
    live, screen, stream = drawn(40, 12)
    live.show([a_status(experiment="/o/run", t=time.time(), sinks=[a_sink()], notes=["n" * 38, "m" * 38])])
    take(screen, stream)
    where = "/tmp/" + "y" * 60 + "/end"
    live.show([a_status(experiment="/o/run", t=time.time(), sinks=[a_sink(where=where)])])
    assert where in stream.getvalue()
    lines = take(screen, stream)
    assert where in "".join(line.ljust(40) for line in lines)
    assert lines[-1].endswith("/end") and (screen.column, screen.row) == (0, len(lines))


def test_messages_of_other_modules_go_above_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """While the screen is drawn, a line on standard error does not tear it; half a line waits for its end."""
    live, screen, stream = drawn(60, 12)
    above = live_above(live)
    above.write("a warn")
    live.show([a_status(t=time.time())])
    assert take(screen, stream)[0].startswith("outputs")
    above.write("ing\nand")
    assert take(screen, stream)[:1] == ["a warning"]


def live_above(screen: Live) -> io.TextIOBase:
    return live._Above(screen, io.StringIO())


@pytest.mark.parametrize("full", [False, True])
def test_status_of_a_folder_on_a_terminal(tmp_path: Path, full: bool) -> None:
    """`status` of many experiments fits the terminal and says how to see the rest; --full shows all of each."""
    for number in range(40):
        state = tmp_path / f"run-{number}" / "rlship" / "state"
        state.mkdir(parents=True)
        done = {"finished": True, "actors": [an_actor(open_units=0)]}
        write_status(
            state, a_status(experiment=str(state.parent.parent), sinks=[a_sink(next_row=120)], t=time.time(), **done)
        )
    env = environment(tmp_path) | {"TERM": "xterm", "LANG": "C.UTF-8"}
    with Session(command("status", tmp_path, *["--full"] * full), env) as session:
        assert session.end() == 0
        lines = session.screen.lines
        if full:
            assert len(session.screen.scrolled) > 100
            return
        assert session.screen.scrolled == []
        assert len(lines) == 23
        assert [line.split()[0] for line in lines[1:4]] == ["run-0", "run-1", "run-2"]
        assert lines[-2].startswith("and 20 more: 20 finished")
        assert lines[-1].startswith("more of one: rlship status ")


def test_status_of_several_has_blank_lines_between(tmp_path: Path) -> None:
    """Where the output is no terminal, all of each experiment is printed, one block each."""
    for name in ("a", "b"):
        state = tmp_path / name / "rlship" / "state"
        state.mkdir(parents=True)
        write_status(state, a_status(experiment=str(tmp_path / name), t=time.time()))
    lines = CliRunner().invoke(rlship, ["status", str(tmp_path)]).stdout.splitlines()
    assert lines[0] == str(tmp_path / "a")
    assert lines[lines.index("") + 1] == str(tmp_path / "b")
    assert lines.count("") == 1


def test_the_curves_go_on_after_a_restart(tmp_path: Path) -> None:
    """A second sidecar shows the values that the first one shipped, and `--json` has them for programs."""
    experiment = an_experiment(tmp_path / "run", 5, closed=False)
    (tmp_path / "run" / "rlship.toml").write_text('[sink.console]\nmetrics = ["*/lo*"]\n')
    for _ in range(2):
        CliRunner().invoke(rlship, ["watch", str(experiment), "--once", "--sink", "jsonl", "--quiet"])
        (trend,) = json.loads(CliRunner().invoke(rlship, ["status", str(experiment), "--json"]).stdout)["trends"]
        assert (trend["key"], trend["index"]) == ("trainer/loss", 4)
        assert trend["points"] == [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
