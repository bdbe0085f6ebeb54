"""The campaign in figures: how often each fault really struck, and what came out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.soak.injector import Tally
from tests.soak.plan import SERVER, SIGKILLS
from tests.soak.rounds import Outcome


@dataclass(frozen=True)
class Report:
    """All rounds of a campaign that `command` repeats."""

    command: str
    seed: int
    outcomes: Sequence[Outcome]

    @property
    def clean(self) -> bool:
        return bool(self.outcomes) and all(outcome.clean for outcome in self.outcomes)

    @property
    def tally(self) -> Tally:
        """What struck in all rounds."""
        total = Tally()
        for outcome in self.outcomes:
            total.add(outcome.tally)
        return total

    def places(self) -> dict[str, Counter[str]]:
        """Expected, lost, duplicated and wrong rows by place."""
        places: dict[str, Counter[str]] = {}
        for outcome in self.outcomes:
            for verdict in outcome.verdicts:
                places.setdefault(verdict.place, Counter()).update(
                    expected=verdict.expected, lost=verdict.lost, duplicated=verdict.duplicated, wrong=verdict.wrong
                )
        return places

    def to_json(self) -> str:
        """Everything, for programs."""
        tally = self.tally
        body: dict[str, Any] = {
            "command": self.command,
            "seed": self.seed,
            "clean": self.clean,
            "seconds": round(sum(outcome.seconds for outcome in self.outcomes), 1),
            "rounds": len(self.outcomes),
            "rows": sum(outcome.rows for outcome in self.outcomes),
            "kinds": dict(sorted(self._kinds().items())),
            "samples": sum(outcome.samples for outcome in self.outcomes),
            "tables_shown": sum(outcome.tables_shown for outcome in self.outcomes),
            "tables": sum(outcome.tables for outcome in self.outcomes),
            "revisions": sum(outcome.revisions for outcome in self.outcomes),
            "resent": sum(outcome.resent for outcome in self.outcomes),
            "writers": sum(outcome.writers for outcome in self.outcomes),
            "sidecars": sum(outcome.sidecars for outcome in self.outcomes),
            "sigkills": tally.sigkills,
            "server_faults": tally.server_faults,
            "server_faults_with_rows": {kind: n for kind, n in sorted(tally.with_rows.items()) if n},
            "signals": {f"{name} {process}": count for (name, process), count in sorted(tally.signals.items())},
            "planned": dict(sorted(tally.planned.items())),
            "struck": dict(sorted(tally.struck.items())),
            "missed": dict(sorted(tally.missed.items())),
            "not_struck": tally.impossible,
            "exits": {str(code): n for code, n in sorted(self._exits().items())},
            "places": {place: dict(counts) for place, counts in self.places().items()},
            "failures": [self._failure(outcome) for outcome in self.outcomes if not outcome.clean],
        }
        return json.dumps(body, indent=1) + "\n"

    def to_markdown(self) -> str:
        """The tables, for people."""
        tally = self.tally
        minutes = sum(outcome.seconds for outcome in self.outcomes) / 60
        lines = [
            f"`{self.command}`: {len(self.outcomes)} rounds of {minutes:.1f} minutes together, "
            f"{sum(outcome.rows for outcome in self.outcomes)} rows "
            f"({sum(outcome.revisions for outcome in self.outcomes)} of them revisions) from "
            f"{sum(outcome.writers for outcome in self.outcomes)} writer processes and "
            f"{sum(outcome.sidecars for outcome in self.outcomes)} sidecars; "
            f"{tally.sigkills} SIGKILLs, {tally.server_faults} server faults, "
            f"{sum(tally.with_rows.values())} of them on requests with rows.",
            "",
            "| fault | planned | struck |",
            "|---|---:|---:|",
        ]
        kinds = [*tally.planned, *(kind for kind in tally.struck if kind not in tally.planned)]
        for kind in sorted(kinds, key=lambda kind: (kind not in SIGKILLS, kind in SERVER, kind)):
            unit = " (requests)" if kind in SERVER and kind != "server down" else ""
            rows = f", {tally.with_rows[kind]} with rows" if tally.with_rows[kind] else ""
            lines.append(f"| {kind}{unit} | {tally.planned[kind] or ''} | {tally.struck[kind]}{rows} |")
        lines += [f"| {kind} | | not struck: {why} |" for kind, why in tally.impossible.items()]
        lines += ["", "| signal | " + " | ".join(PROCESSES) + " | all |", "|---|" + "---:|" * (len(PROCESSES) + 1)]
        for name in ("SIGKILL", "SIGSTOP"):
            counts = [tally.signals[name, process] for process in PROCESSES]
            lines.append(f"| {name} | {' | '.join(map(str, counts))} | {sum(counts)} |")
        lines += ["", "| place | rows expected | lost | duplicated | wrong |", "|---|---:|---:|---:|---:|"]
        for place, counts in self.places().items():
            figures = (str(counts[key]) for key in ("expected", "lost", "duplicated", "wrong"))
            lines.append(f"| {place} | {' | '.join(figures)} |")
        exits = ", ".join(f"{n} with exit code {code}" for code, n in sorted(self._exits().items())) or "none"
        resent = sum(outcome.resent for outcome in self.outcomes)
        lines += ["", f"Lines that came to the W&B server again: {resent}. Sidecars that ended by themselves: {exits}."]
        rows = ", ".join(f"{count} {kind}" for kind, count in sorted(self._kinds().items()))
        lines.append(
            f"Rows by kind: {rows}. They show {sum(outcome.samples for outcome in self.outcomes)} samples in "
            f"{sum(outcome.tables_shown for outcome in self.outcomes)} tables, of which "
            f"{sum(outcome.tables for outcome in self.outcomes)} came to the W&B server."
        )
        return "\n".join(lines) + "\n"

    def failures(self) -> str:
        """What is wrong, round by round, with the command that repeats it; "" if nothing is."""
        told = []
        for outcome in self.outcomes:
            if outcome.clean:
                continue
            failure = self._failure(outcome)
            told.append(f"round {outcome.plan.number} ({outcome.plan.theme}) failed; again: {failure['again']}")
            told.append(f"its folder was kept: {outcome.kept}")
            told += [f"  {problem}" for problem in outcome.problems]
            for verdict in outcome.verdicts:
                if not verdict.clean:
                    told.append(
                        f"  {verdict.place}: {verdict.lost} lost, {verdict.duplicated} duplicated, "
                        f"{verdict.wrong} wrong of {verdict.expected}"
                    )
                    told += [f"    {difference}" for difference in verdict.differences]
        return "\n".join(told)

    def _kinds(self) -> Counter[str]:
        return sum((outcome.kinds for outcome in self.outcomes), Counter())

    def _exits(self) -> Counter[int]:
        return Counter(code for outcome in self.outcomes for code in outcome.exits)

    def _failure(self, outcome: Outcome) -> dict[str, Any]:
        return {
            "round": outcome.plan.number,
            "theme": outcome.plan.theme,
            "again": f"python -m tests.soak --seed {self.seed} --round {outcome.plan.number} "
            f"--seconds {outcome.plan.seconds:g}",
            "kept": outcome.kept,
            "problems": outcome.problems,
            "differences": {v.place: v.differences for v in outcome.verdicts if not v.clean},
        }


PROCESSES = ("writer", "sidecar", "wandb child", "wandb-core")
