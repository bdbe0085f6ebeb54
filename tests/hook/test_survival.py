"""Which processes of a job the hook reaches: each line of the table in docs/run.md, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlship_sidecar.launch import environments
from tests.hook.jobs import ASK, CLEAN, Place

MULTIPROCESSING = """
import multiprocessing, sys

def child():
    import wandb
    print("rlship" if hasattr(wandb, "_rlship") else "no", flush=True)

if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=child)
    process.start()
    process.join()
"""
CHILD = """
import os, subprocess, sys
environ = {"keep": dict(os.environ), "path": {**os.environ, "PYTHONPATH": sys.argv[2]},
           "clean": {"PYTHONPATH": sys.argv[2]},
           "dir": {"PYTHONPATH": sys.argv[2], "RLSHIP_DIR": os.environ["RLSHIP_DIR"]}}[sys.argv[1]]
subprocess.run([sys.executable, "-c", sys.argv[3]], env=environ, check=True)
"""


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, str]:
    """A place, and a Python whose environment has the hook of that place and a stand-in for wandb."""
    folder = tmp_path_factory.mktemp("hooked")
    home = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, env=CLEAN)
    python = str(home / "bin" / "python")
    place = Place(folder, python)
    state = environments.environment_of(python, CLEAN)
    before = environments.HOOK
    try:
        environments.HOOK = str(place.rlship / "hook" / "interception.py")
        environments.install(state)
    finally:
        environments.HOOK = before
    (state.packages / "wandb").symlink_to(place.packages / "wandb")
    return place, python


def asked(done: subprocess.CompletedProcess[str]) -> str:
    """What the program printed; it must not print anything on stderr."""
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def test_a_script_a_module_and_a_command(place: Place) -> None:
    """`python script`, `-m` and `-c` are reached; so are `-B`, `-u`, `-s` and `-P`-like switches of a job."""
    place.write("script.py", ASK)
    place.write("packages/job/__main__.py", ASK)
    for arguments in (["script.py"], ["-m", "job"], ["-c", ASK], ["-u", "-B", "-s", "script.py"]):
        assert asked(place.run(*arguments)) == "rlship", arguments


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_children_of_multiprocessing(place: Place, method: str) -> None:
    """A child is reached however it is started."""
    place.write("script.py", MULTIPROCESSING)
    assert asked(place.run("script.py", method)) == "rlship"


def test_a_login_shell(place: Place) -> None:
    """A job that a login shell starts is reached, unless the shell's profile sets PYTHONPATH anew."""
    place.write("script.py", ASK)
    done = place.run("-lc", f"{place.python} script.py", program=["bash"])
    assert asked(done) == "rlship"


@pytest.mark.parametrize(("how", "expected"), [("keep", "rlship"), ("path", "no"), ("clean", "no"), ("dir", "no")])
def test_a_child_with_variables_of_its_own(place: Place, how: str, expected: str) -> None:
    """A child whose PYTHONPATH the job replaced has no hook, whether or not RLSHIP_DIR is there."""
    place.write("script.py", CHILD)
    assert asked(place.run("script.py", how, str(place.packages), ASK)) == expected


@pytest.mark.parametrize(
    ("how", "expected"), [("keep", "rlship"), ("path", "rlship"), ("clean", "no"), ("dir", "rlship")]
)
def test_a_child_where_the_environment_has_the_hook(hooked: tuple[Place, str], how: str, expected: str) -> None:
    """With `rlship hook install` only RLSHIP_DIR counts: it may be all that is left."""
    place, python = hooked
    place.write("script.py", CHILD)
    environ = CLEAN | {"RLSHIP_DIR": str(place.folder / "run")}
    assert asked(place.run("script.py", how, "", ASK, environ=environ, program=[python])) == expected


@pytest.mark.parametrize("switch", ["-I", "-E"])
def test_isolated_processes_are_left_alone(hooked: tuple[Place, str], switch: str) -> None:
    """-I and -E say that variables change nothing: neither PYTHONPATH nor the environment's hook acts then."""
    place, python = hooked
    assert asked(place.run(switch, "-c", ASK, program=[python])) == "no"


@pytest.mark.parametrize("where", ["site", "environment"])
def test_a_program_with_other_rights_is_left_alone(hooked: tuple[Place, str], where: str) -> None:
    """Where the effective user or group is not the real one, as of a set-uid program, no variable brings code in."""
    place, python = hooked
    environ = place.environment() if where == "site" else CLEAN | {"RLSHIP_DIR": str(place.folder / "run")}
    for name in ("geteuid", "getegid"):
        code = f"import os; real = os.{name}(); os.{name} = lambda: real + 1; import site; site.main(); {ASK}"
        assert asked(place.run("-S", "-c", code, environ=environ, program=[python])) == "no"
    assert asked(place.run("-S", "-c", f"import site; site.main(); {ASK}", environ=environ, program=[python])) == (
        "rlship"
    )


def test_the_users_sitecustomize_runs_behind_ours(place: Place) -> None:
    """The job's own sitecustomize and usercustomize run, under their names, and so does the hook."""
    place.write("packages/sitecustomize.py", "print('site')\n")
    place.write("home/.local/usercustomize.py", "print('user')\n")
    code = f"import sitecustomize; print(sitecustomize.__file__); {ASK}"
    environ = place.environment(PYTHONPATH=os.pathsep.join(map(str, (place.site, place.packages))))
    environ["PYTHONUSERBASE"] = str(place.folder / "home")
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    user = place.folder / "home" / "lib" / name / "site-packages"
    place.write(f"home/lib/{name}/site-packages/usercustomize.py", "print('user')\n")
    done = place.run("-c", code, environ=environ, program=[sys._base_executable])  # type: ignore[attr-defined]
    assert user.is_dir()
    assert asked(done).splitlines() == ["site", "user", str(place.packages / "sitecustomize.py"), "rlship"]


def test_an_error_of_the_users_sitecustomize_is_reported_as_ever(place: Place) -> None:
    """Python reports it with the words that it has without rlship, and the job runs, with the hook."""
    place.write("packages/sitecustomize.py", "1 / 0\n")
    done = place.run("-c", ASK)
    without = place.run("-c", ASK, environ=place.environment(PYTHONPATH=str(place.packages)))
    assert done.stderr == without.stderr != ""
    assert (done.returncode, done.stdout, without.stdout) == (0, "rlship\n", "no\n")


def test_a_sitecustomize_before_ours_hides_it(hooked: tuple[Place, str], bare: str, tmp_path: Path) -> None:
    """A folder with a sitecustomize that a script puts before ours wins; the environment's hook acts all the same."""
    place, python = hooked
    (tmp_path / "sitecustomize.py").write_text("")
    environ = place.environment()
    environ["PYTHONPATH"] = os.pathsep.join((str(tmp_path), environ["PYTHONPATH"]))
    assert asked(place.run("-c", ASK, environ=environ, program=[bare])) == "no"
    assert asked(place.run("-c", ASK, environ=environ, program=[python])) == "rlship"


def test_two_installations_do_not_find_each_other_for_ever(place: Place, tmp_path: Path) -> None:
    """With the folders of two installations on PYTHONPATH, as in a run within a run, the first one acts, once."""
    other = Place(tmp_path / "other", place.python)
    place.write("packages/sitecustomize.py", "print('site')\n")
    path = os.pathsep.join(map(str, (place.site, other.site, place.packages)))
    done = place.run("-c", ASK, environ=place.environment(PYTHONPATH=path))
    assert asked(done).splitlines() == ["site", "rlship"]
