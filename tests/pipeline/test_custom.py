"""Reductions of other packages: installed as theirs would be, and everything that can be wrong with one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.reduce.custom import GROUP, Customs, check
from rlship_sidecar.reduce.values import UNDEFINED
from rlship_sidecar.report.survey import survey
from tests.guards.tree import ROOT
from tests.pipeline.simulated import simulation
from tests.reference.building import barrier, define, file, log

EXAMPLE = ROOT / "examples" / "custom_reduction"


class Sum:
    """A sum of x times weight, as a third party would write it; what goes wrong is added by those below."""

    def __init__(self) -> None:
        self.total = 0.0

    def add(self, x: float, weight: float) -> None:
        self.total += x * weight

    def merge(self, other: Sum) -> None:
        self.total += other.total

    def value(self) -> Any:
        return self.total

    def state(self) -> Any:
        return self.total

    @classmethod
    def from_state(cls, state: Any) -> Sum:
        made = cls()
        made.total = state
        return made


class Raises(Sum):
    def add(self, x: float, weight: float) -> None:
        raise RuntimeError("no \x1b[31mluck")


class Exits(Sum):
    def add(self, x: float, weight: float) -> None:
        sys.exit("needs scipy")


def __getattr__(name: str) -> Any:
    if name == "leaves":  # as a module that ends the process when it is loaded
        sys.exit("needs scipy")
    raise AttributeError(f"no attribute {name}")


class Infinite(Sum):
    def value(self) -> Any:
        return float("inf")


class Text(Sum):
    def value(self) -> Any:
        return "7"


class Nothing(Sum):
    def value(self) -> Any:
        return None


class Forgetful(Sum):
    def merge(self, other: Sum) -> None:
        self.total = other.total


class Stateless(Sum):
    def state(self) -> Any:
        return 0.0


def customs(**kinds: str) -> Customs:
    return Customs([EntryPoint(f"here.{name}", value, GROUP) for name, value in kinds.items()])


def here(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


PARTS = [[(1.0, 1.0), (2.0, 0.5)], [], [(3.0, 1.0)]]


def test_observations_are_added_and_parts_merged() -> None:
    """Each part's observations go into an accumulator of its own, which are merged in order; empty parts are left
    out.
    """
    found = customs(sum=here(Sum))
    assert found.value_of("here.sum", PARTS) == 5.0
    assert found.value_of("here.sum", [[], []]) is UNDEFINED
    assert found.problems == {}
    assert customs(nothing=here(Nothing)).value_of("here.nothing", PARTS) is UNDEFINED


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (here(Raises), "raised RuntimeError: no \\x1b[31mluck"),
        (here(Exits), "raised SystemExit: needs scipy"),
        (f"{__name__}:leaves", "cannot be loaded from tests.pipeline.test_custom:leaves: SystemExit: needs scipy"),
        (here(Infinite), "gave inf, which is no finite number"),
        (here(Text), "gave '7', which is no finite number"),
        ("tests.nowhere:Sum", "cannot be loaded from tests.nowhere:Sum: ModuleNotFoundError"),
        (f"{__name__}:missing", f"cannot be loaded from {__name__}:missing: AttributeError"),
        (f"{__name__}:EXAMPLE", "raised TypeError: 'PosixPath' object is not callable"),
    ],
)
def test_one_that_fails_is_told_once(value: str, told: str) -> None:
    """Whatever is wrong with one, its figure is underivable, nothing is raised, and it is reported once, printably."""
    found = customs(bad=value, sum=here(Sum))
    for _ in range(3):
        assert found.value_of("here.bad", PARTS) is None
    assert found.value_of("here.sum", PARTS) == 5.0
    (problem,) = found.problems.values()
    assert problem.startswith("reduction here.bad ")
    assert told in problem
    assert problem.isprintable()


def test_one_that_is_not_installed_is_told() -> None:
    """A name that nothing provides is underivable; made-up names do not fill the memory."""
    found = customs()
    for number in range(300):
        assert found.value_of(f"x.{number}", PARTS) is None
    assert found.problems["x.0"] == (
        "reduction x.0 is not installed where the sidecar runs: "
        "no entry point of the group rlship.reductions has this name there"
    )
    assert len(found.problems) == 100


def test_names_without_a_dot_are_not_taken() -> None:
    """A package cannot replace a reduction of rlship's own, nor add one whose name has no dot."""
    assert Customs([EntryPoint("mean", here(Sum), GROUP)]).installed() == {}


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 3)), max_size=6))
def test_the_check_for_authors_accepts_a_sound_one(observations: list[tuple[float, float]]) -> None:
    """`check` is content with a reduction that comes to the same however its observations are parted."""
    check(Sum, observations)


