"""Saved views of projects: made, replaced and asked for, as W&B's own packages do it.

What a real server does with a description is not known; this one keeps it, unless `keeps_descriptions` says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.loopback.runs import ENTITY

VIEW_OPERATIONS = frozenset({"RlshipViews", "RlshipView", "View", "UpsertView2"})


class Refused(Exception):
    """The answer is an error in the words of GraphQL, with status 200."""


@dataclass(slots=True)
class View:
    """One view. `saved` counts the mutations that made or replaced it; `spec` is the JSON text as it came."""

    id: str
    place: str
    name: str
    title: str
    description: str
    spec: str
    saved: int = 1


@dataclass(slots=True)
class Views:
    """All views, by id. `page` is how many a server gives at a time at most."""

    all: dict[str, View] = field(default_factory=dict)
    page: int = 100
    keeps_descriptions: bool = True

    def titles(self) -> list[str]:
        """What people see of them."""
        return sorted(view.title for view in self.all.values())

    def answer(self, operation: str, given: dict[str, Any], projects: set[str]) -> dict[str, Any]:
        """The data of the answer to one query; `projects` are those that exist, as "<entity>/<project>"."""
        if operation == "RlshipView":
            found = self.all.get(given["id"])
            return {"view": None if found is None else self._node(found)}
        # W&B's own packages call the variables otherwise.
        entity = given.get("entity") or given.get("entityName") or ENTITY
        asked = "name" if operation == "View" else "projectName"
        place = f"{entity}/{given.get('project') or given.get(asked)}"
        if operation == "UpsertView2":
            return {"upsertView": self._upsert(place, given, projects)}
        if place not in projects:
            return {"project": None}
        mine = [view for view in self.all.values() if view.place == place]
        if operation == "View":
            mine = [view for view in mine if view.name == given["viewName"]]
        first = int(given.get("after") or 0)
        last = first + min(self.page, given.get("first") or self.page)
        return {
            "project": {
                "name": place.partition("/")[2],
                "entityName": entity,
                "allViews": {
                    "edges": [{"node": self._node(view)} for view in mine[first:last]],
                    "pageInfo": {"endCursor": str(last), "hasNextPage": last < len(mine)},
                },
            }
        }

    def _upsert(self, place: str, given: dict[str, Any], projects: set[str]) -> dict[str, Any]:
        if place not in projects:
            raise Refused(f"project {place} not found")
        known = given.get("id")
        if known and known not in self.all:
            raise Refused(f"view {known} not found")
        view = self.all.get(known or "") or next((one for one in self.all.values() if one.name == given["name"]), None)
        inserted = view is None
        if view is None:
            view = View(f"view{len(self.all)}", place, given["name"], "", "", "", saved=0)
            self.all[view.id] = view
        view.title, view.spec = given["displayName"], given["spec"]
        view.description = given.get("description", "") if self.keeps_descriptions else ""
        view.saved += 1
        return {"view": {"id": view.id, "name": view.name}, "inserted": inserted}

    def _node(self, view: View) -> dict[str, Any]:
        about = {"id": view.id, "name": view.name, "displayName": view.title}
        return {**about, "description": view.description, "spec": view.spec}
