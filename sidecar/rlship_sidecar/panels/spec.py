"""The view as W&B keeps it: JSON in the form that W&B's own package `wandb-workspaces` writes. Pure.

The same sections give the same bytes, so that a digest says whether a view is still as it was saved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlship_sidecar.panels.charted import OWN_STEP
from rlship_sidecar.panels.sections import Chart, Section

VIEW_TYPE = "project-view"
_COLUMNS, _ROWS = 3, 2
# Keys that say nothing of what a view shows: W&B's page numbers what it has loaded, and may name panels anew.
_UNSEEN = frozenset({"ref", "__id__"})


def spec_of(sections: Sequence[Section]) -> dict[str, Any]:
    """The view with these sections, for all runs of its project."""
    return {
        "section": {
            "panelBankConfig": {
                "state": 1,
                "settings": {"autoOrganizePrefix": 2, "showEmptySections": False, "sortAlphabetically": False},
                "sections": [_section(one) for one in sections],
            },
            "panelBankSectionConfig": _unused_bank(),
            "customRunColors": {},
            "name": "",
            "runSets": [_run_set()],
            "settings": {
                **_settings(),
                "maxRuns": 10,
                "pointVisualizationMethod": "bucketing-gorilla",
                "tooltipNumberOfRuns": "default",
                "shouldAutoGeneratePanels": False,
            },
            "openRunSet": 0,
            "openViz": True,
        },
        "vizExpanded": False,
        "libraryExpanded": True,
    }


def digest(spec: Any) -> str:
    """A digest of what a view shows. Order of keys, nulls and names of panels do not count."""
    text = json.dumps(_seen(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _seen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _seen(one) for key, one in value.items() if one is not None and key not in _UNSEEN}
    if isinstance(value, list):
        return [_seen(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _section(one: Section) -> dict[str, Any]:
    panels = [_panel(one.title, number, chart) for number, chart in enumerate(one.charts)]
    return {**_bank(one.title, is_open=True), "type": "flow", "panels": panels}


def _bank(name: str, *, is_open: bool) -> dict[str, Any]:
    flow = {"snapToColumns": True, "columnsPerPage": _COLUMNS, "rowsPerPage": _ROWS}
    return {
        "name": name,
        "isOpen": is_open,
        "flowConfig": {**flow, "gutterWidth": 16, "boxWidth": 460, "boxHeight": 300},
        "sorted": 0,
        "localPanelSettings": _settings(),
        "pinned": False,
    }


def _unused_bank() -> dict[str, Any]:
    """What a saved view has of a report's panels: none, with the settings that W&B gives them."""
    settings = {**_settings(), "smoothingType": "exponential", "smoothingActive": True}
    return {**_bank("Report Panels", is_open=False), "type": "grid", "panels": [], "localPanelSettings": settings}


def _settings() -> dict[str, Any]:
    return {
        "smoothingWeight": 0,
        "smoothingType": "none",
        "xAxis": OWN_STEP,
        "ignoreOutliers": False,
        "useRunsTableGroupingInPanels": True,
        "smoothingActive": False,
        "xAxisActive": False,
    }


def _panel(section: str, number: int, chart: Chart) -> dict[str, Any]:
    config: dict[str, Any] = {"chartTitle": chart.title, "xAxis": chart.axis, "metrics": list(chart.names)}
    if chart.stacked:
        config["plotType"] = "stacked-area"
    if chart.pattern:
        config.update(metricRegex=chart.pattern, useMetricRegex=True)
    name = hashlib.sha256(f"{section}\0{number}\0{chart.title}".encode()).hexdigest()[:11]
    return {
        "__id__": name,
        "layout": {"x": 0, "y": 0, "w": 8, "h": 6},
        "viewType": "Run History Line Plot",
        "config": config,
    }


def _run_set() -> dict[str, Any]:
    return {
        "id": "rlship",
        "runFeed": {
            "version": 2,
            "columnVisible": {},
            "columnPinned": {},
            "columnWidths": {},
            "columnOrder": [],
            "pageSize": 10,
            "onlyShowSelected": False,
        },
        "enabled": True,
        "name": "Run set",
        "search": {"query": ""},
        "filters": {"filterFormat": "filterV2", "filters": []},
        "grouping": [],
        "sort": {"keys": [{"key": {"section": "run", "name": "createdAt"}, "ascending": False}]},
        "selections": {"root": 1, "bounds": [], "tree": []},
        "expandedRowAddresses": [],
    }
