"""A simulated job, step by step: what its processes write, and what the oracle sees of it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.incidents.chance import GROUPS, SAMPLES, Noises, hardware, is_logged, task
from benchmarks.incidents.faults import Fault
from benchmarks.incidents.machines import COMES_BACK, GIB, OPTIM, Engines, Ranks, reward_metrics
from benchmarks.incidents.plan import Incident
from benchmarks.incidents.policy import Batch, Learner, Update
from benchmarks.incidents.processes import Process

T0 = 1_763_600_000.0
WORKERS = 2
GPUS = 4  # of a host
SAVED = 20  # steps between states that a restart goes back to


@dataclass(frozen=True, slots=True)
class Truth:
    """What the oracle sees of a step: the policy's true quality, and how long the step took."""

    step: int
    quality: float
    took: float


@dataclass(slots=True)
class Events:
    """What happens in a healthy run, and when. `at` maps a step to what happens there for the first time."""

    kinds: tuple[str, ...]
    chance: random.Random
    at: dict[int, list[str]] = field(default_factory=dict)

    def schedule(self, steps: int) -> None:
        """Choose the steps."""
        for kind in self.kinds:
            for _ in range(self.chance.randint(1, 3)):
                self.at.setdefault(self.chance.randrange(60, max(61, steps - 40)), []).append(kind)


class Job:
    """One run. With `folder` its files are written there, without it only the oracle looks at it."""

    def __init__(self, seed: int, fault: Incident | None, events: tuple[str, ...], folder: Path | None) -> None:
        self.machine, self.task = hardware(seed), task(seed)
        self.noises = Noises(seed)
        self.fault = Fault(fault)
        self.learner = Learner(self.task, self.fault, self.noises)
        self.engines = Engines(self.machine, self.task, self.fault, self.noises)
        self.ranks = Ranks(self.machine, self.fault, self.noises)
        self.events = Events(events, random.Random(f"{seed}/events"))
        self.t = T0
        self.resumed = False
        self.away: list[tuple[int, int, int]] = []  # a replica that is not there, and from when until when
        self.files = None if folder is None else Files(folder, seed, self)

    def run(self, steps: int) -> list[Truth]:
        """Run the job; what the oracle sees of the last time that each step was done."""
        self.events.schedule(steps)
        seen: dict[int, Truth] = {}
        if self.files:
            self.files.begin(self.t)
        step = 0
        while step < steps:
            self.fault.step = step
            step, redone = self._happens(step)
            if redone:
                continue
            seen[step] = self._step(step)
            step += 1
        if self.files:
            self.files.end(self.t)
        return [seen[one] for one in sorted(seen)]

    def _happens(self, step: int) -> tuple[int, bool]:
        """What happens in front of a step. Returns the step to go on with, and whether it is an earlier one."""
        kinds = self.events.at.pop(step, [])
        if step == self.fault.onset and self.fault.active("lr_reset_at_resume") and not self.resumed:
            self.resumed = True
            return self._go_back(step, restart=True), False
        if step == self.fault.onset and self.fault.active("dead_rank"):
            self._lose(self.fault.at, 0)
        if step == self.fault.onset and self.fault.active("recovered_engine_old_weights"):
            self._lose(self.fault.at, step + COMES_BACK)
        for kind in kinds:
            if kind == "curriculum":
                self.learner.harden(self.events.chance.uniform(0.02, 0.1), self.events.chance.uniform(1.0, 1.2))
            elif kind == "replica_restart":
                self._restart_replica(step)
            elif kind == "elastic":
                self._resize(step)
            elif kind in ("restart", "rollback"):
                back = step - step % SAVED if kind == "restart" else step - self.events.chance.randint(1, 30)
                return self._go_back(back, restart=kind == "restart"), True
        return step, False

    def _restart_replica(self, step: int) -> None:
        """A replica is killed, or ended on purpose, and comes back some steps later."""
        chance = self.events.chance
        at, back = chance.randrange(self.machine.replicas), step + chance.randint(2, 6)
        on_purpose = chance.random() < 0.5
        if not self.engines.every[at].alive or len(self.engines.living) < 3:
            return
        self._lose(at, back)
        if not on_purpose:
            self.away.append((at, step, back))
        elif self.files:
            self.files.leave(at, self.t)

    def _lose(self, at: int, back: int) -> None:
        one = self.engines.every[at]
        one.alive, one.back = False, back

    def _resize(self, step: int) -> None:
        """A replica leaves for good, or one that left comes back."""
        gone = [one for one in self.engines.every if not one.alive and not one.back]
        if gone:
            gone[0].back = step
        elif len(self.engines.living) > 2:
            last = self.engines.living[-1]
            last.alive = False
            if self.files:
                self.files.leave(last.at, self.t)

    def _go_back(self, step: int, *, restart: bool) -> int:
        self.learner.go_back(step)
        self.t += self.events.chance.uniform(60, 600) if restart else self.events.chance.uniform(5, 60)
        self.fault.step = step
        if restart:
            self.ranks.retries, self.ranks.gaps = 0, 5.0
            for one in self.engines.living:
                one.since = step
        if self.files:
            self.files.go_back(step, self.t, restart=restart)
        return step

    def _step(self, step: int) -> Truth:
        engines, ranks, machine = self.engines, self.ranks, self.machine
        engines.sync(step)
        served, mismatch, honest, lag = engines.served(step)
        batch = self.learner.sample(served, mismatch, honest)
        update = self.learner.learn(batch, lag)
        ranks.fragment()
        tokens = (300 + batch.length) / (300 + self.task.length) * self.noises.times("tokens", 0.03)
        active, comm = ranks.active(ranks.shares(), tokens), ranks.comm_s()
        waits = [0.05 * machine.update_s * self.noises.times(f"load/{rank}", 0.2) for rank in range(machine.ranks)]
        if self.fault.active("data_loader_slow"):
            waits[self.fault.at] += self.fault.size * machine.update_s
        get_s = 0.02 * self.noises.times("get", 0.2)
        get_s += self.fault.size_of("buffer_contention", 0) * machine.update_s
        trained = max(a + w for a, w in zip(active, waits)) + comm + OPTIM * machine.update_s + get_s
        rolled = engines.rollout_s(tokens) + 0.2 * 15 * batch.timed_out
        took = max(rolled, trained) + machine.sync_s * self.noises.times("sync", 0.1)
        extra = self._pauses(step)
        self.t += took + sum(extra.values())
        if self.files:
            said = StepSaid(step, self.t, took, batch, update, lag, tokens, active, comm, waits, get_s, extra, rolled)
            self.files.step(said)
        return Truth(step, self.learner.true_quality(batch), took)

    def _pauses(self, step: int) -> dict[str, float]:
        """Checkpoints and evaluations, by the name of their stage."""
        pauses = {}
        if "checkpoint" in self.events.kinds and step % 50 == 49:
            pauses["ckpt"] = self.events.chance.uniform(10, 60)
        if "evaluation" in self.events.kinds and step % 100 == 99:
            pauses["eval"] = self.events.chance.uniform(30, 120)
        return pauses


