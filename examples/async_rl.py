"""Asynchronous RL in five processes: a trainer, three generators that never wait for it, and a replay buffer.

    python examples/async_rl.py outputs/async            # about half a minute
    echo "clock_window_s = 2" > outputs/async/rlship.toml
    rlship watch outputs/async --once

The policy shoots at a target that walks round a circle, a little further with each step of the trainer; a shot is a
point drawn around the policy's aim, and its reward is the greater the closer it is. Generators shoot with the newest
weights that they have been given when a rollout begins, the buffer keeps the newest rollouts of each generator, and the
trainer learns from as many of each. Half-way, one generator turns slow. Its rollouts tell then where the target was
some steps ago; the aim falls behind the target, and the reward falls: docs/streams.md finds the cause in the rows.

Only the trainer has steps. What the others log belongs to none: rlship aligns it by its time.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait

import rlship

GENERATORS = 3
SLOW = 2  # this replica turns slow …
SLOWER = 16  # … by this factor, once half of the steps are done
PUSH_EVERY = 2  # steps between two pushes of weights
CHUNKS, SHOTS = 4, 8  # a rollout, and what a generator does at a time
KEPT = 4  # rollouts of each generator in the buffer
SHARE = 2  # of each generator, in a batch
FRESH = 3  # new rollouts that a step waits for

SPREAD = 0.4  # of the shots around the aim
WIDTH = 0.4  # how far from the target a shot still earns something
WALK = 0.06  # radians that the target walks in a step
RATE = 0.8  # of the way that a batch points out

Point = tuple[float, float]


@dataclass(frozen=True)
class Job:
    """What all processes know. `step_s` is the time in seconds that the trainer computes for a step."""

    directory: str
    steps: int
    step_s: float

    @property
    def chunk_s(self) -> float:
        """How long a generator takes for one chunk: for a rollout half a step."""
        return self.step_s / 2 / CHUNKS


@dataclass(frozen=True)
class Rollout:
    """Shots and their rewards, by the policy of step `version`."""

    replica: int
    version: int
    shots: list[Point]
    rewards: list[float]


def target(step: int) -> Point:
    """Where the target is at a step of the trainer."""
    return math.cos(WALK * step), math.sin(WALK * step)


def reward(shot: Point, step: int) -> float:
    """1 in the middle of the target, and the less the further away."""
    return math.exp(-(math.dist(shot, target(step)) ** 2) / (2 * WIDTH**2))


def expected_reward(aim: Point, step: int) -> float:
    """The mean of `reward` over all shots around `aim`, exactly."""
    both = WIDTH**2 + SPREAD**2
    return WIDTH**2 / both * math.exp(-(math.dist(aim, target(step)) ** 2) / (2 * both))


def learn(aim: Point, batch: list[Rollout]) -> Point:
    """Reward-weighted regression: the aim moves towards the mean of the shots, each weighted by its reward."""
    x = y = total = 0.0
    for rollout in batch:
        for shot, gained in zip(rollout.shots, rollout.rewards):
            x += gained * shot[0]
            y += gained * shot[1]
            total += gained
    return aim[0] + RATE * (x / total - aim[0]), aim[1] + RATE * (y / total - aim[1])


def train(job: Job, buffer: Connection, generators: list[Connection]) -> None:
    """The lead: its steps are the steps of the whole job."""
    rlship.init(job.directory, actor="trainer")
    aim = target(0)
    for step in range(job.steps):
        rlship.set_step(step)
        if step % PUSH_EVERY == 0:
            with rlship.span("push_weights"):
                for generator in generators:
                    generator.send((step, aim))
            rlship.event("weights_pushed", version=step, to=len(generators))
        with rlship.span("wait_batch"):
            buffer.send(step)
            batch: list[Rollout] = buffer.recv()
        with rlship.span("train"):
            aim = learn(aim, batch)
            time.sleep(job.step_s)
        rlship.log({"reward": expected_reward(aim, step), "distance": math.dist(aim, target(step))})
        rlship.barrier(step)
    for process in (*generators, buffer):
        process.send(None)
    rlship.close()


def generate(job: Job, replica: int, weights: Connection, buffer: Connection) -> None:
    """Roll out for ever, with the newest weights. Nothing here knows the trainer's step."""
    rng = random.Random(replica)
    rlship.init(job.directory, actor="generator", replica=replica, count_steps=False)
    rlship.define("policy_version", "min", unit="global_step", per_rank=True)  # the oldest: gives policy_lag, too
    rlship.define({"reward": "mean", "tokens": ["sum", "rate"]}, per_rank=True)
    rlship.define("rollout_s", per_rank=True)  # the span's duration
    news = weights.recv()
    while news is not None:
        version, aim = news
        pause = job.chunk_s * (SLOWER if replica == SLOW and version >= job.steps // 2 else 1)
        shots: list[Point] = []
        with rlship.span("rollout"):
            for _ in range(CHUNKS):
                time.sleep(pause)
                shots += [(rng.gauss(aim[0], SPREAD), rng.gauss(aim[1], SPREAD)) for _ in range(SHOTS)]
                rlship.log({"tokens": SHOTS, "policy_version": version})
        rewards = [reward(shot, version) for shot in shots]
        rlship.log({"reward": rewards})
        buffer.send(Rollout(replica, version, shots, rewards))
        while news is not None and weights.poll():
            news = weights.recv()
    rlship.close()


def keep(job: Job, trainer: Connection, generators: list[Connection]) -> None:
    """Keep the newest rollouts of each generator, and hand out as many of each, as soon as enough of all are new."""
    rlship.init(job.directory, actor="buffer", count_steps=False)
    rlship.define("buf/size", "last")
    rlship.define("async/staleness", ["mean", "max"], stream=True)  # each one worth a point of its own
    kept: list[deque[Rollout]] = [deque() for _ in generators]
    fresh, asked = 0, -1
    while asked is not None:
        for source in wait([trainer, *generators]):
            assert isinstance(source, Connection)
            if source is trainer:
                asked = source.recv()
                continue
            rollout: Rollout = source.recv()
            fresh += 1
            shelf = kept[rollout.replica]
            shelf.append(rollout)
            if len(shelf) > KEPT:
                rlship.event("evicted", replica=rollout.replica, version=shelf.popleft().version)
        if asked is not None and asked >= 0 and fresh >= FRESH and all(len(shelf) >= SHARE for shelf in kept):
            batch = [rollout for shelf in kept for rollout in list(shelf)[-SHARE:]]
            rlship.log({"buf/size": sum(map(len, kept)), "async/staleness": [asked - one.version for one in batch]})
            trainer.send(batch)
            fresh, asked = 0, -1
    rlship.close()


def run(job: Job) -> None:
    """Start the processes, connect them, and wait for all; if one fails, the others end with this one."""
    context = get_context("spawn")
    asking, asked = context.Pipe()
    weights = [context.Pipe(duplex=False) for _ in range(GENERATORS)]
    rollouts = [context.Pipe(duplex=False) for _ in range(GENERATORS)]
    processes = [
        context.Process(target=train, args=(job, asking, [sender for _, sender in weights]), daemon=True),
        context.Process(target=keep, args=(job, asked, [receiver for receiver, _ in rollouts]), daemon=True),
        *(
            context.Process(
                target=generate, args=(job, replica, weights[replica][0], rollouts[replica][1]), daemon=True
            )
            for replica in range(GENERATORS)
        ),
    ]
    for process in processes:
        process.start()
    running = list(processes)
    while running:
        wait([process.sentinel for process in running])
        running = [process for process in running if process.is_alive()]
        if any(process.exitcode for process in processes):
            raise SystemExit(f"a process failed; exit codes: {[process.exitcode for process in processes]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Asynchronous RL with a generator that turns slow.")
    parser.add_argument("directory", nargs="?", default="outputs/async")
    parser.add_argument("--steps", type=int, default=60, help="steps of the trainer (60)")
    parser.add_argument("--step-s", type=float, default=0.4, help="seconds that a step computes (0.4)")
    chosen = parser.parse_args()
    run(Job(chosen.directory, chosen.steps, chosen.step_s))
