"""The view as W&B's own models read it, and its digest."""

from __future__ import annotations

import copy
import json
import warnings
from typing import Any

with warnings.catch_warnings():  # of pydantic's, about the package's own validators
    warnings.simplefilter("ignore", DeprecationWarning)
    from wandb_workspaces.reports.v2 import LinePlot
    from wandb_workspaces.workspaces import Workspace
    from wandb_workspaces.workspaces.internal import View, WorkspaceViewspec

from rlship_sidecar.panels.charted import charted
from rlship_sidecar.panels.sections import sections
from rlship_sidecar.panels.spec import digest, spec_of
from rlship_sidecar.sinks.names import SinkNames
from tests.panels.test_sections import HOSTILE, RICH, steps


def a_spec() -> dict[str, Any]:
    """The view of rows of all kinds, with hostile names, a stacked chart and a pattern."""
    values = dict.fromkeys([*(f"{name}_kl" for name in HOSTILE), "perf/stage_s/rollout", "perf/stage_s/update"], 1.0)
    found = charted([*RICH, *steps(values)], SinkNames())
    return spec_of(sections(found.metrics, "trainer", ranks=True))


def test_wandbs_own_models_take_the_view_and_give_it_back() -> None:
    """The models of `wandb-workspaces` validate it and write the same JSON: no member is unknown to them or lacking."""
    spec = json.loads(json.dumps(a_spec()))
    read = WorkspaceViewspec.model_validate_json(json.dumps(spec))
    assert json.loads(read.model_dump_json(by_alias=True, exclude_none=True)) == spec

    shown = Workspace._from_model(View(entity="e", project="p", display_name="d", name="n", id="i", spec=read))
    written = shown._to_model().spec.model_dump(by_alias=True, exclude_none=True)
    assert digest(written) == digest(spec)
    plots = [panel for section in shown.sections for panel in section.panels]
    assert all(isinstance(plot, LinePlot) for plot in plots)
    assert any(plot.plot_type == "stacked-area" for plot in plots) and any(plot.metric_regex for plot in plots)
    assert shown.sections[0].name == "Headline"


def test_the_digest_says_whether_a_view_shows_something_else() -> None:
    """Order of members, nulls, numbers that W&B's page gives, and 1.0 for 1 do not count; all else does."""
    spec = a_spec()
    same = json.loads(json.dumps(spec, sort_keys=True))
    same["section"]["ref"] = {"id": "x"}
    same["section"]["openRunSet"] = 0.0
    same["section"]["workspaceSettings"] = None
    for section in same["section"]["panelBankConfig"]["sections"]:
        for panel in section["panels"]:
            panel["__id__"] = "other"
    assert digest(same) == digest(spec) == digest(a_spec())

    def changed(change: Any) -> str:
        other = copy.deepcopy(spec)
        change(other["section"])
        return digest(other)

    first = "panelBankConfig"
    others = {
        changed(lambda one: one[first]["sections"][0].update(name="Mine")),
        changed(lambda one: one[first]["sections"].reverse()),
        changed(lambda one: one[first]["sections"][0]["panels"].pop()),
        changed(lambda one: one[first]["sections"][0]["panels"][0]["config"].update(smoothingWeight=0.5)),
        changed(lambda one: one["settings"].update(xAxis="_timestamp")),
        changed(lambda one: one["runSets"][0]["search"].update(query="grpo")),
    }
    assert len(others) == 6 and digest(spec) not in others