@dataclass(frozen=True, slots=True)
class StepSaid:
    """What a step was, for those who log it."""

    step: int
    t: float
    took: float
    batch: Batch
    update: Update
    lag: float
    tokens: float
    active: list[float]
    comm: float
    waits: list[float]
    get_s: float
    pauses: dict[str, float]
    rolled: float


class Files:
    """The files of all processes of a job."""

    def __init__(self, folder: Path, seed: int, job: Job) -> None:
        self._folder = folder / "rlship"
        self._folder.mkdir(parents=True)
        self._seed, self._job = seed, job
        self._fingerprints = random.Random(f"{seed}/fingerprints").random() < 0.5
        self._ledger = random.Random(f"{seed}/ledger")
        self._logged: dict[str, bool] = {}
        self._attempt = 0
        ranks, replicas = job.machine.ranks, job.machine.replicas
        version = {"policy_version": {"reduce": ["min", "max"], "per_rank": True, "unit": "global_step"}}
        loading = {"data/loading_s": {"reduce": "max", "unit": "s", "per_rank": True}}
        self._trainers = [Process("trainer", "0", r, ranks, f"train{r // GPUS}", loading) for r in range(ranks)]
        self._generators = [Process("generator", str(at), 0, 1, f"gen{at}", version) for at in range(replicas)]
        self._rewards = [Process("reward", "0", rank, WORKERS, "cpu0") for rank in range(WORKERS)]
        self._buffer = Process("buffer", "0", 0, 1, "cpu1")
        self._controller = Process("controller", "0", 0, 1, "cpu1")
        hosts = sorted({one.host for one in self._trainers})
        self._nodes = [Process("node", host, 0, 1, host, labels={"agent": "sysmon"}) for host in hosts]

    def _all(self) -> Iterator[Process]:
        yield from (*self._trainers, *self._generators, *self._rewards, self._buffer, self._controller, *self._nodes)

    def begin(self, t: float) -> None:
        """All processes start."""
        for one in self._all():
            one.begin(t)

    def go_back(self, step: int, t: float, *, restart: bool) -> None:
        """The job goes back to a step, in new processes or in the same."""
        self._attempt += restart
        living = {str(one.at) for one in self._job.engines.living}
        for one in self._all():
            if one.actor == "node" or (one.actor == "generator" and one.replica not in living):
                continue
            if restart:
                one.write(self._folder)
                one.begin(t, self._attempt)
            else:
                one.add({"kind": "rollback", "step": step, "t": t})

    def leave(self, at: int, t: float) -> None:
        """A generator ends on purpose."""
        self._generators[at].close(t)

    def end(self, t: float) -> None:
        """The job is done."""
        living = {str(one.at) for one in self._job.engines.living}
        for one in self._all():
            if one.actor != "generator" or one.replica in living:
                one.close(t)
            one.write(self._folder)

    def _kept(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Without what this job does not log."""
        for name in metrics:
            if name not in self._logged:
                self._logged[name] = is_logged(self._seed, name)
        return {name: value for name, value in metrics.items() if self._logged[name]}

    def step(self, said: StepSaid) -> None:
        """All log a step."""
        job, step, t = self._job, said.step, said.t
        for engine in job.engines.living:
            process = self._generators[engine.at]
            if engine.returned == step:
                engine.returned = -1
                process.write(self._folder)
                process.begin(t - said.took, self._attempt)
            metrics = job.engines.metrics(engine, said.batch, said.rolled)
            process.log(step, t - 0.2, self._kept(metrics))
        for worker, process in enumerate(self._rewards):
            metrics = reward_metrics(job.learner, job.fault, job.machine, said.batch, worker)
            process.log(step, t - 0.15, self._kept(metrics))
        for rank, process in enumerate(self._trainers):
            process.log(step, t, self._kept(self._of_rank(rank, said)))
        self._buffer.log(step, t - 0.1, self._kept(self._of_buffer(said)))
        self._controller.log(step, t, self._kept(self._of_controller(said)))
        for at, process in enumerate(self._nodes):
            process.add({"t": t - 0.3 * said.took, "m": self._kept(self._of_node(at))})
        self._record(said)

    def _of_rank(self, rank: int, said: StepSaid) -> dict[str, Any]:
        job, update, batch = self._job, said.update, said.batch
        noises, machine = job.noises, job.machine
        nats = batch.mismatch * noises.times(f"logp/{rank}", 0.03)
        other = max(0.0, nats - batch.honest)
        active = said.active[rank]
        share = active / sum(said.active)
        loss = 0.01 * noises("loss") if update.finite else "NaN"
        ratio = 1 + 0.002 * noises(f"ratio/{rank}")
        return {
            "train/loss": loss,
            "train/grad_norm": update.grad_norm if update.finite else "NaN",
            "train/lr": update.lr,
            "train/kl_ref": max(0.0, update.kl) * noises.times(f"kl/{rank}", 0.02),
            "train/ppo_kl": update.ppo_kl,
            "train/entropy": max(0.0, update.entropy + 0.004 * noises(f"entropy/{rank}")),
            "train/clip_frac": min(1.0, math.erfc(0.2 / (0.05 + 1.25 * nats) / math.sqrt(2))),
            "train/importance_ratio": [ratio * math.exp(-nats), ratio, ratio * math.exp(nats)],
            "train/skipped_steps": int(not update.finite),
            "correctness/rollout_train_logp_diff": nats,
            "correctness/k3_kl": 0.5 * (1.25 * other) ** 2,
            "correctness/is_ess": update.ess,
            "correctness/chi2": update.chi2,
            "correctness/nonfinite_count": 0 if update.finite else 1,
            "correctness/response_mask_ratio": update.mask,
            "correctness/token_align_err": self._misaligned(said),
            "policy_version": said.step,
            "bal/rank_tokens": round(said.tokens * GROUPS * SAMPLES * (300 + job.task.length) * share),
            "bal/rank_active_s": active,
            "bal/rank_idle_s": max(0.0, said.took - active - said.comm),
            "upd/forward_s": 0.33 * active,
            "upd/backward_s": 0.67 * active,
            "upd/optim_s": OPTIM * machine.update_s,
            "upd/comm_s": said.comm * noises.times(f"comm/{rank}", 0.02),
            "data/loading_s": said.waits[rank],
            "sync/push_s": machine.sync_s * noises.times("push", 0.05),
            **job.ranks.memory(rank, said.tokens),
        }

    def _misaligned(self, said: StepSaid) -> int:
        share = self._job.fault.size_of("retokenisation_drift", 0) / 1000
        return round(share * said.batch.length * GROUPS * SAMPLES / self._job.machine.ranks)

    def _of_buffer(self, said: StepSaid) -> dict[str, Any]:
        job, noises = self._job, self._job.noises
        waiting = GROUPS * SAMPLES * (job.task.lag + job.engines.queued) * noises.times("queue", 0.1)
        samples = GROUPS * SAMPLES
        refused = round(samples * job.engines.refused / job.machine.replicas)
        return {
            "buf/size": waiting + samples,
            "buf/queue_depth": waiting,
            "buf/evicted": refused,
            "buf/write_per_s": samples + refused,
            "buf/read_per_s": samples,
            "buf/get_s": [said.get_s * scale for scale in (0.8, 0.9, 1.0, 1.1, 1.4)],
            "async/stale_dropped": refused,
        }

    def _of_controller(self, said: StepSaid) -> dict[str, Any]:
        job, batch, noises = self._job, said.batch, self._job.noises
        again = job.fault.size_of("prompts_repeated", 0)
        lengths = [batch.length * scale for scale in (0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.4, 1.9)]
        metrics: dict[str, Any] = {
            "perf/step_s": said.took + sum(said.pauses.values()),
            **{f"perf/stage_s/{stage}": took for stage, took in said.pauses.items()},
            "perf/stage_s/rollout": said.rolled,
            "perf/stage_s/update": max(said.active) + said.comm,
            "data/response_len": lengths,
            "data/prompt_len": 300 * noises.times("prompt", 0.03),
            "data/clip_ratio": max(0.0, min(1.0, batch.clip_ratio + 0.005 * abs(noises("clip")))),
            "data/step_tokens": said.tokens * GROUPS * SAMPLES * (300 + job.task.length),
            "data/unique_prompt_frac": 1 - 0.9 * again,
            "data/dup_ids": round(again * GROUPS * SAMPLES),
            "reward/zero_std_frac": batch.zero_std,
            "async/staleness": [max(0.0, said.lag + off) for off in (-0.5, 0, 0, 0.5)],
        }
        if said.step % 10 == 9:
            quality = job.learner.true_quality(batch) - job.learner.hard
            metrics["eval/score"] = max(0.0, min(1.0, quality + 0.015 * noises("eval")))
        return metrics

    def _of_node(self, at: int) -> dict[str, Any]:
        job = self._job
        gpus = [job.ranks.gpu(rank) for rank in range(at * GPUS, min((at + 1) * GPUS, job.machine.ranks))]
        return {
            "node/gpu_temp": [temperature for temperature, _ in gpus],
            "node/gpu_sm_clock": [clock for _, clock in gpus],
            "node/cpu": max(0.02, min(1.0, 0.3 + 0.05 * job.noises(f"cpu/{at}"))),
            "node/host_mem": (300 + 5 * job.noises(f"host/{at}")) * GIB,
            "node/gpu_throttle/hw_thermal": [float(temperature > 84) for temperature, _ in gpus],
        }

    def _record(self, said: StepSaid) -> None:
        """Two groups of the step in the ledger, and the weights' fingerprints."""
        fault, engines, chance = self._job.fault, self._job.engines, self._ledger
        if self._fingerprints:
            self._trainers[0].loaded(said.step, f"bfloat16:65:{said.step:08x}:00000000", said.step, said.t)
        for engine in engines.living if self._fingerprints else ():
            text = f"bfloat16:65:{engine.loaded:08x}:{int(fault.active('sync_corrupts_weights')):08x}"
            self._generators[engine.at].loaded(engine.label, text, None, said.t - 0.9)
        for number in range(2):
            engine = chance.choice(engines.living)
            key = f"{said.step}:{number}:{self._trainers[0].attempt}:{round(said.t)}"
            tokens = [[chance.randrange(150_000) for _ in range(5)] for _ in range(4)]
            rewards = [chance.choice((0.0, 0.5, 1.0)) for _ in range(4)]
            mask = [[1] * 5 for _ in range(4)]
            self._generators[engine.at].record(
                "generated", key, None, said.t - 0.8 * said.took, tokens=tokens, version=engine.label
            )
            self._rewards[number].record("rewarded", key, None, said.t - 0.5 * said.took, tokens=tokens, reward=rewards)
            if fault.active("retokenisation_drift"):
                tokens = [[row[0] + 1, *row[1:]] for row in tokens]
            if chance.random() < fault.size_of("rewards_misassigned", 0):
                rewards = rewards[1:] + rewards[:1]
            middle = sum(rewards) / 4
            sign = -1.0 if chance.random() < fault.size_of("advantage_sign_flipped", 0) else 1.0
            if chance.random() < fault.size_of("wrong_loss_mask", 0) * 2:
                mask = [[0, *row[1:]] for row in mask]
            self._trainers[number].record(
                *("trained", key, said.step, said.t - 0.1),
                tokens=tokens,
                reward=rewards,
                advantage=[sign * (reward - middle) for reward in rewards],
                mask=mask,
                response=[5] * 4,
                version=engine.label,
            )
