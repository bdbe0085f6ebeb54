"""Keeps the run's summary in step with the rows that W&B has, over restarts too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from rlship_sidecar import state_file
from rlship_sidecar.rows import Row, Unit
from rlship_sidecar.sinks.budget import KeyBudget
from rlship_sidecar.sinks.contract import SinkContext
from rlship_sidecar.sinks.names import SinkNames
from rlship_sidecar.sinks.wandb.point import Point, axis_name, names_gone, numbers, whole, withdrawn
from rlship_sidecar.sinks.wandb.summary import Number, Standing, Summary, follows, standing

SUMMARY_FILE = "wandb-summary.json"
SAVE_ROWS = 1000
READ_ROWS = 500
# Without the file, as after an earlier rlship, older rows have no say: reading all of a long run would take minutes.
REBUILT_ROWS = 20_000
LOOKED_BACK_ROWS = 2000  # for the furthest row that still has what a revision took away


class SummaryKeeper:
    """The summary of one run that W&B has the first `rows` rows of.

    The file has it as of some confirmed row; it is a copy that saves work. The rows after that come from the store.
    """

    def __init__(self, run: SinkContext, budget: KeyBudget | None, rows: int) -> None:
        self._run = run
        self._budget = budget
        self._rows = rows
        self._naming = json.dumps([run.store_id, run.options.get("first"), run.options.get("extras")])
        self._path: Path = run.state_dir / SUMMARY_FILE
        self._summary: Summary | None = None
        self._saved = 0

    def catch_up(self, names: SinkNames, check: Callable[[], None]) -> Mapping[str, Number]:
        """The numbers that W&B should show of the rows that it has. Only the first call does anything; it calls `check`
        between reads of rows.
        """
        if self._summary is not None:
            return {}
        found = self._load()
        if found.rows > self._rows or self._rows - found.rows > REBUILT_ROWS:
            found = Summary()
            found.rows = max(0, self._rows - REBUILT_ROWS)
        self._summary, self._saved = found, found.rows
        while found.rows < self._rows:
            check()
            rows = self._run.stored(found.rows, min(READ_ROWS, self._rows - found.rows))
            if not rows:
                break  # a store that was set back is refused elsewhere
            for row in rows:
                self._add(found, names, row, None)
        return found.all()

    def _load(self) -> Summary:
        try:
            return Summary.from_json(self._path.read_bytes(), self._naming)
        except FileNotFoundError:
            return Summary()

    def withdrawing(self, names: SinkNames, row: Row, made: Point) -> Point:
        """The row's point, which also takes away the numbers that the row lost."""
        assert self._summary is not None, "not caught up"
        return withdrawn(made, self._gone(self._summary, names, row) - {*made.numbers, *made.hists})

    def _gone(self, summary: Summary, names: SinkNames, row: Row) -> set[str]:
        if row.arrival.revision == 0:
            return set()
        ranks = [] if self._budget is None else self._budget.withdrawn(row)
        return {name for name in names_gone(row, names, ranks) if summary.knows(name)}

    def add(self, names: SinkNames, row: Row, made: Point) -> Mapping[str, Number]:
        """The numbers that have to be said to W&B after this row's line."""
        assert self._summary is not None, "not caught up"
        return self._add(self._summary, names, row, made)

    def _add(self, summary: Summary, names: SinkNames, row: Row, made: Point | None) -> Mapping[str, Number]:
        line = self._numbers(names, row) if made is None else made.numbers
        if not row.arrival.revision:
            return summary.add(standing(row), axis_name(row), line, line)
        found, place = self._numbers(names, whole(row)), standing(row)
        gone = self._gone(summary, names, row) - found.keys()
        for key, (before, number) in self._before(names, row, summary.withdraw(place, gone)).items():
            summary.put(key, before, number)
        told = summary.add(place, axis_name(row), found, line)
        # The line of the row has these as NaN.
        left = {key: summary.get(key) for key in (gone if made is None else made.withdrawn)}
        return {**{key: number for key, number in left.items() if number is not None}, **told}

    def _before(self, names: SinkNames, row: Row, keys: set[str]) -> dict[str, tuple[Standing, Number]]:
        """Of each key the furthest row of the series of `row` that still has a number, among the last ones."""
        found: dict[str, tuple[Standing, Number]] = {}
        seen, series = {row.unit}, standing(row).series
        end, oldest = row.row_number, max(0, row.row_number - LOOKED_BACK_ROWS)
        while end > oldest and keys - found.keys():
            first = max(oldest, end - READ_ROWS)
            newest: dict[Unit, Row] = {one.unit: one for one in self._run.stored(first, end - first)}
            nearer: dict[str, tuple[Standing, Number]] = {}
            for one in newest.values():
                place = standing(one)
                if one.unit in seen or place.series != series:
                    continue
                for key, number in self._numbers(names, whole(one)).items():
                    if key in keys and (key not in nearer or follows(place, nearer[key][0])):
                        nearer[key] = place, number
            found = {**nearer, **found}
            seen.update(newest)
            end = first
        return found

    def _numbers(self, names: SinkNames, row: Row) -> Mapping[str, Number]:
        return numbers(row, names, {} if self._budget is None else self._budget.known(row))

    def confirmed(self) -> None:
        """W&B has all rows that were added: save the summary now and then."""
        summary = self._summary
        if summary is None or summary.rows - self._saved < SAVE_ROWS:
            return
        self._saved = summary.rows
        with suppress(OSError):  # without it the next start reads more rows
            state_file.replace(self._path, summary.to_json(self._naming), durable=False)
