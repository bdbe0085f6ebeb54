"""Whatever happens to files for a while, once they are whole again the rows are those of the files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.kit.cases import statistical
from tests.pipeline.simulated import LOCAL, REMOTE, Simulation, simulation
from tests.pipeline.test_against_reference import EACH, check_numbering
from tests.reference.experiments import arrivals, experiments
from tests.reference.reduction import differing, final_rows

CASES = statistical(300, suppress_health_check=list(HealthCheck))
DISTURBANCES = ("none", "none", "hidden", "shorter", "unreadable", "stale", "new inode", "nul bytes")


@contextmanager
def disturbed(sim: Simulation, name: str, how: str, share: float) -> Iterator[None]:
    """For a while one file is not as it should be."""
    path = sim.directory / "rlship" / name
    if how == "none" or not path.exists():
        yield
        return
    data = path.read_bytes()
    cut = int(len(data) * share)
    if how == "hidden":
        path.rename(sim.directory / "hidden")
        yield
        (sim.directory / "hidden").rename(path)
    elif how == "shorter":
        os.truncate(path, cut)
        yield
        with open(path, "r+b") as file:
            file.write(data)
    elif how == "nul bytes":
        read = sim.experiment.sources[name].read if name in sim.experiment.sources else 0
        hole = range(max(read, cut), len(data))
        with open(path, "r+b") as file:
            file.seek(hole.start)
            file.write(b"\0" * len(hole))
        yield
        with open(path, "r+b") as file:
            file.write(data)
    elif how == "new inode":
        (sim.directory / "other").write_bytes(data)
        os.replace(sim.directory / "other", path)
        yield
    else:
        code = errno.EIO if how == "unreadable" else errno.ESTALE
        with pytest.MonkeyPatch.context() as patch:
            refuse(patch, str(path), code)
            yield


def refuse(patch: pytest.MonkeyPatch, path: str, code: int) -> None:
    """Opening the file fails: always, or, for ESTALE, every other time."""
    real, calls = os.open, [0]

    def refusing(name: str, *arguments: int, **more: int) -> int:
        if os.fspath(name) == path:
            calls[0] += 1
            if code != errno.ESTALE or calls[0] % 2:
                raise OSError(code, os.strerror(code), path)
        return real(name, *arguments, **more)

    patch.setattr(os, "open", refusing)


@pytest.mark.parametrize("filesystem", [LOCAL, REMOTE], ids=["local", "network"])
@CASES
@given(data=st.data())
def test_what_passes_leaves_no_trace(filesystem: object, data: st.DataObject) -> None:
    """Files that are hidden, shorter, unreadable, stale, full of NUL bytes or under another inode for a while, also
    over a restart, and are whole in the end: the final rows are those of the files.
    """
    files = data.draw(experiments())
    names = sorted(files) or ["none.jsonl"]
    with simulation(filesystem=filesystem) as sim:
        visible = dict.fromkeys(files, 0)
        for lengths in data.draw(arrivals(files)):
            for name, length in lengths.items():
                if length > visible[name]:
                    sim.write(name, files[name][visible[name] : length])
                    visible[name] = length
            how = data.draw(st.sampled_from(DISTURBANCES))
            if how == "nul bytes" and filesystem is LOCAL:
                how = "none"
            share = data.draw(st.floats(0, 1))
            with disturbed(sim, data.draw(st.sampled_from(names)), how, share):
                # NUL bytes that stay for half a minute are taken as they are; all else may last as long as it likes.
                waits = (0.0, 0.4, 3.0) if how == "nul bytes" else (0.0, 0.4, 3.0, 70.0)
                for _ in range(data.draw(st.integers(0, 2))):
                    sim.wait(data.draw(st.sampled_from(waits)))
                    sim.tick()
                    if data.draw(st.integers(0, 2)) == 0:
                        sim.restart()
                if ends := data.draw(st.booleans()):
                    sim.stop()
            if ends:
                sim._start()
            sim.wait(data.draw(st.sampled_from((0.0, 3.0, 12.0))))
            sim.tick()
        sim.wait(12.0)
        sim.finish()
        assert not differing(final_rows(files, settings=EACH), sim.final())
        check_numbering(sim.rows())
