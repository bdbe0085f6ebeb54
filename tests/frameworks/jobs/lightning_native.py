"""A training with Lightning on two spawned ranks, which names rlship nowhere: `python lightning_native.py DIR TRUTH`
writes to TRUTH what a logger of its own was given: step -> metric -> value. `RLSHIP_DIR` is DIR.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader


class Line(LightningModule):
    """A line through numbers, with metrics of steps, epochs and validations."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.line = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        loss = (self.line(batch) - batch).square().mean()
        self.log("train_loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", (self.line(batch) - batch).square().mean(), sync_dist=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])


class Recorder(CSVLogger):
    """Keeps what it is given, in the first rank."""

    def __init__(self, folder: str, truth: str) -> None:
        super().__init__(folder)
        self._truth = truth

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        super().log_metrics(metrics, step)
        if torch.distributed.get_rank() == 0:
            known = json.loads(Path(self._truth).read_text()) if Path(self._truth).exists() else {}
            known.setdefault(str(step), {}).update(metrics)
            Path(self._truth).write_text(json.dumps(known))


def main(folder: str, truth: str) -> None:
    torch.manual_seed(1)
    data = DataLoader(torch.randn(32, 1), batch_size=4)
    trainer = Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=2,
        strategy="ddp_spawn",
        log_every_n_steps=1,
        logger=Recorder(f"{folder}/csv", truth),
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(Line(lr=0.1), data, data)
    files = [path.read_text().splitlines() for path in (Path(folder) / "rlship").glob("*.jsonl")]
    opened = [json.loads(lines[0]) for lines in files]
    found = {(one["rank"], one["world"], one["labels"]["source"]) for one in opened}
    assert found == {(rank, 2, "lightning") for rank in (0, 1)}, found
    assert any('"config":{"lr":0.1}' in line for lines in files for line in lines), files


if __name__ == "__main__":
    main(*sys.argv[1:])
