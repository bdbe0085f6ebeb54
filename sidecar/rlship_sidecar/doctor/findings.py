"""What facts mean: each finding is one line of what is, and what to do where something is to mend. Pure."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlship_sidecar.doctor.facts import ExperimentFiles, Machine, NamedFolder, Server, Space
from rlship_sidecar.errors import FORMATS, UNKNOWN, RlshipError, few_of
from rlship_sidecar.report.claims import CLOCK_SLACK_S
from rlship_sidecar.report.ended import EndedProcesses
from rlship_sidecar.report.status import Status
from rlship_sidecar.report.terminal import counted, duration, size

LEAST_FREE = 1 << 30  # a store, W&B's files and a job's lines fit in for some hours
LEAST_FILES = 1000
LEAST_THREADS = 200  # the sidecar's own, W&B's clients, and looks at files that hang
TROUBLE_S = 10.0  # an outage that ends sooner is not reported
_NOT_KEPT = ("tmpfs", "ramfs", "overlay")


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """What is so, `about` which subject, of which `experiment` ("": of all). `do` is what a person can do, or "".

    `mend`: something is to mend.
    """

    about: str
    what: str
    do: str = ""
    mend: bool = False
    experiment: str = ""


def of_machine(machine: Machine, experiments: int) -> Iterator[DoctorFinding]:
    """Findings about packages and limits; `experiments` are to be open at a time."""
    known = ", ".join(f"{name} {version}" for name, version in sorted(machine.installed.items()))
    yield DoctorFinding("packages", f"rlship {machine.version}, Python {machine.python}, {known}")
    wrong = [
        f"{name}{wanted}"
        for name, wanted in sorted(machine.wanted.items())
        if name not in machine.installed or not fits(machine.installed[name], wanted)
    ]
    if wrong:
        lacking = ", ".join(f"{name} is {machine.installed.get(name, 'missing')}" for name in map(_name, wrong))
        yield DoctorFinding("packages", f"{lacking}", f"pip install {shlex.join(wrong)}", True)
    short = machine.places < experiments
    yield DoctorFinding(
        "limits",
        f"{machine.descriptors} descriptors: {counted(machine.places, 'experiment')} may be open at a time"
        + (f", of {experiments} that are not finished" if short else ""),
        "raise ulimit -Hn, or LimitNOFILE of the service; until then they take turns" if short else "",
        short,
    )
    if machine.threads is not None and machine.threads < LEAST_THREADS:
        yield DoctorFinding(
            "limits",
            f"{counted(machine.threads, 'thread')} left to start",
            "raise ulimit -u, pids.max of the container, or TasksMax of the service",
            True,
        )


def fits(version: str, wanted: str) -> bool:
    """True if a version is within bounds such as `>=0.31,<0.32`."""
    for sign, bound in re.findall(r"(>=|<)\s*([\d.]+)", wanted):
        if (_numbers(version) >= _numbers(bound)) != (sign == ">="):
            return False
    return True


def _name(wanted: str) -> str:
    return re.split(r"[<>=!~]", wanted, maxsplit=1)[0]


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def of_server(server: Server) -> DoctorFinding:
    """The finding about W&B's key and server."""
    if server.mode == "offline":
        return DoctorFinding("wandb", "runs are written offline, as the settings say")
    if not server.key and server.mode == "auto":
        do = "to send them, run `wandb login` or set WANDB_API_KEY"
        return DoctorFinding("wandb", f"no API key for {server.address}: runs are written offline", do)
    if not server.key:
        return DoctorFinding(
            "wandb", f"no API key for {server.address}", "run `wandb login`, or set WANDB_API_KEY for the sidecar", True
        )
    if server.trouble:
        return DoctorFinding(
            "wandb",
            f"{server.address} gives no answer: {server.trouble}",
            "check the network and proxies, or write runs offline: WANDB_MODE=offline",
            True,
        )
    if server.is_rejected:
        return DoctorFinding(
            "wandb", f"{server.address} does not take the API key of {server.key}", "give one of its own", True
        )
    return DoctorFinding("wandb", f"{server.address} answers, and takes the API key of {server.key}")


