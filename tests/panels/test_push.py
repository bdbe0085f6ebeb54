"""`rlship panels --push` with the real client, against a server on the loopback interface."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

from rlship_sidecar.panels import saving
from rlship_sidecar.panels.versions import noted
from rlship_sidecar.sinks.wandb.online import RUNS_FILE
from tests.endtoend.sidecar import RLSHIP, environment
from tests.kit.cases import long
from tests.kit.files import CLOSE, barrier, experiment, file, log
from tests.kit.verbs import run_here
from tests.kit.waiting import wait_until
from tests.loopback.backend import API_KEY, GRAPHQL, LoopbackBackend, isolated
from tests.loopback.runs import ENTITY, Run
from tests.loopback.views import View
from tests.tabular import stores

PLACE = f"{ENTITY}/rlship"


@dataclass
class Pushed:
    """An experiment `job` with a store, and a server that has its run."""

    folder: Path
    backend: LoopbackBackend

    def make(self, values: dict[str, float], name: str = "job", *, at_wandb: bool = True) -> str:
        """An experiment with one row; returns the id of its run."""
        store = stores.store(self.folder / name, [stores.row(0, values=values)])
        run, _ = store.store_id, store.close()
        if at_wandb:
            self.backend.runs[PLACE, run] = Run(ENTITY, "rlship", run, config={"store_id": {"value": run}})
        return run

    def push(self, name: str = "job", **settings: str) -> subprocess.CompletedProcess[str]:
        """Push its panels. Whatever happens, the key is not in what is said."""
        env = self.backend.environment(self.folder / "home") | settings
        done = run_here("panels", "--push", name, cwd=self.folder, env=env)
        assert API_KEY not in done.stdout + done.stderr
        return done

    def views(self) -> dict[str, View]:
        """The server's views by what people see of them."""
        return {view.title: view for view in self.backend.views.all.values()}


@pytest.fixture
def pushed(tmp_path: Path) -> Iterator[Pushed]:
    """A server, and nothing at it."""
    with LoopbackBackend() as backend:
        yield Pushed(tmp_path, backend)


def lines_of(spec: Any) -> list[str]:
    """The names of all lines of a view."""
    bank = json.loads(spec)["section"]["panelBankConfig"]
    return [name for section in bank["sections"] for panel in section["panels"] for name in panel["config"]["metrics"]]


def test_a_sidecar_offers_the_panels_and_they_show_what_it_sent(tmp_path: Path) -> None:
    """`watch` names the command once W&B has rows. Each line of the view is a key of the run's
    history. A second push says that the view is there, and sends nothing.
    """
    home, job = tmp_path / "home", tmp_path / "job"
    home.mkdir()
    values = {"loss": 0.5, "rewards/mean": 0.25, "rollout_s": 1.0, "update_s": 2.0, "kl": 0.1}
    experiment(job, {"a.jsonl": file(log(0, **values), barrier(0, 1.0), CLOSE, world=1)})
    with LoopbackBackend() as backend:
        env = environment(home, backend.environment(home))
        watch = [*RLSHIP, "watch", "job", "--once", "--no-table", "--sink", "wandb"]
        said = subprocess.run(watch, env=env, stderr=subprocess.PIPE, text=True, cwd=tmp_path).stderr
        offer = f"rlship: for its panels at W&B: rlship panels --push {job}"
        assert said.splitlines().count(offer) == 1, said

        first, second = (run_here("panels", job, "--push", cwd=tmp_path, env=env) for _ in range(2))
        (view,) = backend.views.all.values()
        address = f"{backend.url}/{ENTITY}/rlship?nw={view.name.removeprefix('nw-').removesuffix('-v')}"
        assert (first.returncode, first.stdout, first.stderr) == (0, f"made rlship overview v1: {address}\n", "")
        assert second.stdout == f"nothing to do, rlship overview v1 has these panels: {address}\n"
        assert view.saved == 1 and view.title == "rlship overview v1"
        (run,) = backend.runs.values()
        sent = {key for line in run.rows() for key in line}
        assert {f"trainer/{key}" for key in values} <= set(lines_of(view.spec)) <= sent

        printed = run_here("panels", job, "--print", cwd=tmp_path, env={"HOME": str(home)})
        assert printed.returncode == 0 and json.loads(printed.stdout) == json.loads(view.spec)


