"""Everything that the settings and the environment ask to be told of the daemon, put together."""

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
    """The pulse to give to the daemon. Around it the server runs, if `config` has a port for it."""
    told = []
    if config.metrics_file is not None:
        from rlship_sidecar.observe.textfile import Textfile  # slow, and only needed where it is asked for

        told.append(Textfile(Path(config.metrics_file), say))
    pulse = Pulse(from_environment(env), told)
    with ExitStack() as stack:
        if config.metrics_port is not None:
            from rlship_sidecar.observe.server import METRICS, serving

            port = stack.enter_context(serving(config.metrics_address, config.metrics_port, pulse))
            if not quiet:
                host = f"[{config.metrics_address}]" if ":" in config.metrics_address else config.metrics_address
                say(f"metrics at http://{host}:{port}{METRICS}")
        yield pulse