def of_none(directory: object, unknown: Sequence[str]) -> DoctorFinding:
    """The finding about a folder without an experiment; `unknown`: files that are named like those of a framework."""
    if unknown:
        what = f"none in {directory} yet; rlship does not know the format of {few_of(unknown)}"
        return DoctorFinding("experiments", what, FORMATS)
    return DoctorFinding("experiments", f"none in {directory} yet")


def of_problem(about: str, problem: RlshipError) -> DoctorFinding:
    """An error of another part, as a finding."""
    return DoctorFinding(about, problem.message, problem.hint, True)


def of_folder(folder: NamedFolder) -> Iterator[DoctorFinding]:
    """Findings about the folder that was named."""
    kind, at = folder.filesystem.type, folder.filesystem.mount or "/"
    if folder.filesystem.local:
        text = f"{kind} at {at}, local: change events come, and a row appears well under a second after its last line"
        if kind in _NOT_KEPT:
            text += "; its files go with the machine or the container"
        yield DoctorFinding("filesystem", text)
    else:
        yield DoctorFinding(
            "filesystem",
            f"{kind} at {at}, of a network: writers sync every 0.5 s or less often, the sidecar polls, and a row "
            "appears a second or two after its last line (docs/nfs.md)",
        )
    yield from map(_of_space, folder.spaces)
    if folder.unused:
        above = folder.unused.rpartition("/")[0]
        yield DoctorFinding(
            "settings",
            f"{folder.unused} does not count where {folder.path} is watched by itself",
            f"rlship watch {shlex.quote(above)}, or --config {shlex.quote(folder.unused)}",
        )
    if folder.overridden:
        yield DoctorFinding("settings", f"{', '.join(folder.overridden)} in the environment wins over rlship.toml")


def _of_space(space: Space) -> DoctorFinding:
    if space.is_read_only:
        return DoctorFinding(
            "space", f"{space.path} is mounted read-only", "mount it for writing, or log elsewhere", True
        )
    text = f"{size(space.free)} free at {space.path}"
    few = space.files is not None and space.files < LEAST_FILES
    if few:
        text += f", and room for {counted(space.files or 0, 'more file')}"
    short = few or space.free < LEAST_FREE
    return DoctorFinding(
        "space", text, "make room: lines wait in memory, and are dropped once that is full" if short else "", short
    )


def of_files(files: ExperimentFiles, watched: bool) -> Iterator[DoctorFinding]:
    """Findings about permissions and about the clock of the files; `watched`: a sidecar owns the experiment."""
    found = list(of_modes(files, watched))
    yield from found
    if not found:
        yield DoctorFinding("permissions", f"{files.experiment.path} can be read and written by this user")
    if files.ahead_s > CLOCK_SLACK_S:
        yield DoctorFinding(
            "clocks",
            f"its newest file is {duration(files.ahead_s)} ahead of this host's clock",
            "set the clocks of all hosts and of the file server by NTP",
            True,
        )


def of_modes(files: ExperimentFiles, watched: bool) -> Iterator[DoctorFinding]:
    """Findings about who may read the files and keep state beside them."""
    above, within = files.experiment, files.writers
    shared = above.mode & stat.S_IWGRP
    of_group = f"of the group {above.group}, whose members may write in {above.path} (mode {above.mode:04o})"
    if shared and within is not None and not within.mode & stat.S_IWGRP:
        yield DoctorFinding(
            "permissions",
            f"{within.path} has mode {within.mode:04o}: other users {of_group}, can neither log nor keep state there",
            f"chmod g+ws {shlex.quote(within.path)}, and start the job with umask 0002",
            True,
        )
    if shared and within is None and files.umask is not None and _shuts_out(files.umask, above.mode):
        command = "" if above.mode & stat.S_ISGID else f"chmod g+s {shlex.quote(above.path)}, or "
        yield DoctorFinding(
            "permissions",
            f"with umask {files.umask:04o} the first process makes a folder `rlship` that shuts out other users "
            f"{of_group}",
            f"{command}start the job with umask 0002",
            True,
        )
    if files.unreadable:
        yield DoctorFinding(
            "permissions",
            f"{counted(files.unreadable, 'file')} cannot be read, such as {files.example}",
            "run the sidecar as a user who may read them, or allow it: chmod g+r",
            True,
        )
    if not files.keeps_state.may_write and not watched:
        yield DoctorFinding(
            "permissions",
            f"this user cannot write in {files.keeps_state.path} (mode {files.keeps_state.mode:04o}), where a sidecar "
            "keeps its state",
            "run the sidecar as its owner, or give it a folder of its own: --state-dir",
            True,
        )


