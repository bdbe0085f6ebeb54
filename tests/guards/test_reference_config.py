"""The commented reference configuration is true."""

from __future__ import annotations

import re
from pathlib import Path

from rlship_sidecar.config import CONFIG_FILE, Config, load
from tests.guards.tree import ROOT

REFERENCE = ROOT / "sidecar" / "rlship.toml"


def test_it_states_the_defaults(tmp_path: Path) -> None:
    """Loading the reference file changes nothing: every key in it has its default."""
    (tmp_path / CONFIG_FILE).write_bytes(REFERENCE.read_bytes())
    assert load(tmp_path, {}, {}) == Config()


def test_it_documents_every_key() -> None:
    """Every key stands in it once, with a comment above; only keys without a default are commented out."""
    lines = REFERENCE.read_text(encoding="utf-8").splitlines()
    first_table = next(i for i, line in enumerate(lines) if line.startswith("["))
    for key in Config.__struct_fields__:
        places = [i for i, line in enumerate(lines[:first_table]) if re.match(rf"(# )?{key} = ", line)]
        places += [i for i, line in enumerate(lines) if line == f"[{key}]"]
        assert len(places) == 1, key
        assert lines[places[0] - 1].startswith("# "), key
        is_set = not lines[places[0]].startswith("#")
        assert is_set == (getattr(Config(), key) is not None), key


def test_what_is_commented_out_works_too(tmp_path: Path) -> None:
    """With every commented key switched on the file still loads."""
    text = re.sub(r'^# (?=(\[|"?[a-z_/]+"? = ))', "", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (tmp_path / CONFIG_FILE).write_text(text, encoding="utf-8")
    config = load(tmp_path, {}, {})
    assert config.poll_s == 0.2
    assert set(config.sink) == {"wandb", "tensorboard", "jsonl", "console"}
    assert config.sink["wandb"]["project"] == "rlship"
    assert config.reductions == {"trainer/loss": ["mean", "max"], "grad_norm": ["max"]}
