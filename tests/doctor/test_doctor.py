"""`rlship doctor`, on real folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlship_sidecar.cli.group import rlship
from rlship_sidecar.doctor import looking
from rlship_sidecar.launch import environments
from rlship_sidecar.ownership.lease import acquire
from rlship_sidecar.report.status import write_status
from tests.cli.sample import a_sink, a_status, a_writer, an_actor
from tests.loopback.backend import isolated

JOB = """
import sys, rlship
rlship.init(sys.argv[1], actor="trainer", rank=0, world=1)
for step in range(3):
    rlship.log({"loss": 1.0}, step=step)
    rlship.barrier(step)
"""


@pytest.fixture(autouse=True)
def _offline(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no setting of this machine counts."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "RLSHIP_")):
            monkeypatch.delenv(name)
    for name, value in isolated(tmp_path_factory.mktemp("home")).items():
        monkeypatch.setenv(name, value)


def run(*words: object) -> Result:
    return CliRunner().invoke(rlship, ["doctor", *map(str, words)])


def mends(*words: object) -> list[tuple[str, str, str]]:
    """What is to mend: about, what, do."""
    found = [json.loads(line) for line in run("--json", *words).stdout.splitlines()]
    return [(one["about"], one["what"], one["do"]) for one in found if one["mend"]]


@cache
def files_of_a_job() -> dict[str, bytes]:
    """What a job wrote that ended."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", JOB, folder], check=True, capture_output=True)
        return {path.name: path.read_bytes() for path in Path(folder, "rlship").glob("*.jsonl")}


