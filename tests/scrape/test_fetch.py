"""One answer within bounds, from servers that are well, ill and hostile."""

from __future__ import annotations

import gzip
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlship_agents.scrape.access import from_options
from rlship_agents.scrape.connection import Deadline
from rlship_agents.scrape.endpoints import parse
from rlship_agents.scrape.fetch import Access, Fetched, Limits, ScrapeProblem, fetch
from rlship_sidecar.errors import UsageProblem
from tests.kit.tools import needed
from tests.scrape.servers import TEXT, Answer, raw, serving

QUICK = Limits(connect_s=0.5, silent_s=0.5, total_s=1.0, most_bytes=100_000)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


def ask(url: str, access: Access | None = None, limits: Limits = QUICK) -> Fetched:
    return fetch(parse(url), limits, access or Access(), Deadline(limits.total_s))


def why_not(url: str, access: Access | None = None, limits: Limits = QUICK) -> str:
    """The problem that asking ends with, soon."""
    began = time.monotonic()
    with pytest.raises(ScrapeProblem) as problem:
        ask(url, access, limits)
    assert time.monotonic() - began < limits.total_s + 2
    return str(problem.value)


def drip(client: socket.socket, pieces: Callable[[], bytes]) -> None:
    """Send a little, again and again, for longer than anyone should wait."""
    for _ in range(200):
        client.sendall(pieces())
        time.sleep(0.05)


def test_an_answer() -> None:
    """The body as text, whether it is OpenMetrics, and a request that asks for plain text by its target."""
    with serving(lambda n: Answer("a 1 é\n".encode())) as server:
        assert ask(f"{server.url}?x=1") == Fetched("a 1 é\n", False)
    ((path, headers),) = server.requests
    assert path == "/metrics?x=1"
    assert headers["Accept"] == "text/plain;version=0.0.4,*/*;q=0.1"
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert "Authorization" not in headers
    kind = {"Content-Type": "application/openmetrics-text; version=1.0.0"}
    with serving(lambda n: Answer(b"# EOF\n", headers=kind)) as server:
        assert ask(server.url) == Fetched("# EOF\n", True)


def test_bytes_that_are_no_utf8() -> None:
    """They become replacement characters, so that the numbers beside them count."""
    with serving(lambda n: Answer(b'a{b="\xff\xfe"} 1\n')) as server:
        assert ask(server.url).text == 'a{b="��"} 1\n'


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(b"no", 500), "HTTP 500 Internal Server Error"),
        (Answer(b"no", 204), "HTTP 204 No Content"),
        (Answer(b"x" * 100_001), "longer than 100000 bytes"),
        (Answer(b"x", headers={"Content-Encoding": "br"}), "encoding 'br'"),
        (Answer(b"no gzip", headers={"Content-Encoding": "gzip"}), "gzip is damaged"),
        (Answer(gzip.compress(b"a 1\n")[:-4], headers={"Content-Encoding": "gzip"}), "broke off"),
        (Answer(gzip.compress(b"a 1\n") + b"junk", headers={"Content-Encoding": "gzip"}), "gzip is damaged"),
        (Answer(gzip.compress(b"a 1\n") + gzip.compress(b"")[:9], headers={"Content-Encoding": "gzip"}), "broke off"),
        (Answer(gzip.compress(b"0" * 5_000_000), headers={"Content-Encoding": "gzip"}), "longer than 100000 bytes"),
        (Answer(b"short", headers={"Content-Length": "50"}), "broke off"),
        (Answer(b"", 302, {"Location": "http://10.9.8.7/metrics"}), "redirect to 'http://10.9.8.7/metrics'"),
        (Answer(b"", 302, {"Location": "file:///etc/passwd"}), "redirect to"),
        (Answer(b"", 302), "more than 3 redirects"),
        (Answer(b"", 307, {"Location": "/metrics"}), "more than 3 redirects"),
    ],
)
def test_bad_answers_are_named(answer: Answer, reason: str) -> None:
    """Whatever is wrong with an answer, the reason says it."""
    with serving(lambda n: answer) as server:
        assert reason in why_not(server.url)


def test_packed_answers_are_unpacked() -> None:
    """gzip is understood, although it is not asked for, in one member or several, with padding behind."""
    packed = gzip.compress(b"a 1\n" * 10_000) + gzip.compress(b"") + gzip.compress(b"a 1\n" * 10_000) + bytes(20_000)
    with serving(lambda n: Answer(packed, headers={"Content-Encoding": "gzip"})) as server:
        assert ask(server.url).text == "a 1\n" * 20_000


def test_redirects_on_the_same_server_are_followed() -> None:
    """Older servers send from /metrics to /metrics/."""
    with serving(lambda n: Answer(b"", 307, {"Location": "/metrics/"}) if n == 0 else Answer(b"a 1\n")) as server:
        assert ask(server.url).text == "a 1\n"
    assert [path for path, _ in server.requests] == ["/metrics", "/metrics/"]


