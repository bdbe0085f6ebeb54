"""The callback of transformers' Trainer by its public name: `callbacks=[RlshipCallback()]`.

`report_to="rlship"` does the same. Each `import rlship` makes that name known to transformers.
"""

from __future__ import annotations

from .trainer import RlshipCallback

__all__ = ["RlshipCallback"]
