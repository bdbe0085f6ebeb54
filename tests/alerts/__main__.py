"""False episodes over simulated healthy runs: `python -m tests.alerts FIRST END [FRAMES]`, the seeds of the runs."""

from __future__ import annotations

import sys
import time
from collections import Counter

from rlship_sidecar.alerts.episodes import Episode, RuleState, episodes_of, start, step
from rlship_sidecar.alerts.rules import rules_of
from tests.alerts.healthy import healthy


def main() -> None:
    """Print each episode, then how many there were in how many frames, and what a frame cost."""
    first, end, count = (*map(int, sys.argv[1:3]), int(sys.argv[3]) if len(sys.argv) > 3 else 2000)
    rules = rules_of()
    found: Counter[str] = Counter()
    spent, frames = 0.0, 0
    for seed in range(first, end):
        states: list[RuleState] = [start(rule) for rule in rules]
        run = list(healthy(seed, count))
        frames += len(run)
        episodes: list[Episode] = []
        began = time.process_time()
        for frame in run:
            for place, rule in enumerate(rules):
                states[place], ended = step(rule, frame, states[place])
                episodes += ended
        spent += time.process_time() - began
        episodes += [one for rule, state in zip(rules, states) for one in episodes_of(rule, state)]
        for episode in episodes:
            found[episode.rule] += 1
            print(seed, episode)
    print(f"{sum(found.values())} episodes in {frames} frames {dict(found)}; {1e6 * spent / frames:.0f} us a frame")


if __name__ == "__main__":
    main()
