"""Programs in processes forked from one that has already imported a package which takes long to import."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

# A program gets all that it would get as `python PATH`: its name, folder, variables and streams, an empty `__main__`
# and an end of the interpreter of its own. It only finds the package imported.
SERVER = """
def _program():
    import {package}
    import json, os, sys, tempfile, warnings
    for line in sys.stdin:
        asked = json.loads(line)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package may have started threads
            pid = os.fork()
        if pid == 0:
            break
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    else:
        os._exit(0)
    os.setsid()
    for place, name in enumerate((os.devnull, asked["out"], asked["err"])):
        opened = os.open(name, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, place)
        os.close(opened)
    sys.stdin = open(0, closefd=False)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    tempfile.tempdir = None
    {renew}
    path = globals()["__file__"] = asked["path"]
    sys.argv[:] = [path]
    sys.path[0] = os.path.dirname(path)
    with open(path) as source:
        return compile(source.read(), path, "exec")
exec(globals().pop("_program")())
"""


class Forked:
    """A process with `package` imported, which forks for one program after the other. It ends with this one.

    `renew` is a statement that each program begins with: it makes anew what the package made at its import and a
    program removes at its end.
    """

    def __init__(self, package: str, env: Mapping[str, str], renew: str = "pass") -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER.format(package=package, renew=renew)],
            cwd=self._folder.name,
            env={**env, "TMPDIR": self._folder.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def run(self, path: Path, cwd: Path, env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run the file `path` to its end; after `timeout_s` it is killed with all that it started."""
        assert self._process.stdin is not None and self._process.stdout is not None
        out, err = (Path(self._folder.name, name) for name in ("out", "err"))
        out.write_bytes(b"")
        err.write_bytes(b"")
        asked = {"path": str(path), "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        guard = threading.Timer(timeout_s, os.killpg, (pid, signal.SIGKILL))
        guard.start()
        try:
            code = int(self._process.stdout.readline())
        finally:
            guard.cancel()
        return subprocess.CompletedProcess([str(path)], code, out.read_text(), err.read_text())

    def close(self) -> None:
        """End it and wait for its end."""
        self._process.communicate()
        self._folder.cleanup()