@pytest.mark.parametrize(
    "talk",
    [
        lambda client: time.sleep(3),
        lambda client: drip(client, lambda: b"H"),
        lambda client: (client.sendall(b"HTTP/1.1 200 OK\r\n"), drip(client, lambda: b"X-Y: z\r\n")),
        lambda client: (client.sendall(HEAD + b"\r\n"), drip(client, lambda: b"a 1\n")),
        lambda client: (
            client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n"),
            drip(client, lambda: b"1\r\na\r\n"),
        ),
    ],
    ids=["silence", "status line", "headers", "body", "chunks"],
)
def test_slow_answers_end_at_the_deadline(talk: Callable[[socket.socket], object]) -> None:
    """A server that sends a byte now and then is given up like one that sends nothing."""
    with raw(talk) as url:
        assert why_not(url) == "no whole answer in time"


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        (lambda client: None, "no HTTP answer"),
        (lambda client: client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "no HTTP answer"),
        (lambda client: client.sendall(HEAD + b"X: y\r\n" * 500 + b"\r\n"), "no HTTP answer"),
        (lambda client: client.sendall(HEAD + b"X: " + b"y" * 70_000 + b"\r\n\r\n"), "no HTTP answer"),
        (lambda client: client.sendall(HEAD + b"\r\n" + b"a 1\n" * 100_000), "longer than 100000 bytes"),
        (lambda client: client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), "broke off"),
    ],
    ids=["hangs up", "another protocol", "many headers", "a long header", "endless", "bad chunk"],
)
def test_hostile_answers_are_bounded(talk: Callable[[socket.socket], object], reason: str) -> None:
    """No protocol, too many headers and endless bodies end with a reason."""
    with raw(talk) as url:
        assert reason in why_not(url)


def test_a_chunk_of_no_size_is_not_read_to_its_end() -> None:
    """http.client takes a chunk's size of -1 for all that comes: no more of it is read than an answer may have."""
    sent = []

    def talk(client: socket.socket) -> None:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n")
        for _ in range(400):
            client.sendall(b"a 1\n" * 16_384)
            sent.append(1)

    with raw(talk) as url:
        assert "longer than 100000 bytes" in why_not(url, limits=replace(QUICK, total_s=10.0))
    assert len(sent) < 390  # of 25 MiB


def test_nobody_is_there() -> None:
    """A closed port and an unknown name are reported as such."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert why_not(f"127.0.0.1:{port}") == "Connection refused"
    assert why_not("no-host.invalid", limits=Limits(total_s=20.0)) != ""
    assert why_not(f"http://{'a' * 70}.example/metrics", limits=Limits(total_s=20.0)) != ""


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a proxy that was asked for is asked, with the whole address."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(lambda n: "a 1\n") as server:
        assert ask(server.url).text == "a 1\n"
        access = from_options(None, None, insecure=False, proxy=f"127.0.0.1:{server.port}")
        assert ask("http://no-host.invalid:80/metrics", access).text == "a 1\n"
    assert server.requests[-1][0] == "http://no-host.invalid:80/metrics"
    assert server.requests[-1][1]["Host"] == "no-host.invalid:80"


def test_a_token_is_read_for_each_request(tmp_path: Path) -> None:
    """A token that is renewed in its file is used; one that could break the request is refused."""
    file = tmp_path / "token"
    access = Access(token_file=str(file))
    with serving(lambda n: "a 1\n") as server:
        for token in ("one", "two\n"):
            file.write_text(token)
            ask(server.url, access)
        assert [headers["Authorization"] for _, headers in server.requests] == ["Bearer one", "Bearer two"]
        file.write_text("x\r\nX-Evil: 1")
        assert "one token" in why_not(server.url, access)
        file.unlink()
        assert "No such file" in why_not(server.url, access)
    assert len(server.requests) == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that signs itself, with its key."""
    openssl = needed("openssl")
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    made = (
        f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {file}.key -out {file} "
        "-addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(made.split(), check=True, capture_output=True)
    return file


@pytest.fixture
def secured(certificate: Path) -> Iterator[int]:
    """The port of a TLS server that answers each request with one metric."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, f"{certificate}.key")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(client, server_side=True) as secure:
                    secure.recv(65536)
                    secure.sendall(HEAD + b"Content-Length: 4\r\n\r\na 1\n")
            except OSError:
                client.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.mark.toolchain
def test_certificates_are_checked(secured: int, certificate: Path) -> None:
    """A certificate that no authority vouches for is refused, unless it is given or all are to be trusted."""
    limits = Limits(total_s=10.0)
    url = f"https://127.0.0.1:{secured}/metrics"
    assert "certificate is not trusted" in why_not(url, limits=limits)
    trusting = from_options(None, str(certificate), insecure=False, proxy=None)
    assert ask(url, trusting, limits).text == "a 1\n"
    assert ask(url, from_options(None, None, insecure=True, proxy=None), limits).text == "a 1\n"


@pytest.mark.toolchain
def test_tls_goes_through_a_proxy(secured: int, certificate: Path) -> None:
    """A proxy that was asked for is asked to connect, and the certificate is that of the server behind it."""

    def relay(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with socket.create_connection(("127.0.0.1", secured)) as server:
            back = threading.Thread(target=pump, args=(server, client))
            back.start()
            pump(client, server)
            back.join()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    with raw(relay) as proxy:
        access = from_options(None, str(certificate), insecure=False, proxy=proxy.removesuffix("/metrics"))
        assert ask(f"https://127.0.0.1:{secured}/metrics", access, Limits(total_s=10.0)).text == "a 1\n"


def test_wrong_options_are_told(tmp_path: Path) -> None:
    """A file that holds no certificate, one that is not there, and what is no proxy are usage errors."""
    (tmp_path / "not.pem").write_text("no")
    for ca, proxy in ((tmp_path / "not.pem", None), (tmp_path / "none.pem", None), (None, "https://x:1"), (None, "x")):
        with pytest.raises(UsageProblem):
            from_options(None, str(ca) if ca else None, insecure=False, proxy=proxy)


def test_the_text_type_is_the_usual_one() -> None:
    """The servers of these tests say of themselves what a client library says."""
    assert TEXT.startswith("text/plain; version=0.0.4")