def an_experiment(folder: Path) -> Path:
    """An experiment of a job that ended, with all its rows delivered."""
    (folder / "rlship").mkdir(parents=True)
    for name, data in files_of_a_job().items():
        (folder / "rlship" / name).write_bytes(data)
    done = CliRunner().invoke(rlship, ["watch", "--once", "--quiet", "--sink", "jsonl", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def tree(folder: Path) -> list[tuple[str, int, int, int]]:
    """Each name below a folder with its mode, size and the time of its last change."""
    found = [(str(path), os.lstat(path)) for path in sorted([folder, *folder.rglob("*")])]
    return [(name, seen.st_mode, seen.st_size, seen.st_ctime_ns) for name, seen in found]


def test_without_a_folder_the_environment_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages, limits, hook and W&B, and nothing of the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rlship.toml").write_text("nonsense = 1\n")
    found = run("--python", sys.executable)
    assert found.exit_code == 0, found.output
    assert [line[:4] + line.split(":")[0][4:] for line in found.stdout.splitlines()] == [
        "ok    packages",
        "ok    limits",
        "ok    hook",
        "ok    wandb",
    ]


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    """Exit code 1, in the words of the other verbs."""
    (tmp_path / "file").touch()
    for name in ("nothing", "file"):
        found = run(tmp_path / name)
        assert (found.exit_code, found.stdout) == (1, "") and str(tmp_path / name) in found.stderr


def test_an_experiment_in_order(tmp_path: Path) -> None:
    """Exit code 0; filesystem, space, sidecar and permissions have a line each, and no file has changed."""
    experiment = an_experiment(tmp_path / "a")
    before = tree(tmp_path)
    found = run(experiment)
    assert found.exit_code == 0, found.output
    for about in ("filesystem", "space", "sidecar", "permissions"):
        assert f"\nok    {about}: " in found.stdout
    assert "finished: all writers closed, all rows delivered" in found.stdout
    assert tree(tmp_path) == before


def test_of_several_experiments_only_the_broken_ones_are_named(tmp_path: Path) -> None:
    """One line counts them; --json has every finding with its experiment."""
    an_experiment(tmp_path / "a")
    (tmp_path / "b" / "rlship").mkdir(parents=True)
    found = run(tmp_path)
    assert found.exit_code == 3
    assert "ok    experiments: 2, 1 of them with something to mend\n" in found.stdout
    assert found.stdout.splitlines()[-1] == (
        f"mend  sidecar: {tmp_path}/b: none has watched it yet: rlship watch {tmp_path}/b"
    )
    of_a = [one for one in map(json.loads, run("--json", tmp_path).stdout.splitlines()) if one["experiment"]]
    assert {one["experiment"] for one in of_a} == {f"{tmp_path}/a", f"{tmp_path}/b"}


def test_a_folder_that_its_group_shares_but_not_the_one_within(tmp_path: Path) -> None:
    """`rlship` of mode 0755 in a setgid folder shuts out the group; the command of the finding mends it."""
    experiment = an_experiment(tmp_path / "a")
    experiment.chmod(0o2775)
    (experiment / "rlship").chmod(0o755)
    ((about, what, do),) = mends(experiment)
    assert about == "permissions" and what.startswith(f"{experiment}/rlship has mode 0755: other users of the group ")
    command, _, rest = do.partition(", and ")
    assert rest == "start the job with umask 0002"
    subprocess.run(command.split(), check=True)
    assert mends(experiment) == []


def test_a_umask_that_will_shut_out_the_group(tmp_path: Path) -> None:
    """It is named before the first process makes `rlship`, and only in a folder of a group. With the set-group-ID bit
    writers let the group write, unless the umask shuts it out.
    """
    experiment = tmp_path / "a"
    experiment.mkdir()
    former = os.umask(0o022)
    try:
        experiment.chmod(0o755)
        assert mends(experiment) == []
        experiment.chmod(0o775)
        ((about, what, do),) = mends(experiment)
        assert (about, do) == ("permissions", f"chmod g+s {experiment}, or start the job with umask 0002")
        assert what.startswith("with umask 0022 ")
        subprocess.run(do.partition(", or ")[0].split(), check=True)
        assert mends(experiment) == []
        os.umask(0o077)
        ((about, what, do),) = mends(experiment)
        assert (about, do) == ("permissions", "start the job with umask 0002") and what.startswith("with umask 0077 ")
        os.umask(0o002)
        assert mends(experiment) == []
    finally:
        os.umask(former)


@contextmanager
def another_user() -> Iterator[None]:
    """The superuser may read everything, so another user looks in its place."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_files_that_this_user_cannot_read_or_write() -> None:
    """They are counted, with an example, and so is a folder where no state can be kept."""
    top = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        top.chmod(0o755)
        writers = top / "rlship"
        writers.mkdir()
        for name, mode in (("a.jsonl", 0o444), ("b.jsonl", 0)):
            (writers / name).touch()
            (writers / name).chmod(mode)
        writers.chmod(0o555)
        with another_user():
            found = looking.files(top, writers / "state")
        assert (found.unreadable, found.example) == (1, str(writers / "b.jsonl"))
        assert (found.keeps_state.path, found.keeps_state.may_write) == (str(writers), False)
        writers.chmod(0)
        with another_user():
            assert looking.files(top, writers / "state").example == str(writers)
    finally:
        (top / "rlship").chmod(0o755)
        shutil.rmtree(top)


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown keys and files of strangers are to mend, in the words of `watch`; what does not count is named."""
    experiment = an_experiment(tmp_path / "a")
    settings = experiment / "rlship.toml"
    settings.write_text("grace = 3\n")
    assert mends(experiment) == [("settings", f"{settings}: unknown key grace = 3", 'did you mean "grace_s"?')]
    settings.write_text('sinks = ["jsonl"]\n')
    settings.chmod(0o666)
    ((about, what, do),) = mends(experiment)
    assert about == "settings" and "can be written by other users (mode 0666)" in what and "chmod go-w" in do
    settings.chmod(0o644)
    (tmp_path / "rlship.toml").write_text("grace_s = 3\n")
    monkeypatch.setenv("RLSHIP_SINKS", "jsonl")
    found = run(experiment)
    assert found.exit_code == 0
    above = (
        f"ok    settings: {tmp_path}/rlship.toml does not count where {experiment} is watched by itself: rlship watch "
    )
    assert above in found.stdout
    assert "ok    settings: RLSHIP_SINKS in the environment wins over rlship.toml\n" in found.stdout
    settings.unlink()
    (experiment / "rlship.toml").write_text("grace = 3\n")
    assert [about for about, _, _ in mends(tmp_path)] == ["settings"]


def test_a_file_of_the_future(tmp_path: Path) -> None:
    """A file that is newer than now is a sign of clocks that differ."""
    experiment = an_experiment(tmp_path / "a")
    (file,) = (experiment / "rlship").glob("*.jsonl")
    os.utime(file, (time.time() + 90, time.time() + 90))
    ((about, what, do),) = mends(experiment)
    assert about == "clocks" and "ahead of this host's clock" in what and "NTP" in do


def test_a_running_sidecar_and_one_that_stopped_reporting(tmp_path: Path) -> None:
    """The lease says who it is, its status how far behind it is and whether it still reports."""
    state = tmp_path / "rlship" / "state"
    state.mkdir(parents=True)
    lease = acquire(state, 30.0)
    try:
        write_status(state, a_status(experiment=str(tmp_path), t=time.time()))
        found = run(tmp_path)
        assert found.exit_code == 0, found.output
        assert f"ok    sidecar: sidecar running (pid {os.getpid()} on " in found.stdout
        assert "wandb lacks 2 of 120 rows" in found.stdout
        write_status(state, a_status(experiment=str(tmp_path), t=time.time() - 100))
        ((about, what, _),) = mends(tmp_path)
        assert about == "sidecar" and "is alive, but its last status is 10" in what and "(state disk full?)" in what
    finally:
        lease.release()


def test_a_sidecar_that_is_gone(tmp_path: Path) -> None:
    """Where rows wait, the command that goes on is to mend; where all are delivered, nothing is."""
    state = tmp_path / "rlship" / "state"
    state.mkdir(parents=True)
    write_status(state, a_status(experiment=str(tmp_path), t=time.time()))
    ((about, what, do),) = mends(tmp_path)
    assert about == "sidecar" and what.startswith("no sidecar running") and do == f"To go on: rlship watch {tmp_path}"
    gone = a_writer(awaited=True, beats=True, silent_s=400.0)
    done = {"actors": [an_actor(open_units=0)], "sinks": [a_sink(next_row=120)], "writers": [gone]}
    write_status(state, a_status(experiment=str(tmp_path), t=time.time(), **done))
    assert [about for about, _, _ in mends(tmp_path)] == ["writers"]


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A link in place of `rlship` or of the state is named, and nothing behind it is looked at."""
    behind = an_experiment(tmp_path / "behind")
    (tmp_path / "o" / "linked").mkdir(parents=True)
    (tmp_path / "o" / "linked" / "rlship").symlink_to(behind / "rlship")
    (tmp_path / "o" / "planted" / "rlship").mkdir(parents=True)
    (tmp_path / "o" / "planted" / "rlship" / "state").symlink_to(behind / "rlship" / "state")
    found = [(about, what) for about, what, _ in mends(tmp_path / "o")]
    assert found == [
        ("experiments", f"{tmp_path}/o/linked is left out: rlship in it is a link, which is not followed"),
        ("state", f"{tmp_path}/o/planted/rlship/state is a link, which is not followed"),
    ]


def test_a_hook_that_leads_nowhere(tmp_path: Path) -> None:
    """A hook of an rlship that was removed is to mend, with the command; one that works is not."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    python = str(tmp_path / "env" / "bin" / "python")
    state = environments.environment_of(python, os.environ)
    environments.install(state)
    assert mends("--python", python) == []
    module = state.packages / environments.MODULE
    module.write_text(module.read_text().replace(environments.HOOK, "/gone/interception.py"))
    ((about, what, do),) = mends("--python", python)
    assert about == "hook" and what.endswith("leads to /gone/interception.py, which is gone")
    assert do == f"rlship hook remove --python {python}"
    assert mends("--python", tmp_path / "none")[0][0] == "hook"


def test_variables_that_cannot_be_used_hide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is named, and all else is looked at as if it was not there: W&B, and the settings of experiments."""
    experiment = an_experiment(tmp_path / "exp")
    monkeypatch.setenv("RLSHIP_GRACE_S", "soon")
    monkeypatch.setenv("RLSHIP_SINK", "jsonl")
    monkeypatch.setenv("RLSHIP_SAMPLES", "-1")
    monkeypatch.setenv("WANDB_MODE", "online")
    found = mends(experiment)
    assert sorted((about, what.partition(" ")[0]) for about, what, _ in found) == [
        ("settings", "RLSHIP_GRACE_S"),
        ("settings", "RLSHIP_SAMPLES"),
        ("settings", "RLSHIP_SINK"),
        ("wandb", "no"),
    ]
    assert os.environ["RLSHIP_GRACE_S"] == "soon"


def test_settings_of_wandb_that_the_sink_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding has the sink's words."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    ((about, what, _),) = mends("--python", sys.executable)
    assert about == "wandb" and 'WANDB_MODE is "disabled"' in what


def test_room_on_a_small_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free space is that of the folder and of --state-dir, by the kernel's word."""
    found = looking.folder(tmp_path, str(tmp_path / "not" / "yet"), {})
    assert [space.path for space in found.spaces] == [str(tmp_path)]
    stat = os.statvfs(tmp_path)
    assert abs(found.spaces[0].free - stat.f_bavail * stat.f_frsize) < 1 << 30
    assert found.spaces[0].is_read_only is False
    assert looking.folder(Path("/proc"), None, {}).spaces[0].free == 0


def test_facts_of_this_machine() -> None:
    """Every package that rlship needs is found, with its version, and a sidecar has room for experiments."""
    found = looking.machine(["wandb"])
    assert {"click", "wandb", "numpy"} <= set(found.wanted) == set(found.installed)
    assert found.wanted["wandb"] == "<0.32,>=0.31"
    assert found.places >= 1 and found.descriptors >= 1