def test_what_a_person_changed_is_never_written_to(pushed: Pushed) -> None:
    """New metrics go into the run's view while that is as it was saved; then the next version is made. The server gives
    its views a page at a time.
    """
    pushed.backend.views.page = 1
    pushed.backend.views.all["theirs"] = View("theirs", PLACE, "nw-theirs-v", "rlship overview", "", "{}")
    pushed.make({"trainer/loss": 1.0})
    assert pushed.push().stdout.startswith("made rlship overview v1: ")

    (pushed.folder / "job").rename(pushed.folder / "before")
    (pushed.folder / "job" / "rlship").mkdir(parents=True)
    state = pushed.folder / "before" / "rlship" / "state"
    state.rename(pushed.folder / "job" / "rlship" / "state")
    add(pushed.folder / "job", {"trainer/loss": 1.0, "trainer/kl": 0.5})
    done = pushed.push()
    assert done.stdout.startswith("updated rlship overview v1: "), done
    view = pushed.views()["rlship overview v1"]
    assert view.saved == 2 and "trainer/kl" in lines_of(view.spec)

    spec = json.loads(view.spec)
    spec["section"]["panelBankConfig"]["sections"].pop()
    view.spec = theirs = json.dumps(spec)
    assert "was changed at W&B since: it stays as it is" in pushed.push().stdout
    add(pushed.folder / "job", {"trainer/entropy": 0.5})
    done = pushed.push()
    assert done.stdout.startswith("made rlship overview v2: "), done
    assert (view.spec, view.saved) == (theirs, 2)
    assert pushed.views()["rlship overview v2"].saved == 1 and len(pushed.views()) == 3


def add(folder: Path, values: dict[str, float]) -> None:
    """One more row of an experiment."""
    from rlship_sidecar.store.store import Changes, Store

    store = Store(folder / "rlship" / "state" / "store.3.db", local=True)
    store.commit(Changes(rows=[stores.row(store.row_count(), values=values)]))
    store.close()


@pytest.mark.parametrize("keeps", long(True, False))
def test_two_runs_of_a_project_share_a_view_or_have_one_each(pushed: Pushed, keeps: bool) -> None:
    """Runs with the same metrics have one view; a run with others gets the next version, and both stay as they are.
    That holds where the server loses descriptions, too.
    """
    pushed.backend.views.keeps_descriptions = keeps
    for name, values in (("a", {"trainer/loss": 1.0}), ("b", {"trainer/loss": 2.0}), ("c", {"trainer/kl": 1.0})):
        pushed.make(values, name)
    said = [pushed.push(name).stdout.partition(":")[0] for name in ("a", "b", "c", "a")]
    assert said == [
        "made rlship overview v1",
        "nothing to do, rlship overview v1 has these panels",
        "made rlship overview v2",
        "nothing to do, rlship overview v1 has these panels",
    ]
    assert [view.saved for view in pushed.views().values()] == [1, 1]
    if keeps:
        assert all(noted(view.description) for view in pushed.views().values())


def refuse_the_key(pushed: Pushed) -> dict[str, str]:
    return {"WANDB_API_KEY": "f" * 40}


def refuse_the_view(pushed: Pushed) -> dict[str, str]:
    pushed.backend.fail(403, None, endpoint=GRAPHQL, operation="UpsertView2")
    return {}


def fail_at_the_server(pushed: Pushed) -> dict[str, str]:
    pushed.backend.fail(422, None, endpoint=GRAPHQL, operation="UpsertView2")
    return {}


def forget_the_run(pushed: Pushed) -> dict[str, str]:
    (_, name), run = pushed.backend.runs.popitem()
    pushed.backend.runs[PLACE, "other"] = run
    made = {f"{pushed.backend.url}/{ENTITY}/theirs/{name}": {"made": [name], "next": None}}
    (pushed.folder / "job" / "rlship" / "state" / RUNS_FILE).write_text(json.dumps(made))
    return {}


def give_the_run_away(pushed: Pushed) -> dict[str, str]:
    (run,) = pushed.backend.runs.values()
    run.config = {"store_id": {"value": "another"}}
    return {}


def name_another_project(pushed: Pushed) -> dict[str, str]:
    return {"WANDB_PROJECT": "elsewhere"}


TROUBLES = {
    refuse_the_key: (4, "W&B refused: Failed to verify credentials"),
    refuse_the_view: (4, "W&B refused: "),
    fail_at_the_server: (1, "the view is not saved: "),
    forget_the_run: (1, f"the run {PLACE}/RUN is not at W&B yet\n  its rows went to {ENTITY}/theirs: set project"),
    give_the_run_away: (1, f"the run {PLACE}/RUN at W&B has rows of another store, not of job\n  set project, entity"),
    name_another_project: (1, "W&B has no project elsewhere that this key may see\n  check project and entity"),
}


@pytest.mark.parametrize("trouble", [*long(*(one for one in TROUBLES if one is not forget_the_run)), forget_the_run])
def test_what_prevents_a_push_is_named_with_the_way_out(pushed: Pushed, trouble: Any) -> None:
    """A key or a view that the server refuses, a project or a run that it does not have. Nothing is saved."""
    run = pushed.make({"trainer/loss": 1.0})
    done = pushed.push(**trouble(pushed))
    code, said = TROUBLES[trouble]
    assert (done.returncode, done.stdout) == (code, ""), done
    assert f"rlship: {said.replace('RUN', run)}" in done.stderr
    assert not pushed.backend.views.all