def _shuts_out(umask: int, mode: int) -> bool:
    """Whether a writer makes a folder in which the group cannot write, in one of a mode that lets it. With the
    set-group-ID bit a writer lets the group write that the umask lets read.
    """
    return bool(umask & (stat.S_IRGRP | stat.S_IXGRP if mode & stat.S_ISGID else stat.S_IWGRP))


def of_status(status: Status, ended: EndedProcesses, t: float, version: str) -> Iterator[DoctorFinding]:
    """Findings in the last status of an experiment. `t` is the present in Unix seconds, `version` that of rlship."""
    if status.running:
        yield DoctorFinding("lag", _behind(status))
    if status.version and status.version != version:
        yield DoctorFinding(
            "sidecar", f"it is rlship {status.version}, this is {version}", "stop it and start the new one: it goes on"
        )
    for claim in status.claims:
        yield DoctorFinding("ranks", claim, mend=True)
    for sink in status.sinks:
        if sink.state == "refused" or (sink.error and sink.trouble_s >= TROUBLE_S):
            yield DoctorFinding(
                sink.name, sink.error or "refused", sink.advice or "docs/troubleshooting.md, Delivery", True
            )
    if dead := status.dead_letter_count + status.dead_value_count:
        which = shlex.quote(status.experiment)
        yield DoctorFinding("lines", f"lines or values that could not be used: {dead}", f"rlship check {which}", True)
    if unknown := [note.removesuffix(f": {UNKNOWN}") for note in status.notes if note.endswith(UNKNOWN)]:
        yield DoctorFinding("experiments", f"rlship does not know the format of {few_of(unknown)}", FORMATS)
    if ended.writers:
        *lines, do = ended.lines(status, t)
        yield DoctorFinding("writers", "; ".join(lines), do.strip(), True)
    elif awaited := [writer for writer in status.writers if writer.awaited]:
        silent_s = max(ended.silent_s.get(writer.file, 0.0) for writer in awaited)
        yield DoctorFinding(
            "writers", f"{len(awaited)} of the job's processes go on, silent for {duration(silent_s)} at most"
        )
    yield from _of_clocks(status)


def _behind(status: Status) -> str:
    units = sum(actor.open_units for actor in status.actors)
    words = [f"{counted(sum(writer.unread for writer in status.writers), 'byte')} not read"]
    if units:
        lag_s = max(actor.lag_s for actor in status.actors)
        words.append(f"{counted(units, 'step')} no rows yet, the oldest for {duration(lag_s)}")
    words += [f"{actor.actor}: {actor.note}" for actor in status.actors if actor.note]
    words += [f"{sink.name} lacks {status.rows - sink.next_row} of {status.rows} rows" for sink in status.sinks]
    return "; ".join(words)


def _of_clocks(status: Status) -> Iterator[DoctorFinding]:
    if not status.clocks:
        return
    far = [clock for clock in status.clocks if abs(clock.offset_s) - clock.error_s > CLOCK_SLACK_S]
    for clock in far:
        way = "ahead of" if clock.offset_s > 0 else "behind"
        yield DoctorFinding(
            "clocks",
            f"{clock.host} is {abs(clock.offset_s):.1f} s {way} the file server (± {clock.error_s:.2g} s), which rows "
            "allow for",
            "set its clock by NTP",
            not status.finished,
        )
    if not far:
        most = max(abs(clock.offset_s) for clock in status.clocks)
        yield DoctorFinding("clocks", f"{counted(len(status.clocks), 'host')} within {most:.2g} s of the file server")
