"""The access to endpoints, from options of the command line."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from rlship_agents.scrape.fetch import Access
from rlship_sidecar.errors import UsageProblem


def from_options(token_file: str | None, ca_file: str | None, *, insecure: bool, proxy: str | None) -> Access:
    """The access that these options describe. Raises UsageProblem."""
    tls: ssl.SSLContext | None = None
    if ca_file is not None:
        try:
            tls = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as problem:
            raise UsageProblem(
                f"--ca-file {ca_file}: {getattr(problem, 'strerror', None) or problem}",
                "give a file of PEM certificates",
            ) from None
    if insecure:
        tls = tls or ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return Access(token_file, tls, None if proxy is None else _proxy(proxy))


def _proxy(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or parts.scheme != "http":
        raise UsageProblem(f"--proxy {text}: not an HTTP proxy", "give host and port: --proxy proxy.example.org:3128")
    return host, port
