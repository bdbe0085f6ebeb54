"""What the hook does inside of a process, and what it leaves as it is."""

from __future__ import annotations

import textwrap

import pytest

from tests.hook.jobs import ASK, Place


def out(place: Place, code: str, **changes: str) -> str:
    done = place.run("-c", code, environ=place.environment(**changes))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_without_a_folder_nothing_happens(place: Place) -> None:
    """Without RLSHIP_DIR no module is imported that a bare interpreter does not import, and no finder is added."""
    code = "import sys; print(sorted(sys.modules), [type(one).__name__ for one in sys.meta_path])"
    environ = place.environment()
    del environ["RLSHIP_DIR"]
    done = place.run("-c", code, environ=environ)
    bare = place.run("-c", code, environ={**environ, "PYTHONPATH": str(place.packages)})
    names = done.stdout.replace("'sitecustomize', ", "")
    assert (names, done.stderr) == (bare.stdout.replace("'sitecustomize', ", ""), "")
    assert "no" in place.run("-c", ASK, environ=environ).stdout


def test_with_a_folder_only_the_hook_is_there(place: Place) -> None:
    """Until wandb is imported the hook imports nothing: neither rlship nor modules of the standard library."""
    code = "import sys; print(sorted(sys.modules))"
    bare = place.run("-c", code, environ=place.environment(PYTHONPATH=str(place.packages)))
    added = set(eval(out(place, code))) - set(eval(bare.stdout))
    assert added - {"sitecustomize", "__future__"} == {"_rlship_hook"}


def test_rlship_alone_can_be_imported(place: Place) -> None:
    """The job sees rlship, though its Python has none, and nothing else of the environment that rlship is in."""
    assert out(place, "import rlship, rlship.steps; print(rlship.__file__)") == f"{place.rlship}/__init__.py\n"
    code = "import importlib.util; print(importlib.util.find_spec('rlship_sidecar'))"
    assert out(place, code) == "None\n"


def test_transformers_knows_the_name(place: Place) -> None:
    """`report_to="rlship"` is known below `rlship run` to a job without an import of rlship. wandb is taken over."""
    place.write("packages/transformers/__init__.py", "")
    place.write("packages/transformers/integrations/__init__.py", "")
    place.write(
        "packages/transformers/integrations/integration_utils.py", "import wandb\nINTEGRATION_TO_CALLBACK = {}\n"
    )
    code = f"""
        from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK as known
        print(known["rlship"].__module__)
        {ASK}
    """
    assert out(place, textwrap.dedent(code)) == "rlship.integrations.trainer\nrlship\n"


def test_a_folder_of_writers_is_no_package(place: Place) -> None:
    """In an experiment's folder, which holds a folder rlship, the job still imports the package."""
    place.write("rlship/trainer.jsonl", "")
    assert out(place, "import rlship; print(rlship.__file__)") == f"{place.rlship}/__init__.py\n"


def test_the_jobs_own_rlship_comes_first(place: Place) -> None:
    """A job that brings its rlship keeps it; if that is too old to know the facade, wandb stays."""
    place.write("packages/rlship/__init__.py", "own = True\n")
    done = place.run("-c", f"{ASK}; import rlship; print(rlship.own)")
    assert done.stdout == "no\nTrue\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("rlship: the job's wandb is left as it is: ModuleNotFoundError")
    assert str(place.packages / "rlship" / "__init__.py") in line


def test_a_module_keeps_its_own_loader(place: Place) -> None:
    """wandb's loader and spec are those that it has without rlship, also while it runs: it may read its own files."""
    place.write(
        "packages/wandb/__init__.py",
        "inside = type(__loader__).__name__, type(__spec__.loader).__name__\ndef init(**options): return None\n",
    )
    place.write("packages/wandb/data.txt", "text")
    code = """
        import wandb, pkgutil, importlib.resources, inspect
        print(wandb.inside, type(wandb.__loader__).__name__, type(wandb.__spec__.loader).__name__)
        print(pkgutil.get_data("wandb", "data.txt"), (importlib.resources.files(wandb) / "data.txt").read_text())
        print(inspect.getsource(wandb)[:6])
    """
    assert out(place, textwrap.dedent(code)).splitlines() == [
        "('SourceFileLoader', 'SourceFileLoader') SourceFileLoader SourceFileLoader",
        "b'text' text",
        "inside",
    ]


def test_a_search_imports_nothing(place: Place) -> None:
    """`importlib.util.find_spec("wandb")`, as frameworks ask whether it is installed, finds it without an import."""
    code = "import importlib.util, sys; print(importlib.util.find_spec('wandb').origin, 'wandb' in sys.modules)"
    assert out(place, code) == f"{place.packages}/wandb/__init__.py False\n"
    code = f"import importlib.util; print(importlib.util.find_spec('wandb.sdk').name); {ASK}"
    assert out(place, code) == "wandb.sdk\nrlship\n"


