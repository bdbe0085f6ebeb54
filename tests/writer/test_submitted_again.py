"""A job is submitted again into its folder, by each launcher: with as many processes, with fewer, with more.

Rank r of the first submission logs 10^r, of the second 5·10^r, as a sum: the digits say who counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import pytest

from rlship.identity import detect
from rlship.records import barrier_line, open_line
from rlship_sidecar.report.status import Status
from rlship_sidecar.report.survey import survey
from rlship_sidecar.rows import Row
from tests.pipeline.simulated import Simulation, simulation

T0 = 1763600000.0
SUM = '{"kind":"define","m":{"who":{"reduce":"sum"}}}\n'

Environment = dict[str, str]


def torchrun(rank: int, world: int, attempt: int) -> Environment:
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "TORCHELASTIC_RESTART_COUNT": str(attempt)}


def accelerate(rank: int, world: int, attempt: int) -> Environment:
    own = {"LOCAL_WORLD_SIZE": str(world), "ACCELERATE_MIXED_PRECISION": "bf16"}
    return torchrun(rank, world, attempt) | own


def slurm(rank: int, world: int, attempt: int) -> Environment:
    return {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(world), "SLURM_RESTART_COUNT": str(attempt)}


def openmpi(rank: int, world: int, attempt: int) -> Environment:
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(world), "RLSHIP_ATTEMPT": str(attempt)}


def pmi(rank: int, world: int, attempt: int) -> Environment:
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(world), "RLSHIP_ATTEMPT": str(attempt)}


def jax(rank: int, world: int, attempt: int) -> Environment:
    return {"JAX_PROCESS_ID": str(rank), "JAX_NUM_PROCESSES": str(world), "RLSHIP_ATTEMPT": str(attempt)}


def ascend(rank: int, world: int, attempt: int) -> Environment:
    return {"RANK_ID": str(rank), "RANK_SIZE": str(world), "RLSHIP_ATTEMPT": str(attempt)}


def tpu(rank: int, world: int, attempt: int) -> Environment:
    hosts = ",".join(f"t{host}" for host in range(world))
    return {"TPU_WORKER_ID": str(rank), "TPU_WORKER_HOSTNAMES": hosts, "RLSHIP_ATTEMPT": str(attempt)}


def leader_worker_set(rank: int, world: int, attempt: int) -> Environment:
    own = {"LWS_WORKER_INDEX": str(rank), "LWS_GROUP_SIZE": str(world), "LWS_GROUP_INDEX": "0"}
    return own | {"RLSHIP_ATTEMPT": str(attempt)}


def indexed_job(rank: int, world: int, attempt: int) -> Environment:
    own = {"JOB_COMPLETION_INDEX": str(rank), "JOBSET_RESTART_ATTEMPT": str(attempt)}
    return own | {"RLSHIP_WORLD": str(world)}


def variables(rank: int, world: int, attempt: int) -> Environment:
    return {"RLSHIP_RANK": str(rank), "RLSHIP_WORLD": str(world), "RLSHIP_ATTEMPT": str(attempt)}


LAUNCHERS = (torchrun, accelerate, slurm, openmpi, pmi, jax, ascend, tpu, leader_worker_set, indexed_job, variables)


class Start(NamedTuple):
    """One start of all processes, `after` seconds. Each logs `digit` times 10^rank."""

    after: float
    digit: int
    environments: Sequence[Environment]


def started(
    launcher: Callable[[int, int, int], Environment], after: float, digit: int, world: int, attempt: int
) -> Start:
    return Start(after, digit, [launcher(rank, world, attempt) for rank in range(world)])


def written(start: Start, number: int, environment: Environment, power: int) -> bytes:
    """The file of one process, which logs step 1 five seconds after its start."""
    t = T0 + start.after + 0.1 * power
    identity = detect("trainer", environ=environment)
    first = open_line(
        identity, f"{number}-{power}", axis="global_step", beat=10, t=t, parent=None, labels={"start": str(number)}
    )
    log = f'{{"t":{t + 5},"step":1,"m":{{"who":{start.digit * 10**power}}}}}\n'
    return "".join((first, SUM, log, barrier_line(1, t + 5))).encode()


def rows(*starts: Start) -> Row:
    """The row of step 1, made of the files of all starts."""
    with simulation() as sim:
        for number, start in enumerate(starts):
            for power, environment in enumerate(start.environments):
                sim.write(f"f{number}-{power}.jsonl", written(start, number, environment, power))
            sim.tick()
        sim.finish()
        [row] = sim.final().values()
    return row


def status_of(sim: Simulation) -> Status:
    return survey(sim.experiment, (), now=sim.now, wall=T0)


def figures(row: Row) -> tuple[float, int, tuple[str, ...]]:
    return row.values["trainer/who"], row.coverage.expected, row.coverage.missing


def test_replicas_of_ones_own_need_the_name_of_the_job() -> None:
    """Replicas that the second submission lacks stay, as they may be meant to. RLSHIP_JOB says that they are not."""

    def replicas(count: int, **more: str) -> list[Environment]:
        return [{"RLSHIP_REPLICA": str(replica), **more} for replica in range(count)]

    assert figures(rows(Start(0, 1, replicas(3)), Start(30, 5, replicas(2)))) == (155, 3, ())
    named = [
        Start(after, digit, replicas(count, RLSHIP_JOB=job))
        for after, digit, count, job in ((0, 1, 3, "7"), (30, 5, 2, "8"))
    ]
    assert figures(rows(*named)) == (55, 2, ())


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize(("world", "sum_of_all"), [(3, 555), (2, 55), (4, 5555)], ids=["same", "smaller", "larger"])
def test_the_second_submission_counts_alone(
    launcher: Callable[[int, int, int], Environment], world: int, sum_of_all: int
) -> None:
    """Where it logs a step again, no rank of the first one is in the row, restarted by its launcher or not."""
    first = started(launcher, 0, 1, 3, 0)
    second = started(launcher, 300, 5, world, 0)
    assert figures(rows(first, second)) == (sum_of_all, world, ())
    restarted = started(launcher, 100, 2, 3, 1)
    assert figures(rows(first, restarted)) == (222, 3, ())
    assert figures(rows(first, restarted, second)) == (sum_of_all, world, ())
    assert figures(rows(first, restarted, second, started(launcher, 400, 7, world, 1))) == (
        sum_of_all * 7 / 5,
        world,
        (),
    )


def test_a_plain_process_submitted_again_counts_alone() -> None:
    """It is rank 0 each time."""
    assert figures(rows(Start(0, 1, [{}]), Start(30, 5, [{}]))) == (5, 1, ())


def test_without_a_world_the_ranks_that_are_gone_stay() -> None:
    """An indexed job that says nothing of its size: what the row is made of shows it, and RLSHIP_WORLD mends it."""

    def indexed(world: int) -> list[Environment]:
        return [{"JOB_COMPLETION_INDEX": str(rank)} for rank in range(world)]

    row = rows(Start(0, 1, indexed(3)), Start(300, 5, indexed(2)))
    assert (row.values["trainer/who"], row.coverage.ranks) == (155, ("0.0-2",))
    assert figures(rows(Start(0, 1, indexed(3)), Start(300, 5, indexed(4)))) == (5555, 4, ())


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The facts of this process's Ray actor: `id`, `name`, `job`."""
    facts: dict[str, str] = {}
    context = SimpleNamespace(
        get_actor_id=lambda: facts["id"],
        get_actor_name=lambda: facts["name"],
        get_session_name=lambda: facts["session"],
        get_job_id=lambda: "01000000",
    )
    made = ModuleType("ray")
    vars(made).update(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", made)
    return facts


def ray_rows(ray: dict[str, str], *jobs: tuple[float, int, Sequence[str]]) -> Row:
    """The row of step 1 of jobs of Ray actors: seconds, digit, and the actors' names, "" for one without."""
    with simulation() as sim:
        for number, (after, digit, names) in enumerate(jobs):
            start = Start(after, digit, ())
            for power, name in enumerate(names):
                ray.update(id=f"{9 - number}{power}".ljust(32, "a"), name=name, session=f"session_{number}")
                sim.write(f"f{number}-{power}.jsonl", written(start, number, {}, power))
            sim.tick()
        sim.finish()
        [row] = sim.final().values()
    return row


@pytest.mark.parametrize("named", [False, True], ids=["plain", "named"])
@pytest.mark.parametrize(("count", "sum_of_all"), [(3, 555), (2, 55), (4, 5555)], ids=["same", "smaller", "larger"])
def test_the_second_ray_job_counts_alone(ray: dict[str, str], named: bool, count: int, sum_of_all: int) -> None:
    """Actors of one job are replicas. Those of the next one have other ids, and perhaps fewer names."""
    first, second = ([f"g{power}" if named else "" for power in range(size)] for size in (3, count))
    assert figures(ray_rows(ray, (0, 1, first))) == (111, 3, ())
    assert figures(ray_rows(ray, (0, 1, first), (30, 5, second))) == (sum_of_all, count, ())


def test_ray_jobs_at_one_time_are_claims(ray: dict[str, str]) -> None:
    """Both count, which the status says: it is not complete, and `--once` exits with 3."""
    with simulation() as sim:
        for number, after in enumerate((0.0, 30.0)):
            ray.update(id=f"{number}".ljust(32, "a"), name="", session=f"session_{number}")
            sim.write(f"f{number}.jsonl", written(Start(after, 1, ()), number, {}, 0))
        sim.write("f0.jsonl", f'{{"kind":"beat","t":{T0 + 90.0}}}\n'.encode())
        sim.tick()
        assert status_of(sim).claims == []
        sim.write("f0.jsonl", f'{{"kind":"beat","t":{T0 + 90.5}}}\n'.encode())
        sim.finish()
        [row] = sim.final().values()
        assert figures(row) == (2, 2, ())
        status = status_of(sim)
    assert status.claims == [
        "2 jobs log as trainer at one time, all of them count: stop the older one, or give each a folder"
    ]
    assert not status.complete


@pytest.mark.parametrize("attempt", [0, 1])
def test_submissions_at_one_time_are_claims(attempt: int) -> None:
    """The first one goes on for more than 60 s after the second one opened, restarted before or not."""
    with simulation() as sim:
        for number, (after, its) in enumerate(((0.0, attempt), (100.0, 0))):
            start = Start(after, 1, ())
            sim.write(f"f{number}.jsonl", written(start, number, torchrun(0, 1, its), 0))
        sim.write("f0.jsonl", f'{{"kind":"beat","t":{T0 + 161.0}}}\n'.encode())
        sim.finish()
        claims = status_of(sim).claims
    assert claims == [
        "2 writers of 2 submissions log as trainer/0/r0 at one time, all of them count: "
        "stop the older one, or give each a folder"
        if attempt
        else "2 writers claim trainer/0/r0 at one time: set rank or replica, or if the job was submitted again, "
        "stop the older one"
    ]


def test_a_rank_that_the_second_submission_lacks_may_outlive_its_start_for_a_minute() -> None:
    """Up to then it is gone. If it goes on longer it counts, and the status says so: it is not complete."""
    with simulation() as sim:
        for number, start in enumerate((started(torchrun, 0, 1, 3, 0), started(torchrun, 30, 5, 2, 0))):
            for power, environment in enumerate(start.environments):
                sim.write(f"f{number}-{power}.jsonl", written(start, number, environment, power))
        sim.write("f0-2.jsonl", f'{{"kind":"beat","t":{T0 + 33.0}}}\n'.encode())
        sim.tick()
        assert figures(sim.rows()[-1]) == (55, 2, ())
        sim.write("f0-2.jsonl", f'{{"kind":"beat","t":{T0 + 90.0}}}\n'.encode())
        sim.finish()
        [row] = sim.final().values()
        assert (figures(row), status_of(sim).claims) == ((55, 2, ()), [])
        sim.write("f0-2.jsonl", f'{{"kind":"beat","t":{T0 + 90.5}}}\n'.encode())
        sim.finish()
        [row] = sim.final().values()
        assert (figures(row), row.coverage.ranks) == ((155, 2, ()), ("0.0-2",))
        status = status_of(sim)
    assert status.claims == [
        "0.2 of trainer, of an older start with a larger world, and ranks of a newer one log at one time, "
        "all of them count: stop the older one, or give each a folder"
    ]
    assert not status.complete


def test_ranks_of_one_start_may_name_a_world_without_them() -> None:
    """Each of two nodes names the size of its own. All ranks count, in whatever order they opened."""
    environments = [variables(rank, 2, 0) for rank in (3, 2, 1, 0)]
    assert figures(rows(Start(0, 1, environments)))[0] == 1111
