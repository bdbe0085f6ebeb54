"""A machine that systemd booted, in a container without a network."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.containers.engine import Engine
from tests.kit.waiting import wait_until

# What systemd needs to set up units' sandboxes, as it can on a machine of its own.
CAPABILITIES = "SYS_ADMIN,SETPCAP,NET_ADMIN,SYS_PTRACE,MKNOD,AUDIT_WRITE,AUDIT_CONTROL"
# On a machine of its own systemd does that itself. Without it no service sees its credentials.
INIT = "mount --make-rshared / && exec /sbin/init"
BOOT_S = 120.0
NO_ENVIRONMENT: Mapping[str, str] = {}


class CommandFailed(AssertionError):
    """A command in the machine that failed; the text is what it said."""


class Machine:
    """`machine.sh("…")` runs a shell there as root, or as another user."""

    def __init__(self, engine: Engine, image: str, name: str, mounts: Mapping[Path, str]) -> None:
        self.name = name
        self._engine = engine
        self.mounts = mounts
        options = [
            "--systemd=always",
            f"--cap-add={CAPABILITIES}",
            "--network=none",
            "--hostname=lab",
            "--read-only=false",
        ]
        options += [
            "--security-opt=seccomp=unconfined",
            "--security-opt=unmask=ALL",
            "--security-opt=apparmor=unconfined",
        ]
        for here, there in mounts.items():
            options += ["-v", f"{here}:{there}"]
        engine("create", "--name", name, *options, image, "/bin/sh", "-c", INIT)

    def boot(self) -> float:
        """Start it, or start it again; returns the seconds until it is up."""
        began = time.monotonic()
        self.start()

        def up() -> bool:
            told = self.tried("systemctl is-system-running").stdout.strip()
            return told in ("running", "degraded")

        wait_until(up, lambda: f"a machine that is up: {self.tried('systemctl list-jobs').stdout}", timeout_s=BOOT_S)
        return time.monotonic() - began

    def start(self) -> None:
        """Start it, and wait for its manager alone."""
        self._engine("start", self.name)
        wait_until(lambda: self.tried("systemctl list-jobs").returncode == 0, "systemd's manager", timeout_s=BOOT_S)

    def cut_power(self) -> None:
        """End every process of it at once."""
        self._engine("kill", "-s", "KILL", self.name)
        self._engine("wait", self.name)

    def sh(
        self,
        script: str,
        *,
        user: str = "root",
        environment: Mapping[str, str] = NO_ENVIRONMENT,
        limit_s: float = 300.0,
    ) -> str:
        """What a shell prints; raises CommandFailed."""
        done = self.tried(script, user=user, environment=environment, limit_s=limit_s)
        if done.returncode:
            raise CommandFailed(f"`{script}` as {user}: {done.returncode}\n{done.stdout}{done.stderr}".strip())
        return done.stdout.strip()

    def tried(
        self,
        script: str,
        *,
        user: str = "root",
        environment: Mapping[str, str] = NO_ENVIRONMENT,
        limit_s: float = 300.0,
    ) -> subprocess.CompletedProcess[str]:
        """The same, whatever its exit code."""
        given = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        words = ["exec", "-u", user, *given, self.name, "bash", "-euc", script]
        return self._engine.tried(*words, limit_s=limit_s)

    def write(self, path: str, text: str, *, mode: str = "644") -> None:
        """Write a file there, and the folders that it lies in."""
        self._engine("exec", "-i", self.name, "install", "-D", "-m", mode, "/dev/stdin", path, given=text)

    def read(self, path: str) -> str:
        """What a file there holds; "" without such a file."""
        return self.tried(f"cat {shlex.quote(path)}").stdout


class Unit:
    """One unit of the system's manager, or of a user's."""

    def __init__(self, machine: Machine, template: str, folder: str, user: str = "") -> None:
        self.machine, self.template, self.user = machine, template, user
        self.name = machine.sh(f"systemd-escape --path --template={template} {shlex.quote(folder)}")
        self.instance = self.name.partition("@")[2].removesuffix(".service")

    def ctl(self, verb: str, *words: str) -> str:
        """`systemctl VERB UNIT`. Raises CommandFailed with what systemd and the service say."""
        try:
            return self._run(shlex.join(["systemctl", *self._manager(), verb, *words, self.name]))
        except CommandFailed as problem:
            raise CommandFailed(f"{problem}\n{self.explain()}") from problem

    def show(self, *names: str) -> list[str]:
        """Properties, in that order."""
        told = self._run(shlex.join(["systemctl", *self._manager(), "show", f"-p{','.join(names)}", self.name]))
        values = dict(line.split("=", 1) for line in told.splitlines())
        return [values[name] for name in names]

    def add(self, name: str, text: str) -> None:
        """Write a drop-in for this instance, as `systemctl edit` does."""
        self.machine.write(f"{self._drop_ins()}/{name}.conf", text)
        self._run(shlex.join(["systemctl", *self._manager(), "daemon-reload"]))

    def drop(self) -> None:
        """Remove all drop-ins of this instance."""
        self.machine.sh(f"rm -rf {shlex.quote(self._drop_ins())}")
        self._run(shlex.join(["systemctl", *self._manager(), "daemon-reload"]))

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = 120.0) -> float:
        """Wait, and say what systemd says of the unit if that takes too long."""
        return wait_until(condition, lambda: f"{what}: {self.explain()}", timeout_s=timeout_s)

    def explain(self) -> str:
        """What systemd and the service say."""
        manager = " ".join(self._manager())
        return self._tried(f"systemctl {manager} status -n 30 --no-pager -l {shlex.quote(self.name)}")

    def _drop_ins(self) -> str:
        top = f"/home/{self.user}/.config/systemd/user" if self.user else "/etc/systemd/system"
        return f"{top}/{self.name}.d"

    def _manager(self) -> list[str]:
        return ["--user"] if self.user else []

    def _run(self, script: str) -> str:
        return self.machine.sh(script, user=self.user or "root", environment=environment(self.machine, self.user))

    def _tried(self, script: str) -> str:
        told = environment(self.machine, self.user)
        return self.machine.tried(script, user=self.user or "root", environment=told).stdout


def environment(machine: Machine, user: str) -> dict[str, str]:
    """What a login sets for a user's systemctl; nothing for root's."""
    if not user:
        return {}
    number = machine.sh(f"id -u {user}")
    return {"XDG_RUNTIME_DIR": f"/run/user/{number}", "HOME": f"/home/{user}"}
