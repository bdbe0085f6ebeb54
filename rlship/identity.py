"""The identity of this process: rank, world and attempt from the launcher, replica, job and host.

Each launcher sets environment variables of its own. The first one that gives a rank wins. Launchers that set the rank
of this very process come first, those that only placed it last: a batch system or a pod may start a launcher that
starts us, and leak its own variables. Arguments of `init` come before `RLSHIP_*`, and those before any launcher.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# (launcher, rank, world): of several variables the first that is set counts.
_Launchers = tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
_LAUNCHERS: _Launchers = (
    ("torchrun", ("RANK",), ("WORLD_SIZE",)),  # also verl on Ray, Kubeflow, DeepSpeed, Accelerate
    ("ascend", ("RANK_ID",), ("RANK_SIZE",)),
    ("jax", ("JAX_PROCESS_ID", "JAX_PROCESS_INDEX"), ("JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT")),
)
# These may only describe where `ray start` was placed: every Ray actor on that node inherits them.
_PLACERS: _Launchers = (
    ("openmpi", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    ("pmi", ("PMI_RANK",), ("PMI_SIZE",)),
    # PMIx has no variable for the size, but Slurm, which provides PMIx, has one.
    ("pmix", ("PMIX_RANK",), ("SLURM_STEP_NUM_TASKS",)),
    ("slurm", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)

# The process's number on its host, from the launcher that gave the rank.
_LOCAL_RANKS = {
    "torchrun": ("LOCAL_RANK", "RAY_LOCAL_RANK"),
    "openmpi": ("OMPI_COMM_WORLD_LOCAL_RANK",),
    "pmi": ("MPI_LOCALRANKID",),
    "pmix": ("SLURM_LOCALID",),
    "slurm": ("SLURM_LOCALID",),
}

# torchrun counts its restarts from 0 again each time the batch system starts it again, so the outer counter has to
# weigh more.
_OUTER_ATTEMPTS = ("SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT")
_INNER_ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
_OUTER_WEIGHT = 1000

# Readers refuse a file whose first line has a greater number.
RANKS_END = 1 << 20
ATTEMPTS_END = 1 << 53
MAX_NAME = 200


class Identity:
    """The identity of a writer. `source` is where the rank came from: "given", "RLSHIP_RANK", a launcher or "none".
    `local_rank` is the process's number on its host; None if no launcher gives it. `job` names the submission of the
    job if the next one may have other replicas; else it is None.
    """

    __slots__ = ("actor", "attempt", "host", "job", "local_rank", "rank", "replica", "source", "world")

    def __init__(
        self,
        actor: str,
        replica: str,
        rank: int,
        world: int | None,
        attempt: int,
        source: str,
        host: str,
        local_rank: int | None = None,
    ) -> None:
        self.actor = actor
        self.replica = replica
        self.rank = rank
        self.world = world
        self.attempt = attempt
        self.source = source
        self.host = host
        self.local_rank = local_rank
        self.job: str | None = None


def detect(
    actor: str,
    replica: Any = None,
    rank: Any = None,
    world: Any = None,
    attempt: Any = None,
    environ: Mapping[str, str] | None = None,
    warn: Callable[[str], object] = lambda message: None,
) -> Identity:
    """Find this process's identity. Calls `warn` for each value that cannot be used, and tries the next source.

    Rank and world come as a pair from one source, so that a rank is never combined with the size of another group. A
    rank without a world is legal. Only a world given on its own (`world=`, `RLSHIP_WORLD`) is combined with a
    launcher's rank.
    """
    found = _Finder(os.environ if environ is None else environ, warn)
    own_rank = found.given("rank", rank, 0)
    own_world = found.given("world", world, 1)
    own_attempt = found.given("attempt", attempt, 0, ATTEMPTS_END)
    env_world = found.variable("RLSHIP_WORLD", least=1)
    place = found.place()
    local_rank = found.variable(*_LOCAL_RANKS.get(place.source, ()))
    if own_rank is not None:
        place = _Place("given", own_rank, None, None)
    else:
        env_rank = found.variable("RLSHIP_RANK")
        if env_rank is not None:
            place = _Place("RLSHIP_RANK", env_rank, None, None)
    if place.rank >= RANKS_END:  # from a launcher that gives the rank in parts
        warn(f"rank {place.rank} from {place.source} is not below {RANKS_END}, so it is left out: give rank=")
        place = _Place("none", 0, None, place.replica)
    known_world = own_world or env_world or place.world
    if known_world is not None and known_world >= RANKS_END:
        known_world = None
    if known_world is not None and place.rank >= known_world:
        warn(f"world {known_world} is not above rank {place.rank}, so it is left out: set RLSHIP_WORLD or world=")
        known_world = None
    if own_attempt is None:
        own_attempt = found.variable("RLSHIP_ATTEMPT", end=ATTEMPTS_END)
    if own_attempt is None:
        own_attempt = found.attempt()
    own_replica = replica if replica is not None else found.environ.get("RLSHIP_REPLICA") or None
    # Replicas that the program numbers are the same in every submission. Only `RLSHIP_JOB` says otherwise.
    own_job = found.environ.get("RLSHIP_JOB") or (place.job if own_replica is None else None)
    own_replica = place.replica if own_replica is None else own_replica
    identity = Identity(
        actor=bounded("actor", actor, warn),
        replica=bounded("replica", "" if own_replica is None else str(own_replica), warn) or "0",
        rank=place.rank,
        world=known_world,
        attempt=own_attempt,
        source=place.source,
        host=os.uname().nodename or "unknown",
        local_rank=local_rank,
    )
    identity.job = bounded("job", own_job, warn) if own_job else None
    return identity


def pid_space() -> str | None:
    """Which processes the id of this one counts among: the kernel and the pid namespace; None where Linux does not say.

    A reader in the same space can see that this process has ended, though it wrote no `close`.
    """
    try:
        # Not as text: the first look for a codec imports it, and the writing thread must not import.
        with open("/proc/sys/kernel/random/boot_id", "rb") as boot:
            return f"{boot.read().strip().decode('ascii')} {os.readlink('/proc/self/ns/pid')}"
    except (OSError, ValueError):
        return None


def bounded(what: str, name: str, warn: Callable[[str], object]) -> str:
    """The first MAX_NAME characters of a name."""
    if len(name) > MAX_NAME:
        warn(f"{what}={name[:40]!r}… has {len(name)} characters: only the first {MAX_NAME} are kept")
    return name[:MAX_NAME]


def file_name(identity: Identity, pid: int, writer: str) -> str:
    """`<actor>-<replica>-r<rank>-<host>-<pid>-<id>.jsonl`, for people; readers use the file's first line instead."""
    names = [safe(identity.actor), safe(identity.replica), f"r{identity.rank}", safe(identity.host)]
    return "-".join([*names, str(pid), writer]) + ".jsonl"


