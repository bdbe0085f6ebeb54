"""Artifacts, as far as tables need them: the client makes one for each version of a table and uploads what is in it."""

from __future__ import annotations

from typing import Any

ARTIFACT_OPERATIONS = frozenset(
    {
        "CreateArtifact",
        "CreateArtifactManifest",
        "CreateArtifactFiles",
        "UpdateArtifactManifest",
        "CommitArtifact",
        "ArtifactType",
    }
)


class Artifacts:
    """What was made so far. `committed` are names of artifacts that were uploaded as a whole."""

    def __init__(self) -> None:
        self.committed: list[str] = []
        self._names: dict[str, str] = {}

    def answer(self, operation: str, given: dict[str, Any], url: str) -> dict[str, Any]:
        """The data of the answer to one query."""
        if operation == "ArtifactType":
            return {"project": {"artifact": None}}
        if operation == "CreateArtifact":
            named = given.get("input", given)
            name = named["artifactCollectionName"] if "artifactCollectionName" in named else str(named)
            found = f"artifact{len(self._names)}"
            self._names[found] = name
            sequence = {"id": f"sequence:{name}", "latestArtifact": None}
            return {"createArtifact": {"artifact": {"id": found, "state": "PENDING", "artifactSequence": sequence}}}
        if operation in ("CreateArtifactManifest", "UpdateArtifactManifest"):
            place = {"id": "m", "name": "manifest", "displayName": "manifest"}
            file = {**place, "uploadUrl": f"{url}/storage/manifest", "uploadHeaders": []}
            answer = {"artifactManifest": {"id": "m", "file": file}}
            return {operation[0].lower() + operation[1:]: answer}
        if operation == "CreateArtifactFiles":
            nodes = [self._file(spec, url) for spec in given["input"]["artifactFiles"]] if "input" in given else []
            nodes = nodes or [self._file(spec, url) for spec in given.get("artifactFiles", ())]
            return {"createArtifactFiles": {"files": {"edges": [{"node": node} for node in nodes]}}}
        self.committed.append(self._names[given["artifactID"]])
        return {"commitArtifact": {"artifact": {"id": given["artifactID"], "digest": "d"}}}

    def _file(self, spec: dict[str, Any], url: str) -> dict[str, Any]:
        name = spec["name"]
        return {
            "id": f"file:{name}",
            "name": name,
            "displayName": name,
            "storagePath": name,
            "uploadUrl": f"{url}/storage/artifact/{name}",
            "uploadHeaders": [],
            "artifact": {"id": spec["artifactID"]},
            "uploadMultipartUrls": None,
        }
