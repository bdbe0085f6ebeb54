"""A process that decodes for a replay on this machine: `rlship_sidecar.replay.worker FD`.

Tasks come over the socket FD and answers go back over it, each a message of `multiprocessing.connection`. The process
ends when the other side does, however that ends.
"""

from __future__ import annotations

import gc
import pickle
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection

from rlship_sidecar.replay.decoding import Decoding


def main(fd: int) -> None:
    """Answer tasks until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the replay, which ends this process
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    connection = Connection(fd)
    answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # The socket's buffer is small; a thread sends, so that decoding continues while it is full.
    threading.Thread(target=_send, args=(connection, answers), daemon=True).start()
    decoding = Decoding()
    answers.put(b"")  # it is up
    try:
        while True:
            answers.put(decoding.answer(pickle.loads(connection.recv_bytes())))
    except (EOFError, ConnectionError):
        return


def _send(connection: Connection, answers: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            connection.send_bytes(answers.get())
    except OSError:
        return


if __name__ == "__main__":
    main(int(sys.argv[1]))
