"""The Prometheus metrics, as a scraper reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from rlship._version import __version__
from rlship_sidecar.observe.exposition import MAX_VALUES, OTHER, Exposition
from rlship_sidecar.observe.pulse import LoopSnapshot, Pulse
from rlship_sidecar.report.status import ClockStatus
from rlship_sidecar.tally import Shipping, Tally
from tests.cli.sample import a_dead_letter, a_sink, a_status, a_writer, an_actor

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def told(*reports: tuple[object, Tally], suspended: tuple[str, ...] = ()) -> Pulse:
    pulse = Pulse(clock=lambda: 50.0)
    pulse.beat()
    pulse.report(LoopSnapshot([status for status, _ in reports], [tally for _, tally in reports], suspended))  # type: ignore[misc]
    return pulse


def lines(pulse: Pulse, accept: str = "") -> list[str]:
    """All samples but those of the process."""
    text = Exposition(pulse).text(accept)[0].decode()
    return [line for line in text.splitlines() if line.startswith("rlship_")]


def a_tally(**sinks: Shipping) -> Tally:
    tally = Tally(rows={("trainer", "complete"): 9, ("trainer", "revision"): 2}, sinks=dict(sinks))
    tally.took("trainer", 20, 3000)
    tally.took("", 1, 100)
    return tally


def test_every_metric_of_one_experiment() -> None:
    """The names, labels and figures are these."""
    shipping = Shipping(errors=3)
    for lag_s in (0.05, 0.1, 0.2, 7200.0, -1.0):
        shipping.written.add(lag_s)
    status = a_status(
        actors=[an_actor(missing=["0.2"])],
        sinks=[a_sink(state="refused", sent=119, trouble_s=4.5)],
        dead_letters=[a_dead_letter()],
        dead_letter_count=4,
        clocks=[ClockStatus("n1", -0.25, 0.01, 3.0), ClockStatus("n2", 0.1, 0.01, 3.0)],
    )
    buckets = ["0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "300.0", "3600.0", "+Inf"]
    found = lines(told((status, a_tally(wandb=shipping)), suspended=("full",)))
    assert found[0].startswith('rlship_build_info{python="3.') and found[0].endswith(f'version="{__version__}"}} 1.0')
    assert [line for line in found[1:] if "_lag_seconds" not in line] == [
        "rlship_up 1.0",
        "rlship_loop_age_seconds 0.0",
        "rlship_experiments 1.0",
        "rlship_experiments_left_out 1.0",
        'rlship_records_read_total{actor="trainer"} 20.0',
        'rlship_records_read_total{actor=""} 1.0',
        'rlship_bytes_read_total{actor="trainer"} 3000.0',
        'rlship_bytes_read_total{actor=""} 100.0',
        'rlship_files_tracked{actor="trainer"} 1.0',
        "rlship_tail_lag_bytes 17.0",
        "rlship_clock_skew_seconds 0.25",
        'rlship_records_quarantined_total{reason="not JSON"} 3.0',
        'rlship_records_quarantined_total{reason="other"} 1.0',
        'rlship_rows_total{actor="trainer",closed="complete"} 9.0',
        'rlship_rows_total{actor="trainer",closed="revision"} 2.0',
        'rlship_step{actor="trainer"} 12.0',
        'rlship_barrier_wait_seconds{actor="trainer"} 0.84',
        'rlship_barrier_missing_ranks{actor="trainer"} 1.0',
        'rlship_sink_queue_depth{sink="wandb"} 1.0',
        'rlship_sink_unconfirmed_rows{sink="wandb"} 1.0',
        'rlship_sink_trouble_seconds{sink="wandb"} 4.5',
        'rlship_sink_refused{sink="wandb"} 1.0',
        'rlship_sink_errors_total{sink="wandb"} 3.0',
    ]
    written = [line.rpartition(" ") for line in found if 'at="written"' in line]
    assert [count for name, _, count in written if "_bucket" in name] == ["3.0", "4.0", *["4.0"] * 9, "5.0"]
    assert [name.partition('le="')[2].partition('"')[0] for name, _, _ in written if "_bucket" in name] == buckets
    assert [count for name, _, count in written if "_count" in name] == ["5.0"]


def test_both_forms_are_those_of_their_parsers() -> None:
    """The text form and OpenMetrics are read by prometheus_client's strict parsers, with the process's own metrics."""
    exposition = Exposition(told((a_status(), a_tally(wandb=Shipping()))))
    text, content_type = exposition.text("*/*")
    assert content_type.startswith("text/plain; version=")
    families = {family.name: family for family in plain(text.decode())}
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6
    text, content_type = exposition.text(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    assert {"rlship_rows", "rlship_ship_lag_seconds"} <= {family.name for family in openmetrics(text.decode())}


def test_experiments_are_added_up() -> None:
    """Counts and queues of several experiments are sums, lags and steps the greatest of them."""
    other = a_status(
        actors=[an_actor(step=40, lag_s=9.0, missing=["0.0-2"])],
        writers=[a_writer(unread=3), a_writer(unread=0)],
        sinks=[a_sink(next_row=20, trouble_s=60.0)],
    )
    found = dict(line.rsplit(" ", 1) for line in lines(told((a_status(), a_tally()), (other, a_tally()))))
    assert found["rlship_experiments"] == "2.0"
    assert found['rlship_records_read_total{actor="trainer"}'] == "40.0"
    assert found['rlship_rows_total{actor="trainer",closed="complete"}'] == "18.0"
    assert found['rlship_files_tracked{actor="trainer"}'] == "3.0"
    assert found["rlship_tail_lag_bytes"] == "20.0"
    assert found['rlship_step{actor="trainer"}'] == "40.0"
    assert found['rlship_barrier_wait_seconds{actor="trainer"}'] == "9.0"
    assert found['rlship_barrier_missing_ranks{actor="trainer"}'] == "3.0"
    assert found['rlship_sink_queue_depth{sink="wandb"}'] == "102.0"
    assert found['rlship_sink_trouble_seconds{sink="wandb"}'] == "60.0"


def test_names_that_a_job_chooses_are_few() -> None:
    """Of thousands of actors the first are listed by name, the others together, and nothing is lost in the sum."""
    tally = Tally()
    for number in range(3000):
        tally.took(f"actor-{number}", 1, 10)
    found = [line for line in lines(told((a_status(), tally))) if line.startswith("rlship_records_read_total")]
    assert len(found) == MAX_VALUES + 1
    assert f'rlship_records_read_total{{actor="{OTHER}"}} {3000 - MAX_VALUES}.0' in found


@given(st.lists(st.text(), min_size=1, max_size=5, unique=True))
def test_any_name_of_an_actor_can_be_read_back(names: list[str]) -> None:
    """Quotes, line ends and controls in names neither break the text nor get lost."""
    tally = Tally()
    for name in names:
        tally.took(name, 1, 1)
    text = Exposition(told((a_status(), tally))).text()[0].decode()
    (family,) = [family for family in plain(text) if family.name == "rlship_records_read"]
    assert {sample.labels["actor"] for sample in family.samples} == set(names)


def test_the_last_word_is_that_it_is_down() -> None:
    """Once it was told to stop, rlship_up is 0: a textfile stays behind."""
    pulse = told((a_status(), a_tally()))
    pulse.stopping()
    assert "rlship_up 0.0" in lines(pulse)
