"""The fault campaign: a job and its sidecar are struck at random, then every sink is compared with the files.

`plan` says what happens when (pure, from a seed), `rounds` does it to real processes, `oracle` judges what came out
(pure), `report` counts. `python -m tests.soak --help` runs it.
"""
