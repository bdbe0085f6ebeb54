"""All that is known of one experiment before any unit is reduced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.reference.clocks import Clocks, clocks_of
from tests.reference.lines import read_file
from tests.reference.order import jobs_of, merge_order, root_of, submissions
from tests.reference.records import Writer
from tests.reference.settings import Reductions, Settings


@dataclass(frozen=True)
class Experiment:
    """The writers, what they say of their hosts' clocks, and the configuration.

    By `id()` of a writer, once asked for: `streamed` has the least `t` of its stream lines, `succeeded` when it was
    succeeded in streams. The campaigns have thousands of lines and rows.
    """

    writers: Sequence[Writer]
    clocks: Clocks
    overrides: Reductions
    settings: Settings
    streamed: dict[int, float] = field(default_factory=dict)
    succeeded: dict[int, float] = field(default_factory=dict)

    def crew(self, actor: str) -> list[Writer]:
        """The writers of one actor."""
        return [writer for writer in self.writers if writer.actor == actor]

    def lead_axis(self) -> str | None:
        """The axis of the lead's first writer in merge order; None if there is no lead."""
        crew = self.crew(self.settings.lead)
        return min(crew, key=lambda writer: merge_order(writer, writer.segments[0])).axis if crew else None


def read_experiment(files: Mapping[str, bytes], overrides: Reductions, settings: Settings) -> Experiment:
    """Read all files, find the root of each writer, and the server's time of each line."""
    writers = [writer for writer in (read_file(name, files[name]).writer for name in sorted(files)) if writer]
    for writer in writers:
        writer.root = root_of(writer, [other for other in writers if other.actor == writer.actor])
    for actor, replica in {(writer.actor, writer.replica) for writer in writers}:
        crew = [writer for writer in writers if writer.actor == actor]
        roots = [writer for writer in crew if writer.root is writer and writer.replica == replica]
        numbers = submissions(roots, jobs_of(crew))
        for root in roots:
            root.submission = numbers[id(root)]
    clocks = clocks_of(writers)
    for writer in writers:
        for segment in writer.segments:
            for line in segment.measured:
                line.time = clocks.server_time(writer, line.t)
    return Experiment(writers, clocks, overrides, settings)
