"""verl's plug-in. verl loads it in every process, by its entry point or by `VERL_USE_EXTERNAL_MODULES`, before the
modules that it patches.
"""

from __future__ import annotations

from .later import after_import
from .source import safely
from .verl_driver import SOURCE, patch_tracking
from .verl_ledger import patch_trainer
from .verl_workers import patch_profiler, patch_workers

after_import(
    {
        "verl.utils.tracking": lambda module: safely(SOURCE, patch_tracking, module),
        "verl.utils.profiler.profile": lambda module: safely(SOURCE, patch_profiler, module),
        "verl.trainer.ppo.ray_trainer": lambda module: safely(SOURCE, patch_trainer, module),
        "verl.workers.engine_workers": lambda module: safely(SOURCE, patch_workers, module),
    }
)