def safe(text: str) -> str:
    """A part of a file name: at most 48 letters, digits, `.` and `_`, and no leading dot."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._") else "_" for c in text[:48])
    return "_" + kept[1:] if kept.startswith(".") else kept or "_"


class _Place:
    __slots__ = ("job", "rank", "replica", "source", "world")

    def __init__(self, source: str, rank: int, world: int | None, replica: str | None, job: str | None = None) -> None:
        self.source = source
        self.rank = rank
        self.world = world
        self.replica = replica
        self.job = job


class _Finder:
    """Reads numbers out of one environment."""

    def __init__(self, environ: Mapping[str, str], warn: Callable[[str], object]) -> None:
        self.environ = environ
        self.warn = warn

    def given(self, name: str, value: Any, least: int, end: int = RANKS_END) -> int | None:
        """The value of an argument of `init`, or None if it cannot be used."""
        if value is None:
            return None
        number: int | None
        try:
            number = int(value)
            if isinstance(value, bool) or number != (value if isinstance(value, float) else number):
                number = None
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is None or not least <= number < end:
            self.warn(f"{name}={value!r:.40} is not an integer from {least} to {end - 1}, so it is left out")
            return None
        return number

    def variable(self, *names: str, least: int = 0, end: int = RANKS_END) -> int | None:
        """The value of the first of these variables that is set and usable, or None."""
        for name in names:
            text = self.environ.get(name, "").strip()
            if not text:
                continue
            # Python refuses to parse a number with thousands of digits.
            if text.isascii() and text.isdigit() and len(text) < 40 and least <= int(text) < end:
                return int(text)
            self.warn(
                f"{name}={text[:40]!r} in the environment is not an integer from {least} to {end - 1}, so it is left "
                "out"
            )
        return None

    def attempt(self) -> int:
        outer = self.variable(*_OUTER_ATTEMPTS) or 0
        inner = self.variable(_INNER_ATTEMPT) or 0
        return outer * _OUTER_WEIGHT + inner + (0 if outer or inner else _ray_restarts())

    def place(self) -> _Place:
        """The place that the first launcher with a rank gives."""
        return (
            self._launched(_LAUNCHERS)
            or _ray_train()
            or self._ray()
            or self._launched(_PLACERS)
            or self._tpu()
            or self._leader_worker_set()
            or self._indexed_job()
            or _Place("none", 0, None, None)
        )

    def _launched(self, launchers: _Launchers) -> _Place | None:
        for source, ranks, worlds in launchers:
            rank = self.variable(*ranks)
            if rank is not None:
                return _Place(source, rank, self.variable(*worlds, least=1), None)
        return None

    def _ray(self) -> _Place | None:
        """A Ray actor without a rank. Each is a replica: otherwise all actors of one kind would claim one rank.

        Its replica is its name, which the next submission of the job uses again, or else its id, which is another one
        then. So both say which job they are of.
        """
        try:
            # Asking a driver or a task for a name would log a warning.
            context = _ray_context()
            actor = context.get_actor_id() if context is not None else None
            if not actor:
                return None
            return _Place("ray", 0, None, context.get_actor_name() or str(actor)[:16], _ray_job(context, self.warn))
        except Exception as error:  # noqa: BLE001 - a foreign module's error must not stop the job
            self.warn(f"ray failed to report this process's actor: {type(error).__name__}: {error}")
            return None

    def _tpu(self) -> _Place | None:
        worker = self.variable("TPU_WORKER_ID", "CLOUD_TPU_TASK_ID")
        if worker is None:
            return None
        names = [name for name in self.environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if name.strip()]
        hosts = len(names) or None
        slices = self.variable("MEGASCALE_NUM_SLICES", least=1) or 1
        index = self.variable("MEGASCALE_SLICE_ID") or 0
        if slices == 1:
            return _Place("tpu", worker, hosts, None)
        if hosts is None:
            return _Place("tpu", worker, None, str(index))
        return _Place("tpu", index * hosts + worker, slices * hosts, None)

    def _leader_worker_set(self) -> _Place | None:
        rank = self.variable("LWS_WORKER_INDEX")
        if rank is None:
            return None
        world = self.variable("LWS_GROUP_SIZE", least=1)
        group = self.environ.get("LWS_GROUP_INDEX")
        if not group:
            # The controller itself sets no group index, but the leader's address is <set>-<group>.<subdomain>…
            _, dash, index = self.environ.get("LWS_LEADER_ADDRESS", "").partition(".")[0].rpartition("-")
            group = index if dash and index.isdigit() else None
        return _Place("leaderworkerset", rank, world, group)

    def _indexed_job(self) -> _Place | None:
        """An Indexed Job. In a JobSet the index starts at 0 in every job, so the job's own index is needed too."""
        rank = self.variable("JOB_COMPLETION_INDEX")
        if rank is None:
            return None
        job = self.variable("JOB_GLOBAL_INDEX", "JOB_INDEX")
        if job is None:
            return _Place("kubernetes", rank, None, None)
        processes = self.variable("PROCESSES_IN_JOB", least=1)
        if processes is None:
            return _Place("jobset", rank, None, str(job))
        return _Place("jobset", job * processes + rank, None, None)


