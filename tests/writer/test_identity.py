"""Who a process is, by what each launcher puts into its environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rlship.identity import Identity, detect


def found(environ: dict[str, str], **given: Any) -> tuple[str, int, int | None, int, str]:
    """Source, rank, world, attempt and replica in this environment; no warning is expected."""
    warnings: list[str] = []
    who = detect("trainer", environ=environ, warn=warnings.append, **given)
    assert warnings == []
    return who.source, who.rank, who.world, who.attempt, who.replica


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("none", 0, None, 0, "0")),
        (
            {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2"},
            ("torchrun", 3, 8, 2, "0"),
        ),
        ({"RANK": "5"}, ("torchrun", 5, None, 0, "0")),
        ({"RANK": "1", "WORLD_SIZE": "4", "WG_PREFIX": "actor", "RAY_LOCAL_RANK": "1"}, ("torchrun", 1, 4, 0, "0")),
        ({"SLURM_PROCID": "7", "SLURM_NTASKS": "16"}, ("slurm", 7, 16, 0, "0")),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "2", "SLURM_RESTART_COUNT": "3"},
            ("slurm", 1, 2, 3000, "0"),
        ),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, ("openmpi", 2, 4, 0, "0")),
        # mpirun started by Slurm leaks the rank of its own daemon.
        (
            {"OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
            ("openmpi", 6, 8, 0, "0"),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, ("pmi", 1, 2, 0, "0")),
        ({"PMIX_RANK": "3", "PMIX_NAMESPACE": "x"}, ("pmix", 3, None, 0, "0")),
        ({"PMIX_RANK": "3", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, ("pmix", 3, 4, 0, "0")),
        ({"JOB_COMPLETION_INDEX": "4"}, ("kubernetes", 4, None, 0, "0")),
        ({"JOB_COMPLETION_INDEX": "4", "RLSHIP_WORLD": "6"}, ("kubernetes", 4, 6, 0, "0")),
        (
            {"JOB_COMPLETION_INDEX": "1", "JOB_INDEX": "2", "PROCESSES_IN_JOB": "4", "JOBSET_RESTART_ATTEMPT": "1"},
            ("jobset", 9, None, 1000, "0"),
        ),
        ({"JOB_COMPLETION_INDEX": "1", "JOB_GLOBAL_INDEX": "2"}, ("jobset", 1, None, 0, "2")),
        ({"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "4"}, ("leaderworkerset", 1, 4, 0, "0")),
        ({"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "4", "LWS_GROUP_INDEX": "3"}, ("leaderworkerset", 1, 4, 0, "3")),
        ({"JAX_PROCESS_ID": "2", "JAX_NUM_PROCESSES": "4"}, ("jax", 2, 4, 0, "0")),
        ({"JAX_PROCESS_INDEX": "2"}, ("jax", 2, None, 0, "0")),
        ({"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}, ("tpu", 1, 4, 0, "0")),
        ({"CLOUD_TPU_TASK_ID": "1"}, ("tpu", 1, None, 0, "0")),
        (
            {
                "TPU_WORKER_ID": "1",
                "TPU_WORKER_HOSTNAMES": "a,b,c,d",
                "MEGASCALE_NUM_SLICES": "2",
                "MEGASCALE_SLICE_ID": "1",
            },
            ("tpu", 5, 8, 0, "0"),
        ),
        (
            {"TPU_WORKER_ID": "1", "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"},
            ("tpu", 1, None, 0, "1"),
        ),
        ({"RANK_ID": "6", "RANK_SIZE": "8", "DEVICE_ID": "2"}, ("ascend", 6, 8, 0, "0")),
    ],
)
def test_each_launcher_is_understood(environ: dict[str, str], expected: tuple[Any, ...]) -> None:
    """Rank, world, attempt and replica come out of the launcher's own variables."""
    assert found(environ) == expected


def test_torchrun_in_a_requeued_slurm_job_has_a_higher_attempt() -> None:
    """torchrun counts from 0 again in the new job, so the batch system's count weighs more than any of its restarts."""
    rank = {"RANK": "0", "WORLD_SIZE": "2"}
    first = found({**rank, "TORCHELASTIC_RESTART_COUNT": "3"})[3]
    requeued = found({**rank, "TORCHELASTIC_RESTART_COUNT": "0", "SLURM_RESTART_COUNT": "1"})[3]
    again = found({**rank, "TORCHELASTIC_RESTART_COUNT": "1", "SLURM_RESTART_COUNT": "1"})[3]
    assert first < requeued < again


