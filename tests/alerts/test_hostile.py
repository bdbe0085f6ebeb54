"""What a writer that means harm can do to rules, the store and messages: say false values, and no more."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import msgspec

from rlship_sidecar.notifiers.contract import Message
from rlship_sidecar.notifiers.message import message_of
from tests.alerts.receivers import receiver
from tests.alerts.test_live import rules, verdicts
from tests.alerts.test_notifiers import call
from tests.kit.files import CLOSE, T0, barrier, file, log
from tests.pipeline.simulated import simulation

STEPS = 100
NASTY = [
    "__import__('os').system('touch HERE')",
    "$(touch HERE)",
    "`touch HERE`",
    "<script>alert(1)</script>",
    "\x1b]0;mine\x07\x1b[2J",
    "\u202ereversed",
    "*_<@U1|everyone>_*",
    "x" * 150,
]


def flapping(chance: random.Random) -> bytes:
    """Values that fire as many episodes as can be: at a new step each time, out of range and back, with NaN between."""
    found = []
    for step in range(STEPS):
        values = {f"m{at}": chance.choice([0.0, 1e9, -1e9, 1e308, "NaN", "Infinity"]) for at in range(5)}
        found += [{"t": T0 + step, **log(step, **values)}, barrier(step, step + 0.5)]
    return file(*found, CLOSE, world=1)


def test_a_writer_cannot_fill_the_store_with_episodes() -> None:
    """Each metric of each step jumps out of range and back. There is one row of verdicts a step at most, and an episode
    for each two steps of a rule at most: what is kept of them grows with what was logged.
    """
    made = rules(
        **{
            f"flap{at}": {
                "warning": "it",
                "clear": 1,
                "signals": {"it": {"kind": "above", "metric": f"trainer/m{at}", "high": 10.0}},
            }
            for at in range(5)
        }
    )
    with simulation(alerts=made) as sim:
        sim.write("a.jsonl", flapping(random.Random(1)))
        sim.finish()
        kept = verdicts(sim)
        assert 0 < len(kept) <= STEPS
        episodes = [sample for row in kept.values() for sample in row.samples.get("episodes", ())]
        assert STEPS / 4 < len(episodes) <= len(made) * STEPS / 2
        assert max(len(json.dumps(one.row)) for one in episodes) < 1000
        revisions = sum(row.unit.kind == "alert" for row in sim.rows())
        assert revisions <= 2 * STEPS


def test_values_whose_difference_no_double_holds() -> None:
    """The evidence of an episode is a number that JSON has, in messages too, and a restart finds nothing to revise."""
    far = {"kind": "above", "metric": "trainer/a", "less": "trainer/b", "high": 1.0}
    made = rules(far={"warning": "it", "signals": {"it": far}})
    with simulation(alerts=made) as sim:
        sim.write("a.jsonl", file(log(0, a=1.7e308, b=-1.7e308), barrier(0), log(1, a=0.0, b=0.0), barrier(1), world=1))
        sim.tick()
        (kept,) = verdicts(sim).values()
        (episode,) = sim.experiment.alert_book.episodes()
        body = msgspec.json.encode(message_of("run", episode, made[0]))
        assert kept.samples["episodes"][0].row["evidence"] == dict(episode.evidence) == {"it": sys.float_info.max}
        assert msgspec.json.decode(body, type=Message).evidence == {"it": sys.float_info.max}
        before = len(sim.rows())
        sim.restart()
        sim.finish()
        assert len(sim.rows()) == before


def test_what_a_writer_says_runs_nowhere_and_is_sent_escaped(tmp_path: Path) -> None:
    """Names of actors, replicas, hosts, metrics and tags with code, markup and control characters, in a run that fires:
    no file appears, and no message or line has them as they are.
    """
    here = tmp_path / "HERE"
    made = tmp_path / "run"
    (made / "rlship").mkdir(parents=True)
    began = time.time() - 60
    for number, text in enumerate(NASTY):
        evil = text.replace("HERE", str(here))
        records = []
        for step in range(12):
            # One of four ranks stands apart, so that its replica and rank are in the message.
            value = 9.0 if number == 4 else 1.0
            records += [{"t": began + step, **log(step, **{"bal/rank_active_s": value, evil: 1.0})}, barrier(step)]
        identity = {"replica": evil, "host": evil, "id": f"w{number}", "t": began, "world": 1}
        (made / "rlship" / f"{number}.jsonl").write_bytes(file(*records, CLOSE, **identity))
    with receiver() as there:
        (tmp_path / "rlship.toml").write_text(f'sinks = ["jsonl"]\n[notify.webhook]\nurl = "{there.url}"\n')
        assert call("watch", "--once", tmp_path).exit_code == 0
        sent = [text for body in there.bodies() for text in map(str, body.values())]
    printed = [call(verb, made).output for verb in ("alerts", "why", "status")]
    assert sent and any("imbalance" in body for body in sent)
    for text in (*sent, *printed):
        assert not set("\x1b\x07\u202e") & set(text)
    assert not here.exists()
