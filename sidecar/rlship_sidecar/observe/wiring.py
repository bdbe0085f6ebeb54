"""Sets up the reports on the daemon that the settings and the environment ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rlship_sidecar.config import Config
from rlship_sidecar.observe.notify import from_environment
from rlship_sidecar.observe.pulse import Pulse


@contextmanager
def observed(
    config: Config, env: MutableMapping[str, str], *, say: Callable[[str], None], quiet: bool = False
) -> Iterator[Pulse]:
    """Yield the pulse for the daemon, and run the metrics server meanwhile if `config` has a port for it."""
    on_report = []
    if config.metrics_file is not None:
        from rlship_sidecar.observe.textfile import Textfile  # slow to import, so only on request

        on_report.append(Textfile(Path(config.metrics_file), say))
    pulse = Pulse(from_environment(env), on_report)
    with ExitStack() as stack:
        if config.metrics_port is not None:
            from rlship_sidecar.observe.server import METRICS, serving

            port = stack.enter_context(serving(config.metrics_address, config.metrics_port, pulse))
            if not quiet:
                host = f"[{config.metrics_address}]" if ":" in config.metrics_address else config.metrics_address
                say(f"metrics at http://{host}:{port}{METRICS}")
        yield pulse