def test_variables_of_our_own_come_before_the_launchers() -> None:
    """RLSHIP_RANK takes the launcher's place, and a world of another group is not combined with it."""
    launcher = {"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "2"}
    assert found({**launcher, "RLSHIP_RANK": "1"}) == ("RLSHIP_RANK", 1, None, 2, "0")
    assert found(
        {**launcher, "RLSHIP_RANK": "1", "RLSHIP_WORLD": "2", "RLSHIP_ATTEMPT": "5", "RLSHIP_REPLICA": "b"}
    ) == (
        "RLSHIP_RANK",
        1,
        2,
        5,
        "b",
    )


def test_arguments_come_before_everything() -> None:
    """What the program says itself is not overridden by any variable."""
    environ = {"RANK": "3", "WORLD_SIZE": "8", "RLSHIP_RANK": "1", "RLSHIP_ATTEMPT": "5", "RLSHIP_REPLICA": "b"}
    assert found(environ, rank=2, world=4, attempt=0, replica=7) == ("given", 2, 4, 0, "7")
    assert found(environ, rank=2) == ("given", 2, None, 5, "b")


@pytest.mark.parametrize("garbage", ["abc", "-1", "1.5", "0x3", "³"])
def test_a_garbage_rank_is_told_and_the_next_launcher_asked(garbage: str) -> None:
    """A variable that is no number never becomes a rank and never raises."""
    told: list[str] = []
    who = detect("a", environ={"RANK": garbage, "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, warn=told.append)
    assert (who.source, who.rank, who.world) == ("slurm", 2, 4)
    assert len(told) == 1
    assert "RANK=" in told[0]
    assert repr(garbage) in told[0]


def test_an_empty_variable_is_an_unset_one() -> None:
    """`RANK=` in a shell script means that there is no rank."""
    assert found({"RANK": "", "WORLD_SIZE": " "}) == ("none", 0, None, 0, "0")


@pytest.mark.parametrize(
    "given", [{"rank": -1}, {"rank": "x"}, {"world": 0}, {"attempt": 1.5j}, {"rank": True}, {"rank": 1.5}]
)
def test_a_garbage_argument_is_told_and_left_out(given: dict[str, Any]) -> None:
    """`init` must not raise, so the argument is as if it had not been given."""
    told: list[str] = []
    who = detect("a", environ={}, warn=told.append, **given)
    assert (who.rank, who.world, who.attempt) == (0, None, 0)
    assert len(told) == 1


def test_a_world_that_is_too_small_is_left_out() -> None:
    """Rank 5 of 4 cannot be: the rank is kept, so that no two processes fall together."""
    told: list[str] = []
    who = detect("a", environ={"RANK": "5", "WORLD_SIZE": "4"}, warn=told.append)
    assert (who.rank, who.world) == (5, None)
    assert len(told) == 1


def fake_ray(
    monkeypatch: pytest.MonkeyPatch,
    initialized: bool,
    actor: str | None,
    restarts: int = 0,
    name: str = "",
    session: str = "session_1",
    job: str = "01000000",
) -> None:
    def context() -> SimpleNamespace:
        assert initialized, "asking for the context would start Ray"
        return SimpleNamespace(
            get_actor_id=lambda: actor,
            get_actor_name=lambda: name,
            get_session_name=lambda: session,
            get_job_id=lambda: job,
        )

    ray = ModuleType("ray")
    state = SimpleNamespace(actors=lambda actor_id: {"NumRestarts": restarts} if actor_id == actor else {})
    private = SimpleNamespace(state=state)
    vars(ray).update(is_initialized=lambda: initialized, get_runtime_context=context, _private=private)
    monkeypatch.setitem(sys.modules, "ray", ray)


def test_plain_ray_actors_are_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray gives its actors no ranks, so that each one is a replica of its own, and a restarted one keeps its name."""
    fake_ray(monkeypatch, True, "0123456789abcdef0123", restarts=1)
    assert found({}) == ("ray", 0, None, 1, "0123456789abcdef")
    assert found({"RANK": "1", "WORLD_SIZE": "2"})[:3] == ("torchrun", 1, 2)
    fake_ray(monkeypatch, True, "0123456789abcdef0123", name="generator-3")
    assert found({}) == ("ray", 0, None, 0, "generator-3")


def test_workers_of_ray_train_have_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are actors as well, and others after a restart: as replicas they would count beside those that are gone.
    Outside of a worker an actor is a replica.
    """
    fake_ray(monkeypatch, True, "0123456789abcdef0123")
    train = ModuleType("ray.train.v2.api.train_fn_utils")
    monkeypatch.setitem(sys.modules, train.__name__, train)

    def get_context() -> object:
        return SimpleNamespace(get_world_rank=lambda: 3, get_world_size=lambda: 8)

    def outside() -> object:
        raise RuntimeError("not in a worker")

    vars(train)["get_context"] = outside
    assert found({}) == ("ray", 0, None, 0, "0123456789abcdef")
    vars(train)["get_context"] = get_context
    assert found({}) == ("ray train", 3, 8, 0, "0")
    assert found({"RANK": "1", "WORLD_SIZE": "2"})[:3] == ("torchrun", 1, 2)


def test_ray_actors_name_their_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ids, and perhaps their names and number, are others in the next submission. What the program or a launcher
    gives is not.
    """

    def job(environ: Mapping[str, str] | None = None, **given: Any) -> str | None:
        return detect("trainer", environ=environ or {}, **given).job

    fake_ray(monkeypatch, True, "0123456789abcdef0123")
    assert job() == "session_1/01000000"
    assert job(replica=3) is job({"RLSHIP_REPLICA": "3"}) is job({"RANK": "0"}) is job(rank=0) is None
    assert job({"RLSHIP_JOB": "77"}) == job({"RLSHIP_JOB": "77"}, replica=3) == "77"
    fake_ray(monkeypatch, True, "0123456789abcdef0123", session="session_2")
    assert job() == "session_2/01000000"
    fake_ray(monkeypatch, True, None)
    assert job() is None and job({"RLSHIP_JOB": "77"}) == "77"


@pytest.mark.parametrize(
    "leaked",
    [
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
        {"JOB_COMPLETION_INDEX": "1"},
        {"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "4"},
        {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"},
    ],
)
def test_what_placed_ray_does_not_name_its_actors(monkeypatch: pytest.MonkeyPatch, leaked: dict[str, str]) -> None:
    """All actors of a node inherit the variables of its `ray start`, so these are no rank of one of them."""
    fake_ray(monkeypatch, True, "0123456789abcdef0123")
    assert found(leaked) == ("ray", 0, None, 0, "0123456789abcdef")


def test_ray_drivers_and_tasks_are_plain_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no Ray actor, or no running Ray, nothing is made of it."""
    fake_ray(monkeypatch, True, None)
    assert found({}) == ("none", 0, None, 0, "0")
    fake_ray(monkeypatch, False, "x")
    assert found({}) == ("none", 0, None, 0, "0")


def test_a_ray_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a foreign module raises, a process has an identity."""
    ray = ModuleType("ray")
    monkeypatch.setitem(sys.modules, "ray", ray)
    told: list[str] = []
    who: Identity = detect("a", environ={}, warn=told.append)
    assert who.source == "none"
    assert "AttributeError" in told[0]


@pytest.mark.parametrize(
    ("address", "replica"), [("vllm-1.vllm.ns", "1"), ("my-set-12.my-set.ns.svc", "12"), ("10.0.0.1", "0"), ("", "0")]
)
def test_a_leader_address_names_the_group(address: str, replica: str) -> None:
    """LeaderWorkerSet itself gives no group index, but its leader is called <set>-<group>."""
    env = {"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": address}
    assert found(env) == ("leaderworkerset", 1, 2, 0, replica)
    assert found({**env, "LWS_GROUP_INDEX": "7"})[-1] == "7"


@pytest.mark.parametrize("number", [str(1 << 20), "9" * 30, "9" * 5000])
def test_a_number_that_no_reader_takes_is_left_out(number: str) -> None:
    """A rank or world of 2^20 or more, or an attempt of 2^53, would make the whole file unreadable."""
    told: list[str] = []
    who = detect("a", environ={"RANK": number, "RLSHIP_WORLD": number, "RLSHIP_ATTEMPT": "9" * 5000}, warn=told.append)
    assert (who.source, who.rank, who.world, who.attempt) == ("none", 0, None, 0)
    assert len(told) == 3
    assert all(len(text) < 200 for text in told)
    assert detect("a", rank=1 << 20, attempt=1 << 53, environ={}, warn=told.append).rank == 0
    assert detect("a", rank=(1 << 20) - 1, environ={}).rank == (1 << 20) - 1


def test_long_names_are_cut_and_told() -> None:
    """An actor or replica has at most 200 characters."""
    told: list[str] = []
    who = detect("a" * 300, replica="b" * 201, environ={}, warn=told.append)
    assert (len(who.actor), len(who.replica)) == (200, 200)
    assert [text.partition("=")[0] for text in told] == ["actor", "replica"]


@pytest.mark.parametrize(
    ("environ", "given", "expected"),
    [
        ({}, {}, None),
        ({"RANK": "3", "LOCAL_RANK": "1"}, {}, 1),
        ({"RANK": "3", "RAY_LOCAL_RANK": "2"}, {}, 2),
        ({"RANK": "8", "LOCAL_RANK": "0"}, {"rank": 1, "world": 2}, 0),
        ({"OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_LOCAL_RANK": "2", "SLURM_PROCID": "0"}, {}, 2),
        ({"PMI_RANK": "6", "MPI_LOCALRANKID": "2"}, {}, 2),
        ({"SLURM_PROCID": "7", "SLURM_LOCALID": "3"}, {}, 3),
        # What a batch system left behind says nothing of a process that another launcher started.
        ({"JAX_PROCESS_ID": "3", "SLURM_PROCID": "0", "SLURM_LOCALID": "5"}, {}, None),
        ({"LOCAL_RANK": "5"}, {"rank": 5}, None),
    ],
)
def test_the_place_on_the_host_comes_from_the_launcher_of_the_rank(
    environ: dict[str, str], given: dict[str, Any], expected: int | None
) -> None:
    """The local rank, or None where no launcher says it."""
    assert detect("trainer", environ=environ, **given).local_rank == expected