@pytest.mark.parametrize(("kind", "told"), [(Forgetful, "merged after 1 of 2"), (Stateless, "merged from states")])
def test_the_check_for_authors_finds_faults(kind: Callable[[], Sum], told: str) -> None:
    """`check` refuses one whose merge loses what was there, and one whose state does."""
    with pytest.raises(AssertionError, match=told):
        check(kind, [(1.0, 1.0), (2.0, 1.0)])


def test_a_failing_one_does_not_stop_the_rows() -> None:
    """A row whose metric asks for a reduction that raises has its other figures; the status says what is wrong."""
    data = file(define(a=["mean", "here.bad"]), log(1, a=[1.0, 3.0]), barrier(1))
    with simulation(customs=customs(bad=here(Raises))) as sim:
        sim.write("a.jsonl", data)
        sim.finish()
        (row,) = sim.rows()
        notes = survey(sim.experiment, [], now=sim.now, wall=0.0).notes
    assert row.values == {"trainer/a": 2.0}
    assert row.coverage.underivable == ("trainer/a/here.bad",)
    assert notes == ["reduction here.bad raised RuntimeError: no \\x1b[31mluck"]


def test_installing_one_makes_rows_again() -> None:
    """Rows that lack a figure because its reduction was not installed get it once it is: as revisions."""
    data = file(define(a="here.sum"), log(1, a=[1.0, 3.0]), barrier(1))
    with simulation(customs=customs()) as sim:
        sim.write("a.jsonl", data)
        sim.finish()
        sim.customs = customs(sum=here(Sum))
        sim.restart()
        sim.finish()
        before, after = sim.rows()
    assert (before.values, before.coverage.underivable) == ({}, ("trainer/a",))
    assert (after.values, after.coverage.underivable) == ({"trainer/a": 4.0}, ())
    assert after.arrival.changed == ("trainer/a",)


def test_a_package_of_its_own(tmp_path: Path) -> None:
    """The example package, built and installed as anyone's would be, reduces a metric that asks for it by name."""
    site = tmp_path / "site"
    quiet = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, "--target", site, EXAMPLE], check=True)
    experiment = tmp_path / "grpo"
    (experiment / "rlship").mkdir(parents=True)
    records = (define(a="mypkg.trimmed_mean"), log(1, a=[1000.0, *range(1, 9), -5.0]), barrier(1))
    (experiment / "rlship" / "a.jsonl").write_bytes(file(*records))
    command = [sys.executable, "-m", "rlship", "watch", "--once", "--sink", "console", str(experiment)]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "trainer global_step=1  a=4.5\n"), done.stderr


def test_the_example_keeps_the_contract() -> None:
    """The example package passes the check that its page recommends."""
    scope: dict[str, Any] = {"__name__": "mypkg"}
    exec((EXAMPLE / "mypkg.py").read_text(encoding="utf-8"), scope)
    check(scope["TrimmedMean"], [(float(x * x % 17), float(x % 3)) for x in range(25)])


def test_an_operation_that_is_lacking_is_named() -> None:
    """A class that is not whole is refused in a sentence that says what it needs."""

    class Half:
        def add(self, x: float, weight: float) -> None:
            self.x = x

        def value(self) -> float:
            return self.x

    with pytest.raises(AssertionError, match=r"a reduction needs add\(\), .*; lacking: merge, state, from_state"):
        check(cast(Any, Half), [(1.0, 1.0), (2.0, 1.0)])
