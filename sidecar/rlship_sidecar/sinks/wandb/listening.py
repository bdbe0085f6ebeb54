"""One thread reads the messages of all W&B children, however many there are. It ends with the last of them."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

READ_BYTES = 1 << 16

Take = Callable[[bytes], None]


@dataclass(slots=True)
class Stream:
    """A child's output. `ended` is set after the last line was handed on and `at_end` was called."""

    fd: int
    take: Take
    at_end: Callable[[], None]
    ended: threading.Event = field(default_factory=threading.Event)
    rest: bytes = b""

    def read(self) -> bool:
        """Hand on the lines so far; returns whether more may come. The last line needs no end."""
        data = os.read(self.fd, READ_BYTES)
        *lines, self.rest = (self.rest + data).split(b"\n")
        if not data and self.rest:
            lines, self.rest = [self.rest], b""
        for line in lines:
            self.take(line)
        return bool(data)


class Listener:
    """Hands on lines of many streams."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selector: selectors.BaseSelector | None = None
        self._wake = -1
        self._new: list[Stream] = []

    def add(self, fd: int, take: Take, at_end: Callable[[], None]) -> Stream:
        """Read `fd`, which is closed at its end. `take` gets each line; neither call may wait for long.

        Raises RuntimeError if the system allows no further thread.
        """
        stream = Stream(fd, take, at_end)
        with self._lock:
            if self._selector is None:
                reading, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                self._selector = selectors.DefaultSelector()
                self._selector.register(reading, selectors.EVENT_READ)
                thread = threading.Thread(
                    target=self._listen, args=(self._selector, reading), name="rlship-wandb-children", daemon=True
                )
                try:
                    thread.start()
                except BaseException:
                    self._end(reading)
                    raise
            self._new.append(stream)
            os.write(self._wake, b"x")
        return stream

    def _end(self, reading: int) -> None:
        assert self._selector is not None
        self._selector.close()
        os.close(reading)
        os.close(self._wake)
        self._selector, self._wake = None, -1

    def _listen(self, selector: selectors.BaseSelector, reading: int) -> None:
        count = 0
        while True:
            for key, _ in selector.select():
                stream: Stream | None = key.data
                if stream is None:
                    os.read(reading, READ_BYTES)
                elif not stream.read():
                    selector.unregister(stream.fd)
                    os.close(stream.fd)
                    count -= 1
                    try:
                        stream.at_end()
                    finally:
                        stream.ended.set()
            with self._lock:
                for stream in self._new:
                    selector.register(stream.fd, selectors.EVENT_READ, stream)
                    count += 1
                self._new.clear()
                if not count:
                    self._end(reading)
                    return


LISTENER = Listener()
