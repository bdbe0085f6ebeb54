"""A plugin of pytest: a counterexample will do as it is found. To make it small can take longer than to find it."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("hasty", phases=(Phase.explicit, Phase.generate), database=None)
settings.load_profile("hasty")