def _ray_train() -> _Place | None:
    """A worker of Ray Train. It is an actor, and has torch's variables only where torch is the framework.

    A restart of the workers makes other actors: as replicas of their own they would count beside those that are gone.
    """
    # Not by the public name: before its version 2 that answers outside of workers, too, with rank 0 of 1 and a warning.
    train = sys.modules.get("ray.train.v2.api.train_fn_utils")
    if train is None:
        return None
    try:
        context = train.get_context()
        return _Place("ray train", int(context.get_world_rank()), int(context.get_world_size()), None)
    except Exception:  # noqa: BLE001 - a driver, a task or an actor beside the workers
        return None


def _ray_context() -> Any:
    """What Ray says of this process, or None. Asking a Ray that is not initialised would initialise it."""
    ray = sys.modules.get("ray")
    return None if ray is None or not ray.is_initialized() else ray.get_runtime_context()


def _ray_job(context: Any, warn: Callable[[str], object]) -> str | None:
    """The id of this actor's Ray job, with the session's name: in each cluster the ids of jobs begin anew."""
    try:
        name = getattr(context, "get_session_name", None)  # older releases of Ray lack it
        session = name() if name is not None else sys.modules["ray"]._private.worker._global_node.session_name
        return f"{session}/{context.get_job_id()}"
    except Exception as error:  # noqa: BLE001 - a foreign module's error must not stop the job
        warn(
            f"ray failed to report its session ({type(error).__name__}: {error}), so actors of later jobs count beside "
            f"these: set RLSHIP_JOB to another text for each submission"
        )
        return None


def _ray_restarts() -> int:
    """How often Ray restarted this actor."""
    try:
        context = _ray_context()
        actor = context.get_actor_id() if context is not None else None
        # RuntimeContext only says whether it was restarted, and warns that Ray's own code is deprecated.
        return int(sys.modules["ray"]._private.state.actors(actor_id=actor)["NumRestarts"]) if actor else 0
    except Exception:  # noqa: BLE001 - private to Ray; without the number the later `open` counts as the newer one
        return 0
