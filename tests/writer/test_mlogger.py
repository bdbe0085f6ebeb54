"""The same functions under another name, and the way from the names that wandb has."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest

import rlship
from rlship import mlogger


def test_it_has_the_functions_of_the_package() -> None:
    """Every public name is there and is the very same object, so that both may be mixed."""
    assert rlship.mlogger is mlogger
    for name in rlship.__all__:
        if not name.startswith("__"):
            assert getattr(mlogger, name) is getattr(rlship, name)
    assert isinstance(mlogger.log, types.FunctionType)


def test_other_names_are_no_attributes() -> None:
    """A misspelt function is an AttributeError that names it, as without the lazy module."""
    with pytest.raises(AttributeError, match=r"module 'rlship' has no attribute 'mlog'$"):
        _ = rlship.mlog  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("Table", "rlship.sample(table, row)"),
        ("alert", "rlship.event(name"),
        ("define_metric", "rlship.define(name"),
        ("finish", "rlship.close()"),
        ("save", "rlship.event('saved'"),
        ("watch", "rlship watch DIR"),
    ],
)
def test_names_of_wandb_lead_to_ours(name: str, instead: str) -> None:
    """A call that wandb has, and rlship has not, is an AttributeError that names the way to go."""
    with pytest.raises(AttributeError, match=f"no attribute '{name}': .*{re.escape(instead)}"):
        getattr(rlship, name)
    assert not hasattr(rlship, name)


def test_arguments_of_wandb_lead_to_ours(tmp_path: Path) -> None:
    """`init` refuses those that it has not, as Python does, and says where they belong."""
    told = r"init\(\) got an unexpected keyword argument"
    with pytest.raises(TypeError, match=rf"{told} 'mode': .*\[sink\.wandb\] of rlship\.toml"):
        rlship.init(tmp_path, actor="trainer", mode="offline")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=rf"{told} 'ranks'$"):
        rlship.init(tmp_path, actor="trainer", ranks=3)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
