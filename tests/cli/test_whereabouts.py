"""The first line of `watch` is where the run can be seen."""

from __future__ import annotations

from pathlib import Path

from rlship_sidecar.cli.panels_offer import OFFERED_FILE, PanelsOffer
from rlship_sidecar.cli.whereabouts import HELD_S, MAX_LINES, Whereabouts, seen_at
from rlship_sidecar.report.status import Status
from tests.cli.sample import a_sink, a_status

URL = "https://wandb.ai/lab/rl/runs/8f2c"


class Said:
    """What was printed, in order: places, and "statuses" for each call that was passed on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.whereabouts = Whereabouts(
            self.lines.append, lambda statuses: self.lines.append("statuses"), clock=lambda: self.now
        )

    def __call__(self, *statuses: Status) -> None:
        self.whereabouts([*statuses])


def test_the_place_comes_before_all_else() -> None:
    """Statuses wait until W&B has opened the run; then its address is printed, once."""
    said = Said()
    said()
    said(a_status(sinks=[a_sink(where="")]))
    said(a_status(sinks=[a_sink(where=URL)]))
    said(a_status(sinks=[a_sink(where=URL)]))
    assert said.lines == ["statuses", f"/outputs/grpo-7b: {URL}", "statuses", "statuses"]


def test_time_and_trouble_end_the_wait() -> None:
    """A server that does not answer must not hide what the sidecar has to say."""
    said = Said()
    waiting = a_status(sinks=[a_sink(where="")])
    said(waiting)
    said.now = HELD_S
    said(waiting)
    assert said.lines == ["statuses"]
    said = Said()
    said(a_status(sinks=[a_sink(where="", error="no server")]))
    assert said.lines == ["statuses"]


def test_what_a_place_is() -> None:
    """W&B's address, the command that uploads an offline run, or another sink's place where W&B takes no rows."""
    tensorboard = a_sink(name="tensorboard", where="/x/tensorboard")
    assert seen_at(a_status(sinks=[tensorboard, a_sink(where=URL)])) == URL
    offline = a_sink(where="wandb sync /x/wandb")
    assert seen_at(a_status(sinks=[offline])) == "W&B, offline; to upload the run: wandb sync /x/wandb"
    assert seen_at(a_status(sinks=[tensorboard])) == "tensorboard: /x/tensorboard"
    assert seen_at(a_status(sinks=[tensorboard, a_sink(where="")])) == ""
    refused = a_sink(where="", state="refused")
    assert seen_at(a_status(sinks=[tensorboard, refused])) == "tensorboard: /x/tensorboard"


def test_a_folder_of_experiments() -> None:
    """Only experiments that run have a line, and not more than a few."""
    said = Said()
    old = a_status(experiment="/outputs/old", finished=True, sinks=[a_sink(where=URL)])
    said(old, *(a_status(experiment=f"/outputs/{number}", sinks=[a_sink(where=URL)]) for number in range(20)))
    assert said.lines == [*(f"/outputs/{number}: {URL}" for number in range(MAX_LINES)), "statuses"]
    said = Said()
    said(old)
    assert said.lines == [f"/outputs/old: {URL}", "statuses"]


def test_a_screen_shows_the_places_of_a_folder_itself() -> None:
    """Above a screen there is a line for the watched experiment, and none where a folder of them is watched."""
    statuses = [a_status(sinks=[a_sink(where=URL)]), a_status(experiment="/outputs/b", sinks=[a_sink(where=URL)])]
    lines: list[str] = []
    Whereabouts(lines.append, None, only="/outputs")(statuses)
    assert lines == []
    Whereabouts(lines.append, None, only="/outputs/grpo-7b")(statuses[:1])
    assert lines == [f"/outputs/grpo-7b: {URL}"]


def test_panels_are_offered_once_for_each_experiment(tmp_path: Path) -> None:
    """The command stands behind the place, once W&B has a row, and in no later process; offline there is no view."""
    lines: list[str] = []

    def watched() -> Whereabouts:
        return Whereabouts(lines.append, None, offer=PanelsOffer(lines.append, lambda experiment: tmp_path))

    first = watched()
    first([a_status(sinks=[a_sink(where=URL, next_row=0)])])
    first([a_status(sinks=[a_sink(where="wandb sync /x/wandb")])])
    assert lines == [f"/outputs/grpo-7b: {URL}"]
    for one in (first, first, watched()):
        one([a_status(sinks=[a_sink(where=URL)])])
    offer = "for its panels at W&B: rlship panels --push /outputs/grpo-7b"
    assert lines == [f"/outputs/grpo-7b: {URL}", offer, f"/outputs/grpo-7b: {URL}"]

    (tmp_path / OFFERED_FILE).unlink()
    watched()([a_status(experiment="/outputs/a b", sinks=[a_sink(where=URL)])])
    assert lines[-1] == "for its panels at W&B: rlship panels --push '/outputs/a b'"


def test_a_state_that_cannot_be_written_hides_no_offer(tmp_path: Path) -> None:
    """Then each process says it once."""
    lines: list[str] = []
    offer = PanelsOffer(lines.append, lambda experiment: tmp_path / "missing")
    for _ in range(2):
        offer(a_status(sinks=[a_sink(where=URL)]))
    assert len(lines) == 1