@pytest.mark.long
def test_a_server_that_is_away(pushed: Pushed) -> None:
    """Its address is named, exit code 1; nothing advises to write the run offline, which would save no view."""
    pushed.make({"trainer/loss": 1.0})
    pushed.backend.down()
    done = pushed.push()
    assert done.returncode == 1 and f"cannot connect to {pushed.backend.url}: Connection refused" in done.stderr
    assert "offline" not in done.stderr and "check the network, and try again" in done.stderr


def test_a_server_that_says_nothing_is_given_up(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time for an answer the child and all of its processes are ended."""
    pushed.make({"trainer/loss": 1.0})
    pushed.backend.hang(60.0, None, endpoint=GRAPHQL)
    monkeypatch.setattr(saving, "ANSWERS_WITHIN_S", 0.3)
    before = set(psutil.Process().children(recursive=True))
    done = pushed.push()
    assert (done.returncode, done.stdout) == (1, "")
    assert "the view is not saved: no answer within 0.3 s" in done.stderr
    wait_until(lambda: not set(psutil.Process().children(recursive=True)) - before)


def test_a_child_that_dies_is_reported_without_the_key(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it printed is shown, and the key in it is not."""
    pushed.make({"trainer/loss": 1.0})
    dies = "import os; os.write(2, b'key ' + os.environb[b'WANDB_API_KEY']); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(saving, "module_command", lambda module: [sys.executable, "-c", dies])
    done = pushed.push()
    assert done.returncode == 1
    assert f"the client ended with status {-signal.SIGKILL}: key ***" in done.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "there is no W&B API key, so no view can be saved\n  run `wandb login` or set WANDB_API_KEY"),
        ({"WANDB_MODE": "offline", "WANDB_API_KEY": API_KEY}, "runs of job are written offline"),
        ({"WANDB_MODE": "disabled"}, 'sink wandb: WANDB_MODE is "disabled"'),
    ],
)
def test_without_a_key_or_a_network_nothing_is_started(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    """Exit code 2, and what to set. The view can be printed all the same."""
    stores.experiment(tmp_path / "job", [stores.row(0)])
    env = {**isolated(tmp_path / "home"), "WANDB_BASE_URL": "http://127.0.0.1:1", **settings}
    done = run_here("panels", "job", "--push", cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (2, "") and f"rlship: {said}" in done.stderr
    assert run_here("panels", "job", "--print", cwd=tmp_path, env=env).returncode == 0


def test_wrong_usage_and_what_has_no_rows(tmp_path: Path) -> None:
    """Neither or both flags, several experiments, no rows, no sidecar: each with the way out and its exit code."""
    for name in ("out/a", "out/b"):
        stores.experiment(tmp_path / name, [stores.row(0)])
    stores.experiment(tmp_path / "empty")
    (tmp_path / "new" / "rlship").mkdir(parents=True)
    stores.experiment(tmp_path / "plain", [stores.row(0, actor="generator", kind="point:a", values={"x": 1.0})])
    for words, code, said in (
        (("out/a",), 2, "neither --print nor --push was given\n  --print shows the view as JSON"),
        (("out/a", "--print", "--push"), 2, "--print and --push were given\n"),
        (("out", "--print"), 2, "out holds 2 experiments, and panels takes one\n  name it, such as out/a"),
        (("empty", "--print"), 1, "empty has no row yet\n  a row follows the first step that all ranks ended"),
        (("plain", "--print"), 1, "no row of plain has a metric that a panel could show\n"),
        (("new", "--print"), 1, "no sidecar has watched new yet, so there are no rows\n  make them: rlship watch"),
        (("nowhere", "--print"), 1, "there is no folder nowhere\n"),
    ):
        done = run_here("panels", *words, cwd=tmp_path, env={"HOME": str(tmp_path)})
        assert (done.returncode, done.stdout) == (code, "") and f"rlship: {said}" in done.stderr, done


def test_hostile_names_stay_in_the_json_and_off_the_terminal(tmp_path: Path) -> None:
    """What is printed is JSON without a character that a terminal obeys; names that no panel can show are counted."""
    hostile = {"trainer/<script>_kl": 1.0, "trainer/\x1b[31m_kl": 1.0, 'trainer/"]}_kl': 1.0, "trainer/\u202e_kl": 1.0}
    stores.experiment(tmp_path / "job", [stores.row(0, values=hostile)])
    done = run_here("panels", "job", "--print", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert done.returncode == 0 and done.stdout.isascii() and "\x1b" not in done.stdout + done.stderr
    shown = [name for name in lines_of(done.stdout) if name.endswith("_kl")]
    assert sorted(shown) == ['trainer/"]}_kl', "trainer/<script>_kl"]
    assert "left out: 2 names that no panel of W&B can show" in done.stderr
