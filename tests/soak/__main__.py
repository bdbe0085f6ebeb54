"""`python -m tests.soak --minutes 10 --seed 1`: run a campaign, print its report, exit with 1 if a row is not right."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.soak.isolation import enter, isolated
from tests.soak.plan import SECONDS, Round, how_many_rounds, plan_round
from tests.soak.report import Report
from tests.soak.rounds import Outcome, run_round

ENDS_S = 21.0  # of a round: its start and its end


def main(arguments: list[str]) -> int:
    """Run the campaign that the command line asks for."""
    given = _parser().parse_args(arguments)
    if not given.plan:
        enter(arguments)
    number_of_rounds = given.lanes * how_many_rounds(given.minutes, given.seconds + ENDS_S)
    numbers = [given.round] if given.round is not None else range(number_of_rounds)
    plans = [plan_round(given.seed, number, given.seconds) for number in numbers]
    if given.plan:
        for plan in plans:
            print(f"round {plan.number}: {plan.theme}, a step every {plan.pace_s:.3f} s")
            print("\n".join(map(str, plan.strikes)))
        return 0
    if not isolated():
        print("no namespaces of its own: disks are not filled, all sidecars are of one host", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    out = Path(given.out).absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    report = _campaign(given, plans, out)
    print(report.to_markdown())
    print(f"Written to {out}/report.json and report.md")
    if not report.clean:
        print(report.failures())
    return 0 if report.clean else 1


def _campaign(given: argparse.Namespace, plans: list[Round], out: Path) -> Report:
    """Run the rounds, `lanes` at a time, and write the report after each."""
    outcomes: list[Outcome] = []
    command = f"make soak MINUTES={given.minutes:g} SEED={given.seed} LANES={given.lanes}"
    report = Report(command, given.seed, outcomes)
    scratch = Path(tempfile.mkdtemp(prefix="rlship-soak-", dir=given.dir))
    over = threading.Event()

    def run(plan: Round) -> Outcome | None:
        if over.is_set():
            return None
        return run_round(plan, scratch / f"round-{plan.number}", out / f"round-{plan.number}")

    try:
        with ThreadPoolExecutor(given.lanes) as lanes:
            try:
                for outcome in lanes.map(run, plans):
                    if outcome is not None:
                        outcomes.append(outcome)
                        print(_told(outcome), file=sys.stderr, flush=True)
                        (out / "report.json").write_text(report.to_json())
                        (out / "report.md").write_text(report.to_markdown())
            finally:
                over.set()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return report


def _told(outcome: Outcome) -> str:
    return (
        f"{time.strftime('%H:%M:%S')} round {outcome.plan.number}, {outcome.plan.theme}: {outcome.rows} rows, "
        f"{outcome.tally.sigkills} SIGKILLs, {outcome.tally.server_faults} server faults, "
        f"{outcome.seconds:.0f} s: {'right' if outcome.clean else 'WRONG'}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tests.soak", description="Strike a job and its sidecar at random.")
    parser.add_argument("--minutes", type=float, default=10.0, help="about how long it may take (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="what decides everything that is random (default: 1)")
    lanes = max(1, (os.cpu_count() or 1) // 2)
    parser.add_argument("--lanes", type=int, default=lanes, help=f"rounds at the same time (default here: {lanes})")
    parser.add_argument("--round", type=int, help="only this round of the seed's")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a round strikes (default: 24)")
    parser.add_argument("--plan", action="store_true", help="print what would happen, and do nothing")
    parser.add_argument("--dir", help="where the experiments are made (default: the folder for temporary files)")
    parser.add_argument("--out", default="build/soak", help="where reports and failed rounds go (default: build/soak)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