def test_a_reload_is_handed_over_again(place: Place) -> None:
    """`importlib.reload(wandb)` makes its functions anew, so rlship takes them over again."""
    code = "import importlib, wandb; first = wandb.init; importlib.reload(wandb); "
    code += "print(first is not wandb.init, wandb.init.__wrapped__.__module__, hasattr(wandb.log, '__wrapped__'))"
    assert out(place, code) == "True wandb False\n"


def test_a_wandb_that_was_imported_before_is_handed_over(place: Place) -> None:
    """A start-up file of the environment may import wandb before the hook is there."""
    place.write("packages/early.pth", "import wandb\n")
    code = (
        f"import site, sys; site.addsitedir({str(place.packages)!r}); "
        f"sys.path.insert(0, {str(place.site)!r}); import sitecustomize; {ASK}"
    )
    assert out(place, code, PYTHONPATH="") == "rlship\n"


def test_no_wandb_and_a_broken_wandb(place: Place) -> None:
    """The job sees the errors that it sees without rlship."""
    code = "import wandb"
    place.write("packages/wandb/__init__.py", "raise RuntimeError('broken')\n")
    done = place.run("-c", code)
    assert done.returncode == 1 and done.stderr.endswith("RuntimeError: broken\n") and "rlship:" not in done.stderr
    done = place.run("-c", code, environ=place.environment(PYTHONPATH=str(place.site)))
    assert done.returncode == 1 and done.stderr.endswith("ModuleNotFoundError: No module named 'wandb'\n")


@pytest.mark.parametrize(
    "facade", ["raise OSError('of the facade')", "def patch(module):\n    raise OSError('of the facade')", "1 +"]
)
def test_a_fault_of_the_facade_is_reported_once(place: Place, facade: str) -> None:
    """Whatever is wrong with rlship, the job has its wandb, and one line on stderr says so."""
    place.facade(facade)
    done = place.run("-c", "import wandb, importlib; wandb.log(1); importlib.reload(wandb); print(wandb.history)")
    assert (done.returncode, done.stdout) == (0, "[]\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("rlship: the job's wandb is left as it is: ")


def test_a_closed_stderr_is_no_fault(place: Place) -> None:
    """A report that cannot be printed is dropped."""
    place.facade("raise OSError")
    done = place.run("-c", "import sys; sys.stderr = None; import wandb; print(wandb.history)")
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_a_broken_hook_is_reported_and_the_job_runs(place: Place) -> None:
    """An installation that lost a file, as during an upgrade, costs a line on stderr."""
    (place.rlship / "hook" / "interception.py").unlink()
    done = place.run("-c", ASK)
    assert (done.returncode, done.stdout) == (0, "no\n")
    assert done.stderr.startswith("rlship: the job's wandb is left as it is: FileNotFoundError")


def test_a_process_of_the_sidecar_is_refused(place: Place) -> None:
    """A process that imports the sidecar has the real wandb, whether it does so before or after the hook starts."""
    place.write("packages/rlship_sidecar/__init__.py", "")
    assert out(place, f"import rlship_sidecar; {ASK}") == "no\n"
    code = f"import rlship_sidecar, sys; sys.path.insert(0, {str(place.site)!r}); import sitecustomize; {ASK}"
    assert out(place, code, PYTHONPATH=str(place.packages)) == "no\n"


def test_another_finder_still_decides(place: Place) -> None:
    """A finder of the job that gives wandb from elsewhere is asked, and its module is handed over."""
    code = f"""
        import sys, types, importlib.machinery as machinery
        class Elsewhere:
            def find_spec(self, name, path=None, target=None):
                return machinery.ModuleSpec(name, self) if name == "wandb" else None
            def create_module(self, spec):
                return types.ModuleType(spec.name)
            def exec_module(self, module):
                module.where, module.init = "elsewhere", lambda **options: None
        sys.meta_path.insert(1, Elsewhere())
        {ASK}; print(wandb.where)
    """
    assert out(place, textwrap.dedent(code)) == "rlship\nelsewhere\n"


def test_old_versions_of_python_are_let_be(place: Place) -> None:
    """Below Python 3.10 the hook does nothing and says nothing: tools of the system may run so."""
    code = (
        f"import sys; sys.version_info = (3, 9, 1); sys.path.insert(0, {str(place.site)!r}); "
        "import sitecustomize; print('_rlship_hook' in sys.modules)"
    )
    assert out(place, code, PYTHONPATH="") == "False\n"


def test_the_commands_own_processes_have_no_hook(place: Place) -> None:
    """`rlship` drops the hook's folder from its path and its variables first of all, and keeps what else is there."""
    code = (
        "import os, sys; from rlship.hook.environment import drop_hook; drop_hook(os.environ); "
        "print(os.environ.get('PYTHONPATH')); print(any(one.endswith('hook/site') for one in sys.path)); "
        f"{ASK}"
    )
    assert out(place, code) == f"{place.packages}\nFalse\nno\n"
    assert out(place, code.rpartition(ASK)[0], PYTHONPATH=str(place.site)) == "None\nFalse\n"
