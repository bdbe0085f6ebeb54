"""`report_to="rlship"` in transformers and in TRL: importing this module makes the name known.

import rlship.integrations.transformers

transformers looks for no plug-ins, so a script needs this line, or `callbacks=[RlshipCallback()]`.
"""

from __future__ import annotations

from .trainer import RlshipCallback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["RlshipCallback", "register"]


def register(integrations: Any) -> None:
    """Make `report_to="rlship"` known to `integrations`, the module `transformers.integrations.integration_utils`."""
    integrations.INTEGRATION_TO_CALLBACK["rlship"] = RlshipCallback


def _register() -> None:
    from importlib import import_module

    register(import_module("transformers.integrations.integration_utils"))


_register()
