"""What happens where a checking program is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.tools import HOW_TO_GET, rendered, run
from tests.guards.tree import ROOT


@pytest.mark.parametrize("program", sorted(set(HOW_TO_GET) - {"hadolint"}))
def test_a_missing_program_fails_the_test(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out quietly: the program is named, and how to get it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match=f"there is no {program}: ") as raised:
        run(program)
    assert HOW_TO_GET[program] in str(raised.value)


def test_without_kubectl_nothing_is_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kustomize and kubectl the manifests count as wrong."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match="there is no kubectl"):
        rendered(ROOT / "k8s" / "overlays" / "singleton")
