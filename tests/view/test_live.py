"""Live streams: no row lost, none twice, also over a new store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rlship_sidecar.store.store import Changes, Store
from tests.kit.files import CLOSE, barrier, experiment, file, log
from tests.kit.waiting import wait_until
from tests.tabular.stores import row, store
from tests.view.serving import Client, serving, until


def numbers(event: dict[str, Any]) -> list[int]:
    return [one["no"] for one in event["rows"]]


def commit(made: Store, first: int, last: int) -> None:
    made.commit(Changes(rows=[row(no) for no in range(first, last)]))


def test_a_page_gets_each_row_once_and_resumes_without_a_gap(tmp_path: Path) -> None:
    """What a page lacks follows the hello; of a page that has nothing, or lacks much, the hello says that it is
    behind.
    """
    made = store(tmp_path / "run", [row(no) for no in range(5)])
    with serving(tmp_path / "run") as client:
        live = f"{client.first}/live"
        with client.events(live) as events:
            hello = next(events)
            assert (hello["kind"], hello["row"], hello["behind"]) == ("hello", 5, True)
            commit(made, 5, 7)
            assert numbers(until(events, "rows")) == [5, 6]
            commit(made, 7, 8)
            got = until(events, "rows")
            assert numbers(got) == [7] and (got["store"], got["row"]) == (hello["store"], 8)
            one = got["rows"][0]
            assert (one["x"], one["t"], list(one["m"].values())) == (7, 1763600007.25, [7.1])
        commit(made, 8, 11)
        with client.events(f"{live}?store={hello['store']}&row=8") as events:
            wait_until(lambda: client.ask(f"{client.first}/metrics")["row"] == 11)
            first = next(events)
            assert (first["kind"], first["row"], first["behind"]) == ("hello", 8, False)
            assert numbers(until(events, "rows")) == [8, 9, 10]
        commit(made, 11, 400)
        wait_until(lambda: client.ask(f"{client.first}/metrics")["row"] == 400)
        with client.events(f"{live}?store={hello['store']}&row=11") as events:
            assert next(events)["behind"] or until(events, "behind")
        with client.events(f"{live}?store=another&row=400") as events:
            assert next(events)["behind"] is True
    made.close()


def test_a_metric_that_is_new_comes_with_its_row(tmp_path: Path) -> None:
    """An event has the entries of metrics that no row had before, also of those that rows have by rank alone."""
    made = store(tmp_path / "run", [row(0)])
    with serving(tmp_path / "run") as client, client.events(f"{client.first}/live") as events:
        next(events)
        values = {"trainer/loss": 1.0, "trainer/new": 2.0}
        made.commit(Changes(rows=[row(1, values=values, per_rank={"trainer/busy_s": [("0.0", 3.0)]})]))
        got = until(events, "rows")
        entries = {metric["key"]: metric["per_rank"] for metric in got["metrics"]}
        assert entries == {"trainer/new": False, "trainer/busy_s": True}
        assert [*got["rows"][0]["m"].values()] == [1.0, 2.0]
    made.close()


def test_much_at_once_is_said_and_not_sent(tmp_path: Path) -> None:
    """A page that would have to take hundreds of rows asks for everything anew instead."""
    made = store(tmp_path / "run", [row(0)])
    with serving(tmp_path / "run") as client, client.events(f"{client.first}/live") as events:
        next(events)
        commit(made, 1, 300)
        got = until(events, "behind")
        assert got["row"] == 300
    made.close()


def test_a_new_store_begins_anew_under_an_open_page(tmp_path: Path) -> None:
    """The rows were made again: an event says so, and the answers are of the new store alone."""
    made = store(tmp_path / "run", [row(no) for no in range(9)])
    again = store(tmp_path / "again", [row(no, values={"trainer/other": 1.0}) for no in range(4)])
    again.close()
    with serving(tmp_path / "run") as client, client.events(f"{client.first}/live") as events:
        before = next(events)["store"]
        made.close()
        shutil.rmtree(tmp_path / "run" / "rlship" / "state")
        (tmp_path / "again" / "rlship" / "state").rename(tmp_path / "run" / "rlship" / "state")
        got = until(events, "store")
        assert got["store"] == again.store_id != before and got["row"] == 4
        assert list(client.ids()) == ["trainer/other"]


def follow(client: Client) -> list[str]:
    return [one["key"] for one in client.ask(f"{client.first}/metrics")["metrics"]]


def test_rows_of_an_experiment_that_no_sidecar_watched_are_made(tmp_path: Path) -> None:
    """In a temporary folder, as the files grow; nothing is written into the experiment."""
    made = experiment(tmp_path / "run", {"a.jsonl": file(log(0, loss=1.0), barrier(0, 1.0))})
    with serving(made) as client:
        assert client.ask("/api/experiments")["experiments"][0]["state"] == "unwatched"
        for name in ("overview", "alerts", "run", "metrics", "ledger", "spans", "rollouts", "events"):
            client.ask(f"{client.first}/{name}")  # no refusal before there is a store
        with client.events(f"{client.first}/live") as events:
            wait_until(lambda: "trainer/loss" in follow(client))
            with (made / "rlship" / "a.jsonl").open("ab") as opened:
                opened.write(file(log(1, loss=2.0), barrier(1, 2.0), CLOSE).partition(b"\n")[2])
            wait_until(lambda: client.ask(f"{client.first}/overview")["extent"]["step"] == [0, 1])
            assert any(event["kind"] in ("store", "rows", "behind") for event in events)
        wait_until(lambda: client.ask("/api/experiments")["experiments"][0]["step"] == 1)
    assert [path.name for path in (made / "rlship").iterdir()] == ["a.jsonl"]


def test_the_list_tells_what_changes(tmp_path: Path) -> None:
    """A new experiment appears, and one that is removed goes."""
    store(tmp_path / "a", [row(0)]).close()
    with serving(tmp_path) as client, client.events("/api/live") as events:
        while [one["name"] for one in next(events)["experiments"]] != ["a"]:
            continue
        store(tmp_path / "b", [row(0)]).close()
        assert [one["name"] for one in next(events)["experiments"]] == ["b"]
        shutil.rmtree(tmp_path / "b")
        assert len(next(events)["gone"]) == 1
