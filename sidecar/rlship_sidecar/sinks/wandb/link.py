"""The sidecar's end of the child process that talks to W&B."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import psutil  # type: ignore[import-untyped, unused-ignore]

from rlship_sidecar.child_process import module_command
from rlship_sidecar.plainfiles import make_plain
from rlship_sidecar.sinks.contract import SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.wandb.listening import LISTENER
from rlship_sidecar.sinks.wandb.protocol import FromChild, Opened, OpenRequest, ToChild, exception_of

logger = logging.getLogger("rlship.sinks.wandb")

OPEN_S = 180.0
END_S = 1.0  # between the end of a child's output and its exit
# Variables for the job's own wandb runs: they must not make our run one of those.
FOREIGN = frozenset(
    {
        "WANDB_DIR",
        "WANDB_DISABLED",
        "WANDB_FORK_FROM",
        "WANDB_LAUNCH",
        "WANDB_LAUNCH_CONFIG_PATH",
        "WANDB_MODE",
        "WANDB_RESUME",
        "WANDB_RESUME_FROM",
        "WANDB_RUN_ID",
        "WANDB_SERVICE",
        "WANDB_SILENT",
        "WANDB_SWEEP_ID",
        "WANDB_SWEEP_PARAM_PATH",
    }
)
# We set the client's internals, except the variables that a person may need to reach the server at all.
INNER = "WANDB_X_"
INNER_KEPT = frozenset({"WANDB_X_EXTRA_HTTP_HEADERS", "WANDB_X_PROXIES"})
KEY_VARIABLE = "WANDB_API_KEY"
KEY_FILE_VARIABLE = "WANDB_API_KEY_FILE"
CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"  # systemd's, of LoadCredential=
KEY_CREDENTIAL = "wandb_api_key"
_MAX_KEY_CHARACTERS = 4096


class ChildLink:
    """A running child. `opened` is its answer, `acked` the first row that the destination lacks, `described` the digest
    of what that shows of the run's data, `settled` the last flush after which it shows the summary that it should.
    """

    def __init__(
        self, request: OpenRequest, env: Mapping[str, str], folder: Path, log: Path, *, silent_s: float
    ) -> None:
        """Start the child in `folder`; the child and the client print to the file `log`.

        A child that sends nothing, or reads nothing, for `silent_s` seconds is given up: a running child sends Alive
        every 5 s.
        """
        self.opened: Opened | None = None
        self.acked = -1
        self.described = ""
        self.settled = 0
        self.trouble = ""
        self._failure: Exception | None = None
        self._flushes = 0
        self._closed = False
        self._silent_s = silent_s
        self._change = threading.Condition()
        self._heard = time.monotonic()
        with open(make_plain(log), "wb") as errors:
            self._process = subprocess.Popen(
                module_command("rlship_sidecar.sinks.wandb.child"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                cwd=folder,
                env=child_env(env),
                # A Ctrl-C at the terminal is meant for the sidecar, which then drains and closes.
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to_child: IO[bytes] = self._process.stdin
        # A stopped child reads nothing from the pipe: a write must not wait for ever.
        os.set_blocking(self._to_child.fileno(), False)
        self._log = log
        try:
            # A descriptor of its own: the listener closes it at the end.
            heard = os.dup(self._process.stdout.fileno())
            self._process.stdout.close()
            self._stream = LISTENER.add(heard, self._heard_line, self._at_end)
        except (OSError, RuntimeError):
            self._process.kill()
            self._process.wait()
            self._to_child.close()
            raise
        self.send({"open": request})

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def send(self, message: ToChild) -> None:
        """Send one message as JSON."""
        self.send_line(json.dumps(message).encode())

    def begin_flush(self) -> int:
        """Ask the child to report soon; returns the number that `settled` reaches once the summary is right."""
        self._flushes += 1
        self.send({"flush": self._flushes})
        return self._flushes

    def send_line(self, line: bytes) -> None:
        """Send a message that is JSON already. If the child is gone, raises the error of its last word."""
        data = memoryview(line + b"\n")
        fd = self._to_child.fileno()
        room = select.poll()
        room.register(fd, select.POLLOUT)
        took = time.monotonic()
        while data:
            try:
                data = data[os.write(fd, data) :]
                took = time.monotonic()
            except BlockingIOError:
                self.check()
                if time.monotonic() - took > self._silent_s:
                    raise self._silence("read nothing") from None
                room.poll(1000.0)
            except OSError as error:
                self._stream.ended.wait(5.0)
                raise self._failure or SinkUnavailable("sink wandb: its process is gone") from error

    def wait_opened(self) -> Opened:
        """Wait until the run is open; return the child's answer."""
        deadline = time.monotonic() + OPEN_S

        def answered() -> bool:
            if time.monotonic() > deadline:
                self._failure = SinkUnavailable(
                    f"sink wandb: its process {self.pid} has not opened the run within {OPEN_S:g} s"
                )
                raise self._failure
            return self.opened is not None

        self.wait(answered)
        assert self.opened is not None
        return self.opened

    def wait(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()`, called after every message of the child. Raises the error that prevents it."""
        with self._change:
            # Earlier silence does not count: perhaps this process was the one that was stopped.
            self._heard = time.monotonic()
            while not ready():
                self.check()
                silent = time.monotonic() - self._heard
                if silent > self._silent_s:
                    raise self._silence("sent nothing")
                self._change.wait(self._silent_s - silent + 0.01)

    def interrupt(self, why: SinkUnavailable) -> None:
        """From any thread: make a waiting call, and every later one, raise `why`."""
        with self._change:
            self._failure = self._failure or why
            self._change.notify_all()

    def _silence(self, what: str) -> Exception:
        """Give the child up, so that no later call waits for it again."""
        self._failure = self._failure or SinkUnavailable(
            f"sink wandb: its process {self.pid} {what} for {self._silent_s:g} s and may be stopped: it is replaced"
        )
        return self._failure

    def check(self) -> None:
        """Raise if the child failed."""
        if self._failure is not None:
            raise self._failure

    def close(self, timeout_s: float) -> bool:
        """Let the child finish, for `timeout_s` seconds at most, and make sure that it and wandb-core are gone.

        Returns whether it finished by itself.
        """
        clean = False
        try:
            if self._failure is None and timeout_s > 0:
                self.send({"close": True})
                self._process.wait(timeout_s)
                self._stream.ended.wait(5.0)
                clean = self._closed
        except (subprocess.TimeoutExpired, SinkUnavailable, SinkRefused):
            clean = False
        finally:
            self._end()
        return clean

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        core = None if self.opened is None else self.opened["core"]
        if core is not None:
            _kill_core(core)
        self._to_child.close()
        self._stream.ended.wait(5.0)

    def _heard_line(self, text: bytes) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if isinstance(message, dict):
            self._take(cast(FromChild, message))
        else:  # printed by startup code of the site, before the child takes over its output
            logger.warning("sink wandb: its process printed %r", text[:200])

    def _at_end(self) -> None:
        with suppress(subprocess.TimeoutExpired):  # the same thread listens to other children
            self._process.wait(END_S)
        with self._change:
            if self._failure is None and not self._closed:
                code = self._process.returncode
                how = "closed its output" if code is None else f"ended with status {code}"
                self._failure = SinkUnavailable(
                    f"sink wandb: its process {self.pid} {how}; what it printed is in {self._log}"
                )
            self._change.notify_all()

    def _take(self, message: FromChild) -> None:
        with self._change:
            self._heard = time.monotonic()
            if "opened" in message:
                self.opened, self.acked = message, message["opened"]
            elif "acked" in message:
                self.trouble, self.described, self.settled = "", message["described"], message["settled"]
                if message["acked"] is not None:
                    self.acked = max(self.acked, message["acked"])
            elif "trouble" in message:
                self.trouble = message["trouble"]
            elif "closed" in message:
                self._closed = True
            elif "alive" not in message:
                self._failure = exception_of(message, opened=self.opened is not None) or self._failure
            self._change.notify_all()


def _kill_core(pid: int) -> None:
    """End a wandb-core that outlived its parent. It ends by itself within two seconds, but the next child may be
    quicker.
    """
    try:
        process = psutil.Process(pid)
        if "wandb" in process.name():
            process.kill()
    except psutil.Error:
        return


def child_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a child: without those that are for the job's own runs, and the client's internal ones."""
    return {
        name: value
        for name, value in env.items()
        if name not in FOREIGN and (name in INNER_KEPT or not name.startswith(INNER))
    }


def environment() -> dict[str, str]:
    """The variables of this process, for the child, with the API key from its file if there is one."""
    return with_key(os.environ)


def with_key(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with WANDB_API_KEY.

    The sources, in this order: the variable itself, the content of the file that WANDB_API_KEY_FILE names, that of
    `wandb_api_key` in $CREDENTIALS_DIRECTORY. Without a source, or with an empty file, `env` is unchanged: the client's
    own ways (netrc) are left. The file is read at each start of the client, so that a new key needs no restart. Raises
    SinkRefused if it cannot be read or is not a key; the message never shows the content of the file.
    """
    kept = dict(env)
    if kept.get(KEY_VARIABLE):
        return kept
    path = kept.get(KEY_FILE_VARIABLE, "")
    if not path and (folder := kept.get(CREDENTIALS_VARIABLE)):
        path = os.path.join(folder, KEY_CREDENTIAL)
        if not os.path.exists(path):
            return kept
    key = _read_key(path) if path else ""
    if key:
        kept[KEY_VARIABLE] = key
    return kept


def _read_key(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_KEY_CHARACTERS + 1).strip()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise SinkRefused(
            f"sink wandb: the API key in {path} cannot be read: {why}. Make it readable for the sidecar's user, "
            f"or unset {KEY_FILE_VARIABLE}"
        ) from None
    if len(text) > _MAX_KEY_CHARACTERS or any(not "!" <= character <= "~" for character in text):
        raise SinkRefused(
            f"sink wandb: {path} holds no API key: allowed is one word of printable ASCII, and nothing else"
        )
    return text
