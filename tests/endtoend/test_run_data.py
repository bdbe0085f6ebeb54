"""What a job says of its run, from its files to W&B, through a sidecar that is killed: real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.endtoend.sidecar import rlship, watching
from tests.kit.files import CLOSE, T0, barrier, file, lines, log
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend

KILLS = 2
QUICK = {"RLSHIP_LEASE_TTL_S": "1"}


def run(**members: Any) -> dict[str, Any]:
    return {"kind": "run", "t": T0 + 1, **members}


def append(experiment: Path, name: str, data: bytes) -> None:
    with open(experiment / "rlship" / name, "ab") as opened:
        opened.write(data)


def asked(experiment: Path, home: Path, sql: str) -> list[dict[str, Any]]:
    found = rlship(home, "query", "--json", sql, experiment)
    assert found.returncode == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_all_of_it_arrives_though_the_sidecar_is_killed(tmp_path: Path) -> None:
    """Nested configuration, results, name, notes and tags of one W&B run; two actors that contradict each other; a
    restart with another value; kill -9 right after each of these was written. A replay makes the same of the files.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    (experiment / "rlship").mkdir(parents=True)
    config = {"lr": 0.1, "model": {"name": "7b", "layers": [1, 2]}}
    with LoopbackBackend() as backend:
        settings = {**backend.environment(home), **QUICK}
        first = run(config=config, name="seven", notes="try", tags=["a", "b"], facts={"host": "n07"})
        append(experiment, "t.jsonl", file(first, log(0, loss=1.0), barrier(0, 1.0), id="t"))
        append(experiment, "g.jsonl", file(run(config={"lr": 0.5, "tp": 2}), id="g", actor="generator"))
        for number in range(KILLS):
            with watching(experiment, "wandb", "tensorboard", home=home, settings=settings) as sidecar:
                if not number:
                    sidecar.until(lambda: bool(backend.runs))
                append(experiment, "t.jsonl", lines(run(summary={"best": {"step": number}}, config={"seed": number})))
                sidecar.until(lambda number=number: bool(backend.runs) and seen(backend).get("seed") == number)
                last = KILLS + number
                append(experiment, "t.jsonl", lines(run(config={"seed": last}), log(number + 1, loss=1.0)))
                wait_until(lambda last=last: f'"seed": {last}'.encode() in (experiment / "rlship/t.jsonl").read_bytes())
                sidecar.kill()
        again = run(t=T0 + 100, config={"lr": 0.2}, name="eight")
        append(experiment, "t2.jsonl", file(again, {**log(1, loss=0.5), "t": T0 + 101}, id="t2", attempt=1, t=T0 + 99))
        append(experiment, "t2.jsonl", lines(run(exit_code=0), CLOSE))
        append(experiment, "t.jsonl", lines(CLOSE))
        append(experiment, "g.jsonl", lines(CLOSE))
        for _ in range(2):  # the second has nothing to do
            done = rlship(
                home, "watch", "--once", experiment, "--sink", "wandb", "--sink", "tensorboard", settings=settings
            )
            assert done.returncode == 0, done.stderr
        (shown,) = backend.runs.values()
        found = seen(backend)
        assert found["model"] == config["model"] and found["seed"] == 2 * KILLS - 1
        assert (found["lr"], found["generator/lr"], found["tp"]) == (0.2, 0.5, 2)
        assert found["zz_rlship"]["outcome"] == "finished" and found["zz_rlship"]["facts"] == {"host": "n07"}
        assert (shown.display_name, shown.notes, shown.tags) == ("eight", "try", ["a", "b"])
        assert shown.summary["best"] == {"step": KILLS - 1}
        assert shown.steps() == list(range(len(shown.history))) and shown.overwritten() == []
    changes = asked(experiment, home, "SELECT key, before, after, attempt FROM run_changes WHERE key = 'lr'")
    assert changes == [{"key": "lr", "before": 0.1, "after": 0.2, "attempt": 1}]
    live = asked(experiment, home, "SELECT part, key, value FROM run")
    assert {"part": "config", "key": "model.name", "value": "7b"} in live
    told = json.loads(rlship(home, "status", "--json", experiment).stdout)["run"]
    assert (told["name"], told["outcome"], told["config"]["generator/lr"]) == ("eight", "finished", 0.5)
    replayed = tmp_path / "replayed"
    assert rlship(home, "replay", experiment, "--out", replayed, "--sink", "jsonl").returncode == 0
    assert (
        rlship(
            home, "export", "--table", "run", "--format", "jsonl", "-o", tmp_path / "live.jsonl", experiment
        ).returncode
        == 0
    )
    again_made = json.loads((replayed / "run.json").read_bytes())
    assert again_made["config"] == {
        name: value for name, value in found.items() if name not in ("zz_rlship", "store_id")
    }
    assert len((tmp_path / "live.jsonl").read_bytes().splitlines()) == len(live)


def seen(backend: LoopbackBackend) -> dict[str, Any]:
    """The config of the one run, as the server has it, without W&B's own."""
    (shown,) = backend.runs.values()
    return {name: entry["value"] for name, entry in dict(shown.config).items() if name != "_wandb"}
