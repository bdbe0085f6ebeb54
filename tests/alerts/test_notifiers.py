"""Notifiers: what is sent, to whom, how often, with what settings, and what a kill or a dead receiver changes."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from rlship_sidecar import config
from rlship_sidecar.alerts.episodes import Episode, Moment
from rlship_sidecar.alerts.rules import Rule, each_rule
from rlship_sidecar.alerts.verdict_rows import alert_row
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.notifiers import posting, registry
from rlship_sidecar.notifiers.alertmanager import alert_of
from rlship_sidecar.notifiers.contract import AlertNotifier, Message, NotSent
from rlship_sidecar.notifiers.mail import Mail
from rlship_sidecar.notifiers.message import message_of
from rlship_sidecar.notifiers.slack import body_of
from rlship_sidecar.rows import Arrival, Row
from rlship_sidecar.sinks.wandb.sink import WandbSink
from rlship_sidecar.store.changes import Changes
from rlship_sidecar.store.store import Store
from tests.alerts.receivers import Receiver, receiver
from tests.kit.files import CLOSE, barrier, file, log
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend
from tests.sinks.kinds import client_env
from tests.sinks.rows import make_run

NOW = 1_763_600_000.0
(RULE,) = each_rule(
    {
        "high": {
            "about": "x is high",
            "look": "x",
            "warning": "it",
            "signals": {"it": {"kind": "above", "metric": "trainer/x", "high": 10}},
        }
    }
)


def episode(
    first: int = 5, *, ended: int | None = None, place: str = "", state: str = "firing", **more: Any
) -> Episode:
    over = None if ended is None else Moment(ended, NOW + ended)
    began = Moment(first, NOW + first)
    return Episode("high", "warning", state, place, (0, 0, 0), began, began, began, over, (("it", 20.0),), **more)


@contextmanager
def mail(folder: Path, tables: dict[str, dict[str, Any]], *, now: float = NOW + 10, **more: Any) -> Iterator[Mail]:
    """The mail of an experiment with a store of its own."""
    store = Store(folder / "store.db", local=True)
    made = Mail(store, "run", tables, 3600.0, may_send=lambda: True, wall=lambda: now, **more)
    try:
        yield made
    finally:
        made.stop(10)
        store.close()


def tell(made: Mail, *episodes: Episode, rule: Rule = RULE) -> None:
    """Take episodes in one transaction, as the pipeline does, and wake the notifiers."""
    for one in episodes:
        made.take(one, rule)
    made._table.store.commit(Changes())
    made.wake()


def hook(url: str, **more: Any) -> dict[str, dict[str, Any]]:
    return {"hook": {"kind": "webhook", "url": url, **more}}


# What is sent ---------------------------------------------------------------------------------------------------------


def test_the_beginning_and_the_end_of_an_episode(tmp_path: Path) -> None:
    """One message when it fires, one when it is over; nothing is sent for what changes in between."""
    with receiver() as there, mail(tmp_path, hook(there.url)) as made:
        tell(made, episode(place="trainer/0.3"))
        tell(made, episode(place="trainer/0.3"))
        (began,) = there.wait(1)
        tell(made, episode(place="trainer/0.3", ended=9, state="resolved"))
        _, over = there.wait(2)
        assert made.drain(10) and len(there.taken) == 2
    assert began == {
        "version": 1,
        "what": "firing",
        "id": episode(place="trainer/0.3").id,
        "experiment": "run",
        "rule": "high",
        "severity": "warning",
        "state": "firing",
        "title": "run: high at trainer/0.3 warning, from step 5",
        "text": "x is high\nStep 5: it 20\nLook at: x",
        "place": "trainer/0.3",
        "about": "x is high",
        "look": "x",
        "evidence": {"it": 20.0},
        "first_step": 5,
        "fired_step": 5,
        "fired_t": NOW + 5,
        "ended_step": None,
        "ended_t": None,
        "attempt": 1,
    }
    assert (over["what"], over["state"], over["ended_step"], over["id"]) == ("over", "resolved", 9, began["id"])
    keys = [headers["Idempotency-Key"] for _, headers, _ in there.taken]
    assert keys == [f"{began['id']}-firing", f"{began['id']}-over"]


def test_an_episode_that_late_lines_take_back(tmp_path: Path) -> None:
    """A notifier that heard of it hears that it is withdrawn; one that did not hears nothing."""
    with receiver() as there, mail(tmp_path, hook(there.url)) as made:
        tell(made, episode())
        there.wait(1)
        made.withdraw(episode().id)
        made.withdraw("unknown")
        tell(made)
        _, gone = there.wait(2)
        assert (gone["what"], gone["state"]) == ("over", "withdrawn")
        assert made.drain(10) and len(there.taken) == 2


def test_old_episodes_are_no_news(tmp_path: Path) -> None:
    """What fired more than `notify_max_age_s` ago is never sent: a first look at old experiments notifies no one."""
    with receiver() as there, mail(tmp_path, hook(there.url), now=NOW + 7200) as made:
        tell(made, episode(), episode(20, ended=30, state="resolved"))
        tell(made, episode(7190, place="new"))
        (only,) = there.wait(1)
        assert made.drain(10) and len(there.taken) == 1
        assert only["place"] == "new"


def test_a_warning_that_becomes_critical_late(tmp_path: Path) -> None:
    """Who wants what is critical hears of a warning once it is critical, however long it has been a warning, and not of
    what was critical long ago.
    """
    old = replace(episode(), severity="critical")
    late = replace(episode(6), severity="critical", last=Moment(7190, NOW + 7190))
    with receiver() as there, mail(tmp_path, hook(there.url, severity="critical"), now=NOW + 7200) as made:
        tell(made, replace(late, severity="warning"), old, late, late)
        (only,) = there.wait(1)
        assert made.drain(10) and len(there.taken) == 1
        assert (only["first_step"], only["severity"]) == (6, "critical")


def test_too_many_episodes_end_in_one_summary(tmp_path: Path) -> None:
    """Ten of a rule in an hour, then one message that says so."""
    with receiver() as there, mail(tmp_path, hook(there.url), now=NOW + 100) as made:
        tell(made, *(episode(at) for at in range(15)))
        bodies = there.wait(11)
        assert made.drain(10) and len(there.taken) == 11
        assert [one["what"] for one in bodies] == ["firing"] * 10 + ["summary"]
        tell(made, *(episode(at, ended=50, state="resolved") for at in range(15)))
        bodies = there.wait(21)
        assert made.drain(10) and [one["what"] for one in bodies[11:]] == ["over"] * 10


def test_only_what_a_notifier_wants(tmp_path: Path) -> None:
    """`severity = "critical"` leaves out warnings, `rules` all other rules."""
    with receiver() as there:
        tables = {
            "a": {"kind": "webhook", "url": f"{there.url}/a", "severity": "critical"},
            "b": {"kind": "webhook", "url": f"{there.url}/b", "rules": ["other"]},
            "c": {"kind": "webhook", "url": f"{there.url}/c", "rules": ["high"]},
        }
        with mail(tmp_path, tables) as made:
            tell(made, episode())
            there.wait(1)
            assert made.drain(10)
            assert [path for path, _, _ in there.taken] == ["/c"]
            tell(made, replace(episode(), severity="critical"))  # what was a warning is new to "a" alone
            there.wait(2)
            assert made.drain(10)
            assert [path for path, _, _ in there.taken] == ["/c", "/a"]


# Receivers that fail --------------------------------------------------------------------------------------------------


def test_a_receiver_that_fails_gets_it_again(tmp_path: Path) -> None:
    """With the same id and the number of the try; where it says that no try helps, it is not sent again."""
    with receiver() as there, mail(tmp_path, hook(there.url)) as made:
        there.answers = [503, 200, 404, 200]
        tell(made, episode(1))
        first, again = there.wait(2)
        assert (first["attempt"], again["attempt"]) == (1, 2) and first["id"] == again["id"]
        assert made.drain(10) and made.problems() == []
        tell(made, episode(2))
        there.wait(3)
        assert made.drain(10)
        assert made.problems() == ["notify hook: refused: 127.0.0.1 answers 404: Not Found"]
        tell(made, episode(3))
        assert there.wait(4)[3]["first_step"] == 3
        assert made.drain(10) and made.problems() == []


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """What is sent is meant for the address in the settings alone."""
    with receiver() as there, mail(tmp_path, hook(there.url)) as made:
        there.answers = [302]
        tell(made, episode())
        there.wait(1)
        assert made.drain(10)
        assert [path for path, _, _ in there.taken] == ["/"]


def test_an_answer_that_is_cut_off_counts_by_its_code(tmp_path: Path) -> None:
    """A receiver that closes within what it says after 200 has the message, and one that does so after 404 refuses it:
    neither is sent it again.
    """
    with receiver() as there, mail(tmp_path, hook(there.url)) as made:
        there.promised = 100
        there.answers = [200, 404]
        tell(made, episode(1))
        assert made.drain(10) and made.problems() == []
        tell(made, episode(2))
        assert made.drain(10) and made.problems() == ["notify hook: refused: 127.0.0.1 answers 404: Not Found"]
        assert [one["first_step"] for one in there.bodies()] == [1, 2]


class Moody(AlertNotifier):
    """Wants to hear of what goes on again and again. `raises` are what its next calls raise."""

    repeat_s = 0.0
    raises: ClassVar[list[BaseException]] = []
    took: ClassVar[list[str]] = []

    def send(self, message: Message) -> None:
        if self.raises:
            raise self.raises.pop(0)
        self.took.append(message.what)


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Settings of a notifier of the kind Moody, which says nothing yet, and waits hardly at all."""
    monkeypatch.setitem(registry.OWN, "moody", Moody)
    monkeypatch.setattr(Moody, "raises", [])
    monkeypatch.setattr(Moody, "took", [])
    monkeypatch.setattr(posting, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(posting, "LEAST_REPEAT_S", 0.001)
    return {"moody": {}}


def test_a_notifier_that_raises_anything_goes_on(tmp_path: Path, moody: dict[str, dict[str, Any]]) -> None:
    """Whatever its calls raise, those that repeat what goes on included, the next message is sent."""
    with mail(tmp_path, moody) as made:
        Moody.raises[:] = [KeyError("x"), SystemExit(3), NotSent("later")]
        tell(made, episode(1))
        assert made.drain(10) and Moody.took[0] == "firing"
        Moody.raises[:] = [OSError("gone"), SystemExit(3), KeyboardInterrupt()]
        ticks = itertools.count(NOW + 11)
        made.postings[0]._wall = lambda: next(ticks)
        wait_until(lambda: not Moody.raises)
        tell(made, episode(1, ended=9, state="resolved"))
        assert made.drain(10) and Moody.took[-1] == "over" and made.problems() == []


def test_a_restart_repeats_nothing_of_an_old_experiment(tmp_path: Path, moody: dict[str, dict[str, Any]]) -> None:
    """A receiver that wants to hear again and again of what goes on hears nothing from the next sidecar where it has
    not heard of it for an hour and no row is newer; within the hour, or while there are rows, it does.
    """

    def repeated(now: float, *rows: Row) -> list[str]:
        del Moody.took[:]
        with mail(tmp_path, moody, now=now) as made:
            made._table.store.commit(Changes(rows=list(rows)))
            made.postings[0]._repeat()
        return Moody.took

    with mail(tmp_path, moody) as made:
        tell(made, episode())
        assert made.drain(10) and Moody.took[0] == "firing"
    assert repeated(NOW + 3000) == ["firing"]  # which is the last that is heard of it
    assert repeated(NOW + 3000 + 4000) == []
    row = replace(alert_row(5, "global_step", NOW + 6500, []), arrival=Arrival(0, 0, (), "complete"))
    assert repeated(NOW + 3000 + 4000, row) == ["firing"]


def test_what_goes_on_is_repeated_in_turn(tmp_path: Path, moody: dict[str, dict[str, Any]]) -> None:
    """Each episode is due by itself, however many messages are sent in between. A receiver that is away is tried once,
    a new message is waited for by none, and what was not heard of for longest comes first.
    """
    clock = [NOW + 10.0]
    with mail(tmp_path, moody) as made:
        tell(made, episode(1), episode(2), episode(3))
        assert made.drain(10) and made.stop(10)
        (one,) = made.postings
        one._stopping, one._wall = False, lambda: clock[0]

        def round_at(t: float, *, asked: bool = False, raises: int = 0) -> int:
            """How many messages a round at this time repeats."""
            del Moody.took[:]
            clock[0], one._asked, Moody.raises[:] = NOW + t, asked, [NotSent("away")] * raises
            one._repeat()
            assert len(Moody.raises) == max(0, raises - 1)
            return len(Moody.took)

        one._table.mark_sent(1, NOW + 100)
        assert [number for number, _, _ in one._table.open("moody", 0.0)] == [2, 3, 1]
        assert round_at(50, raises=3) == 0
        assert round_at(50, asked=True) == 0
        assert round_at(100.0005) == 2
        assert round_at(100.0005) == 0
        assert round_at(200) == 3
        assert round_at(150) == 3  # the clock was set back


def test_a_receiver_that_asks_for_time_gets_it(tmp_path: Path, moody: dict[str, dict[str, Any]]) -> None:
    """A try that is answered with the seconds to wait is not followed by another one before, however many they are."""
    with mail(tmp_path, moody) as made:
        Moody.raises[:] = [NotSent("busy", 300.0), NotSent("busy", math.nan)]
        made.take(episode(1), RULE)
        made._table.store.commit(Changes())
        (one,) = made.postings
        left = one._send_all()
        assert left is not None and 299.0 < left <= 300.0
        assert one._send_all() == pytest.approx(left, abs=1.0) and len(Moody.raises) == 1


def test_a_receiver_that_hangs_holds_up_nothing(tmp_path: Path) -> None:
    """Verdicts go on being taken while a message waits for an answer; the thread ends once it has one."""
    with receiver() as there, mail(tmp_path, hook(there.url)) as made:
        there.hold.clear()
        tell(made, episode(1))
        there.wait(1)
        tell(made, episode(2), episode(3))
        assert not made.at_rest and not made.drain(0.0)
        there.hold.set()
        there.wait(3)
        assert made.drain(10) and made.at_rest


def test_a_kill_between_mark_and_send_repeats_one_message_at_most(tmp_path: Path) -> None:
    """A sidecar is killed by SIGKILL while its message waits for the answer: the next one sends it as a second try,
    and what was answered is not sent again.
    """
    with receiver() as there:
        code = (
            "import sys, time\n"
            "from tests.alerts.test_notifiers import *\n"
            "store = Store(Path(sys.argv[1]), local=True)\n"
            "made = Mail(store, 'run', hook(sys.argv[2]), 3600.0, may_send=lambda: True, wall=lambda: NOW + 10)\n"
            "tell(made, episode(1))\n"
            "made.drain(10)\n"
            "print('sent', flush=True)\n"
            "sys.stdin.readline()\n"
            "tell(made, episode(2))\n"
            "time.sleep(60)\n"
        )
        args = [sys.executable, "-c", code, str(tmp_path / "store.db"), there.url]
        with subprocess.Popen(
            args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        ) as job:
            assert job.stdin is not None and job.stdout is not None
            assert job.stdout.readline() == b"sent\n"
            there.hold.clear()
            job.stdin.write(b"\n")
            job.stdin.flush()
            there.wait(2)
            job.kill()
        there.hold.set()
        with mail(tmp_path, hook(there.url)) as made:
            made.wake()
            there.wait(3)
            assert made.drain(10)
    assert [(one["first_step"], one["attempt"]) for one in there.bodies()] == [(1, 1), (2, 1), (2, 2)]


# What a hostile writer can say ----------------------------------------------------------------------------------------

HOSTILE = "<!channel> <http://x|y>\x1b[31m\n\u202e" + "z" * 10_000


def test_texts_are_bounded_and_escaped() -> None:
    """Names of ranks and experiments come from files: no control character, no length, no markup of Slack's."""
    message = message_of(HOSTILE, episode(place=f"trainer/{HOSTILE}.0"), RULE)
    for text in (message.title, message.place, message.experiment):
        assert len(text) <= 600 and text.isprintable()
    body = body_of(message)
    assert "<" not in body["text"] and body["text"].startswith("&lt;!channel&gt;")
    assert {block["text"]["type"] for block in body["blocks"]} == {"plain_text"}
    assert all(len(block["text"]["text"]) <= 3000 for block in body["blocks"])
    for t in (0.0, -1e300, 1e300, NOW):
        odd = Message(
            what="over",
            id="i",
            experiment="e",
            rule="r",
            severity="s",
            state="x",
            title="",
            text="",
            ended_t=t,
            fired_t=t,
        )
        alert = alert_of(odd, NOW)
        assert alert["startsAt"] < alert["endsAt"] <= "2025-11-20T01:00"


# Settings -------------------------------------------------------------------------------------------------------------


def settings(folder: Path, text: str) -> config.Config:
    (folder / "rlship.toml").write_text(text)
    loaded = config.load(folder, {}, {})
    registry.check("rlship.toml", loaded.notify, {"high": RULE})
    return loaded


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('[notify.x]\nkind = "webhok"', "there is no kind of notifier 'webhok'", 'did you mean "webhook"?'),
        ('[notify.x]\nkind = ["webhook"]', "there is no kind of notifier \"['webhook']\"", 'did you mean "webhook"?'),
        ('[notify.webhook]\nurl = "http://[x"', "option url is 'http://[x'", "begins with http://"),
        ('[notify.webhook]\nurl = "ftp://x"', "option url is 'ftp://x'", "begins with http://"),
        ('[notify.webhook]\nurll = "http://x"', "option urll is not known", "url, url_env"),
        ('[notify.slack]\nurl = "http://x"', "option url is not known", "url_env, url_file"),
        ("[notify.slack]", "option url_env is not given", "it is a secret"),
        ("[notify.alertmanager]", "option url is not given", "http://127.0.0.1:9093"),
        ('[notify.webhook]\nurl = "http://x"\nseverity = "bad"', "severity is 'bad'", "warning, critical"),
        ('[notify.webhook]\nurl = "http://x"\nrules = ["hihg"]', "there is no rule 'hihg'", 'did you mean "high"?'),
        ('[notify.webhook]\nurl = "http://x"\ntoken = "s"', "looks like a secret", "remove it"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, message: str, hint: str) -> None:
    """With the table, the option, and what is allowed."""
    with pytest.raises(UsageProblem) as raised:
        settings(tmp_path, text)
    assert message in raised.value.message and hint in raised.value.hint


def test_settings_of_others_send_nothing(tmp_path: Path) -> None:
    """A file that others can write names no receiver: it is refused."""
    (tmp_path / "rlship.toml").write_text('[notify.webhook]\nurl = "http://127.0.0.1:1"\n')
    (tmp_path / "rlship.toml").chmod(0o666)
    with pytest.raises(UsageProblem) as raised:
        config.load(tmp_path, {}, {})
    assert "notify is not taken from it" in raised.value.message


def test_secrets_come_from_the_environment_or_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bearer token from a file beside the settings, the address from a variable, each read at every message."""
    (tmp_path / "token").write_text("first\n")
    with receiver() as there:
        monkeypatch.setenv("HOOK_URL", f"{there.url}/secret")
        loaded = settings(tmp_path, '[notify.webhook]\nurl_env = "HOOK_URL"\ntoken_file = "token"\n')
        with mail(tmp_path, loaded.notify) as made:
            tell(made, episode(1))
            there.wait(1)
            (tmp_path / "token").write_text("second\n")
            tell(made, episode(2))
            there.wait(2)
        assert [(path, headers["Authorization"]) for path, headers, _ in there.taken] == [
            ("/secret", "Bearer first"),
            ("/secret", "Bearer second"),
        ]
        monkeypatch.delenv("HOOK_URL")
        (tmp_path / "other").mkdir()
        with mail(tmp_path / "other", loaded.notify) as made:
            tell(made, episode(3))
            made.drain(1.0)
            assert made.problems() == ["notify webhook: the environment has no HOOK_URL"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/mine so", "http://127.0.0.1:mine/", "http://[mine/", "http://h/mi\nne"]
)
def test_an_error_does_not_show_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """An address or a token that no request can have is not in what status says of it."""
    monkeypatch.setenv("HOOK_URL", url)
    monkeypatch.setenv("HOOK_TOKEN", "mine\nmore")
    for number, more in enumerate(({"url_env": "HOOK_URL"}, {"url": "http://127.0.0.1:1", "token_env": "HOOK_TOKEN"})):
        (tmp_path / str(number)).mkdir()
        with mail(tmp_path / str(number), {"hook": {"kind": "webhook", **more}}) as made:
            made.take(episode(1), RULE)
            made._table.store.commit(Changes())
            made.postings[0]._send_all()
            (said,) = made.problems()
            assert "mi" not in said


# Other receivers ------------------------------------------------------------------------------------------------------


def test_slack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message as an incoming webhook takes it: a text, and blocks of plain text."""
    with receiver() as there:
        monkeypatch.setenv("SLACK_URL", f"{there.url}/services/T/B/x")
        with mail(tmp_path, {"slack": {"url_env": "SLACK_URL"}}) as made:
            tell(made, episode())
            (body,) = there.wait(1)
    assert body["text"] == "run: high warning, from step 5"
    assert [block["text"]["text"] for block in body["blocks"]] == [body["text"], "x is high\nStep 5: it 20\nLook at: x"]


def free_port(taken: Callable[[], Receiver] = Receiver) -> int:
    """A port that was free a moment ago."""
    made = taken()
    made.close()
    return made.port


@pytest.mark.toolchain
def test_alertmanager(tmp_path: Path) -> None:
    """The real one: an episode is one alert, however often it is sent, with its labels; it ends with the episode."""
    import urllib.request

    port = free_port()
    (tmp_path / "am.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    command = [
        "prometheus-alertmanager",
        f"--config.file={tmp_path}/am.yml",
        f"--storage.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    url = f"http://127.0.0.1:{port}"

    def alerts() -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found

    now = time.time()

    def at(first: int, **more: Any) -> Episode:
        began = Moment(first, now - 10)
        ended = Moment(first + 2, now - 1) if more.pop("over", False) else None
        state = "resolved" if ended else "firing"
        return Episode("high", "critical", state, 'r"\\<0>', (0, 0, 0), began, began, began, ended, ())

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            with mail(tmp_path, {"alertmanager": {"url": url}}, now=now) as made:
                tell(made, at(5), at(6))  # it may not listen yet: then it is tried again
                assert made.drain(30), made.problems()
                found = {one["labels"]["episode"]: one for one in alerts()}
                assert found.keys() == {at(5).id, at(6).id}
                one = found[at(5).id]
                assert one["labels"] | {"alertname": "high", "severity": "critical"} == one["labels"]
                assert one["labels"]["place"] == 'r"\\<0>' and one["status"]["state"] in ("active", "unprocessed")
                tell(made, at(5, over=True))
                assert made.drain(30)
                assert [one["labels"]["episode"] for one in alerts()] == [at(6).id]
        finally:
            server.terminate()
            server.wait()


# A whole sidecar ------------------------------------------------------------------------------------------------------


def call(*args: str | Path, **env: str) -> Result:
    return CliRunner().invoke(rlship, list(map(str, args)), env=env)


def steps(values: list[float], t: float, first: int = 0) -> list[dict[str, Any]]:
    found = []
    for at, x in enumerate(values, first):
        found += [log(at, x=x) | {"t": t + at}, {"kind": "barrier", "step": at, "t": t + at}]
    return found


def test_a_rule_and_a_notifier_of_a_users_own(tmp_path: Path) -> None:
    """Twenty lines: a rule in the settings, a class under the entry point `rlship.notifiers`, and its option."""
    made, package = tmp_path / "run", tmp_path / "package"
    (made / "rlship").mkdir(parents=True)
    (package / "mine-1.dist-info").mkdir(parents=True)
    (package / "mine-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (package / "mine-1.dist-info" / "entry_points.txt").write_text("[rlship.notifiers]\nfile = mine:FileNotifier\n")
    (package / "mine.py").write_text(
        "from rlship_sidecar.notifiers.contract import AlertNotifier\n"
        "class FileNotifier(AlertNotifier):\n"
        "    def __init__(self, options):\n"
        "        self.path = options['path']\n"
        "    def send(self, message):\n"
        "        with open(self.path, 'a') as file:\n"
        "            print(message.what, message.title, file=file)\n"
    )
    (made / "rlship.toml").write_text(
        'sinks = ["jsonl"]\n'
        "[alert.mine]\n"
        'warning = "high"\n'
        "clear = 1\n"
        'signals.high = { kind = "above", metric = "trainer/x", high = 10 }\n'
        "[notify.me]\n"
        'kind = "file"\n'
        f'path = "{tmp_path}/told"\n'
    )
    (made / "rlship" / "a.jsonl").write_bytes(file(*steps([1, 20, 1], time.time()), CLOSE, world=1, t=time.time()))
    env = os.environ | {"PYTHONPATH": str(package)}
    done = subprocess.run([sys.executable, "-m", "rlship", "watch", "--once", made], env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "told").read_text().splitlines() == [
        "firing run: mine warning, from step 1",
        "over run: mine resolved, steps 1..1",
    ]


def test_a_notifier_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose class wants another option, and one whose module is broken: the place, the class and its error, and no
    traceback.
    """
    (tmp_path / "mine-1.dist-info").mkdir()
    (tmp_path / "mine-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (tmp_path / "mine-1.dist-info" / "entry_points.txt").write_text(
        "[rlship.notifiers]\nwanting = own_notifier:Wanting\nbroken = no_such_module:Broken\n"
    )
    (tmp_path / "own_notifier.py").write_text(
        "from rlship_sidecar.notifiers.contract import AlertNotifier\n"
        "class Wanting(AlertNotifier):\n"
        "    def __init__(self, options):\n"
        "        self.path = options['path']\n"
        "    def send(self, message):\n"
        "        pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for kind, says in (
        ("wanting", "own_notifier.Wanting cannot be made of the options pth: KeyError: 'path'"),
        ("broken", "the notifier 'broken' (no_such_module:Broken) cannot be imported: ModuleNotFoundError"),
    ):
        with pytest.raises(UsageProblem) as caught:
            registry.check("rlship.toml", {"me": {"kind": kind, "pth": "x"}}, {})
        assert caught.value.message.startswith(f"rlship.toml: [notify.me]: {says}")


@pytest.mark.parametrize("count", [10, pytest.param(300, marks=(pytest.mark.long, pytest.mark.timeout(900)))])
def test_a_first_look_at_old_experiments_notifies_no_one(tmp_path: Path, count: int) -> None:
    """`watch` over a folder of old experiments, each with an episode: they are in rows, and nothing is sent.

    The looks at 300 take 15 s of CPU, and minutes beside a dozen other processes.
    """
    with receiver() as there:
        for number in range(count):
            made = tmp_path / f"run{number}" / "rlship"
            made.mkdir(parents=True)
            made.joinpath("a.jsonl").write_bytes(file(*steps([1, 20, 20, 20], NOW), CLOSE, world=1))
        rule = '[alert.mine]\nwarning = "it"\nsignals.it = { kind = "above", metric = "trainer/x", high = 10 }\n'
        (tmp_path / "rlship.toml").write_text(f'sinks = []\n{rule}[notify.webhook]\nurl = "{there.url}"\n')
        assert call("watch", "--once", tmp_path).exit_code == 0
        told = [json.loads(line) for line in call("status", "--json", tmp_path).stdout.splitlines()]
        assert [len(one["alerts"]) for one in told] == [1] * count
        assert there.taken == []
        (tmp_path / "run3" / "rlship" / "b.jsonl").write_bytes(
            file(
                *steps([1] * 10, time.time(), 4), *steps([20], time.time(), 14), CLOSE, id="b", attempt=1, t=time.time()
            )
        )
        assert call("watch", "--once", tmp_path).exit_code == 0
        assert [one["fired_step"] for one in there.bodies()] == [14]


def test_a_replay_notifies_no_one(tmp_path: Path) -> None:
    """It makes the rows of verdicts again, and sends nothing."""
    with receiver() as there:
        made = tmp_path / "rlship"
        made.mkdir()
        data = [*steps([20.0], time.time()), barrier(0)]
        made.joinpath("a.jsonl").write_bytes(file(*data, CLOSE, world=1, t=time.time()))
        rule = '[alert.mine]\nwarning = "it"\nsignals.it = { kind = "above", metric = "trainer/x", high = 10 }\n'
        (tmp_path / "rlship.toml").write_text(f'sinks = ["jsonl"]\n{rule}[notify.webhook]\nurl = "{there.url}"\n')
        told = call("replay", tmp_path, "--out", tmp_path / "again")
        assert told.exit_code == 0, told.output
        kinds = [json.loads(line)["kind"] for line in (tmp_path / "again" / "rows.jsonl").read_text().splitlines()]
        assert kinds == ["step", "alert"] and there.taken == []


def test_alerts_of_wandb(tmp_path: Path) -> None:
    """`alerts_from` in [sink.wandb]: the one client tells W&B of each new episode once, with its level; a later
    revision and an episode of long ago are no news.
    """
    now = time.time()

    def verdict(number: int, *episodes: Episode, t: float = 0.0, revision: int = 0) -> Row:
        made = alert_row(5, "global_step", t, episodes)
        return replace(made, arrival=Arrival(number, revision, made.keys(), "complete"))

    def at(first: int, age_s: float, severity: str = "critical") -> Episode:
        began = Moment(5, now - age_s)
        evidence = (("it", 20.0),)
        return Episode("high", severity, "firing", f"trainer/0.{first}", (0, 0, 0), began, began, began, None, evidence)

    with LoopbackBackend() as backend:
        sink = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
        run = make_run(tmp_path, rows=3, alerts_from="warning")
        assert sink.open(run) == 0
        sink.write([verdict(0, at(1, 10)), verdict(1, at(1, 10), at(2, 10, "warning"), revision=1)])
        sink.write([verdict(2, at(3, 7200), revision=2)])
        sink.flush()
        sink.close()
        told = [(one["title"], one["text"], one["severity"]) for one in backend.alerts]
        assert told == [
            ("high critical at trainer/0.1", "since step 5: it 20", "ERROR"),
            ("high warning at trainer/0.2", "since step 5: it 20", "WARN"),
        ]
