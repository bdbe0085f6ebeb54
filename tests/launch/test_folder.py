"""Which folder a job logs into."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.launch.folder import choose, name_of
from rlship_sidecar.launch.nodes import Crowd

ALONE = Crowd(True, "")
TRAIN = ["python", "train.py"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a user."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_order_of_names(here: Path) -> None:
    """--dir or RLSHIP_DIR, then WANDB_RUN_ID, WANDB_NAME, the launcher's job: each start of the job finds the same."""
    variables = {"SLURM_JOB_ID": "7", "WANDB_NAME": "grpo 7b/a", "WANDB_RUN_ID": "x1"}
    found = []
    for name in ("", "WANDB_RUN_ID", "WANDB_NAME", "SLURM_JOB_ID"):
        asked = Path("my/run") if not name else None
        choice = choose(asked, variables, TRAIN, Crowd(True, "SLURM_NNODES=2"))
        assert choice == choose(asked, variables, TRAIN, Crowd(False, "SLURM_NNODES=2"))
        found.append((str(choice.folder.relative_to(here)), choice.by))
        variables.pop(name, None)
    assert found == [
        ("my/run", "--dir"),
        ("outputs/x1", "WANDB_RUN_ID"),
        ("outputs/grpo_7b_a", "WANDB_NAME"),
        ("outputs/slurm-7", "the launcher's job"),
    ]
    assert list(here.iterdir()) == []


def test_several_nodes_without_a_name_are_refused() -> None:
    """Each would take a folder of its own. The message names the sign and the flag, with a name to copy."""
    with pytest.raises(UsageProblem) as refused:
        choose(None, {}, TRAIN, Crowd(True, "SLURM_NNODES=2"))
    assert "SLURM_NNODES=2" in refused.value.message
    assert "rlship run --dir outputs/train -- python train.py" in refused.value.hint
    assert refused.value.exit_code == 2


def test_a_new_folder_is_a_new_one(here: Path) -> None:
    """Two jobs that start within a second have two folders, named by the script and the time."""
    first, second = (choose(None, {}, TRAIN, ALONE).folder for _ in range(2))
    assert first.parent == second.parent == here / "outputs"
    assert first != second and first.is_dir() and second.is_dir()
    assert re.fullmatch(r"train-\d{8}-\d{6}(-\d+)?", first.name)


def test_outputs_that_is_no_folder_is_named(here: Path) -> None:
    """A file in the way is named, with the way out."""
    (here / "outputs").write_text("")
    with pytest.raises(RlshipError, match="outputs") as refused:
        choose(None, {}, TRAIN, ALONE)
    assert "--dir" in refused.value.hint


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 1", "train"),
        ("torchrun --nproc-per-node 8 scripts/grpo.py", "grpo"),
        ("python -m verl.trainer.main_ppo a=b", "main_ppo"),
        ("bash run_7b.sh", "run_7b"),
        ("accelerate launch --config x.yaml train.py", "train"),
        ("axolotl train config.yml", "axolotl"),
        ("python -c pass", "job"),
        ("/opt/bin/.hidden", "_hidden"),
    ],
)
def test_names_of_commands(command: str, name: str) -> None:
    """A folder is named for what the user would call the job."""
    assert name_of(command.split()) == name
