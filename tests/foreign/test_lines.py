"""Lines of other frameworks and the records that they become, both as literal text."""

from __future__ import annotations

import orjson
import pytest

from rlship_formats.foreign import prime_rl, roll, swift, titan_stack, verl
from rlship_formats.foreign.contract import BadRecord, Record, Translation

METRIC = (
    b'{"reduce": "MeanMetric", "sum": 512, "weight": 32, "key": "rl/completion_len_mean", "step": 4, "rank": 3,'
    b' "source": "rollouter", "caller": "toy_rl.py:164:do_rollouts", "timestamp": 1773680301.22}'
)
SPAN = (
    b'{"int": {"tid": 9, "rank": 2, "pid": 9, "step": 42, "time_us": 1795208593902722, "seq_id": 7}, "normal":'
    b' {"source": "trainer", "host_name": "n1", "log_type": "event", "log_type_name": "fwd_bwd_end", "event_name":'
    b' "trainer_time/forward_backward_s", "message": "took 250 ms"}, "double": {"delta_ms": 0.5, "value": 250.0},'
    b' "normvector": {"step_tags": ["gc", "eval"]}}'
)
ROLL = b"[2026-08-20 12:34:56] [tracking.py (161)] [INFO] [DRIVER 0 / 1][PID 4242] metrics_tag: "


def only(translations: tuple[Translation, ...]) -> Translation:
    (translation,) = translations
    return translation


def metric(**changes: object) -> list[Record]:
    """What a line of experiment_logs becomes, with some of its members changed; None leaves one out."""
    line = {name: value for name, value in (orjson.loads(METRIC) | changes).items() if value is not None}
    return titan_stack.read_metric(orjson.dumps(line))


def event(head: bytes = b"", raw: bytes = SPAN, **changes: dict[str, object]) -> list[Record]:
    """What a line of system_logs becomes, with members of its columns changed; None leaves one out."""
    found = orjson.loads(raw)
    for column, of in changes.items():
        found[column] = {name: value for name, value in (found[column] | of).items() if value is not None}
    return titan_stack.read_event(head, orjson.dumps(found))


def prime(line: bytes) -> dict[str, list[Record]]:
    """What a line of metrics.jsonl becomes, by actor; actors that it says nothing of are left out."""
    bound = prime_rl.bind("metrics.jsonl", b'{"step": 1, "time": 1755861234.5}')
    made = {translation.part: list(translation.line(line)) for translation in bound}
    return {actor: records for actor, records in made.items() if records}


def test_a_mean_keeps_its_sum_and_weight() -> None:
    """A MeanMetric is a summary of one observation: its sum and weight, to the bit, and the reduction it asks for."""
    assert metric() == [
        {"kind": "define", "m": {"rl/completion_len_mean": {"reduce": "mean"}}},
        {"t": 1773680301.22, "step": 4, "m": {"rl/completion_len_mean": {"n": 1, "w": 32, "sum": 512}}},
    ]


@pytest.mark.parametrize(
    ("name", "reduction"), [("MaxMetric", "max"), ("MinMetric", "min"), ("SumMetric", "sum"), ("NoOpMetric", "last")]
)
def test_each_metric_line_asks_for_its_own_reduction(name: str, reduction: str) -> None:
    """Max, Min and Sum are these; NoOp, the same on all ranks, is the last."""
    define, record = metric(reduce=name, sum=None, weight=None, value=0.25)
    assert define == {"kind": "define", "m": {"rl/completion_len_mean": {"reduce": reduction}}}
    assert record["m"] == {"rl/completion_len_mean": 0.25}


def test_a_metric_class_of_the_job_is_reduced_as_any_metric() -> None:
    """Of an unknown class a value is an observation that asks for nothing; without one the line is a dead letter."""
    assert metric(reduce="MedianMetric", sum=None, weight=None, value=3) == [
        {"t": 1773680301.22, "step": 4, "m": {"rl/completion_len_mean": 3}}
    ]
    with pytest.raises(BadRecord, match="bad value"):
        metric(reduce="MedianMetric", sum=None, weight=None, values=[3])


def test_bare_nan_is_a_non_finite_observation() -> None:
    """NaN, which is no JSON, counts as one observation that is not finite, with its weight."""
    made = titan_stack.read_metric(METRIC.replace(b'"sum": 512', b'"sum": NaN'))
    assert made[1]["m"] == {"rl/completion_len_mean": {"v": ["NaN"], "w": [32]}}
    infinite = METRIC.replace(b'"MeanMetric", "sum": 512, "weight": 32', b'"MaxMetric", "value": -Infinity')
    assert titan_stack.read_metric(infinite)[1]["m"] == {"rl/completion_len_mean": "-Infinity"}


def test_the_files_of_one_process_are_of_one_rank() -> None:
    """Source and rank of a line are actor and rank, and experiment_logs supersede system_logs."""
    experiment = only(titan_stack.bind("experiment_logs/rollouter_rank_3_experiment.jsonl", METRIC)).open
    system = only(titan_stack.bind("system_logs/trainer_rank_2_system.jsonl", SPAN)).open
    assert experiment == {"actor": "rollouter", "rank": 3, "t": 1773680301.22, "attempt": 1}
    assert system == {"actor": "trainer", "rank": 2, "t": 1795208593.902722, "pid": 9, "host": "n1"}


def test_the_end_of_a_span_is_the_span() -> None:
    """A span's end has its time: it began so many ms before. Its metric is that of experiment_logs, not a second one,
    and the tags of its step come with it.
    """
    tag = {"kind": "event", "t": 1795208593.902722, "name": "step_tag", "step": 42}
    assert event() == [
        {
            "kind": "span",
            "t": 1795208593.652722,
            "dur": 0.25,
            "name": "trainer_time/forward_backward",
            "lane": "main",
            "step": 42,
        },
        tag | {"attrs": {"tag": "gc"}},
        tag | {"attrs": {"tag": "eval"}},
    ]


def test_the_beginning_of_a_span_says_nothing() -> None:
    """A `_start` line is no record, as its end has all there is to say; a span without a step stays without."""
    assert event(normal={"log_type_name": "fwd_bwd_start"}, double={"value": None}) == []
    assert "step" not in event(int={"step": None})[0]


def test_a_process_that_starts_again_rolls_back() -> None:
    """Where the count of lines is 0 and it is not the file's first line, a new process appended to the file."""
    begin = {"int": {"seq_id": 0, "step": None}, "normal": {"log_type_name": "init_start"}, "double": {"value": None}}
    assert event(**begin) == [{"kind": "rollback", "t": 1795208593.902722, "step": 0}]
    head = orjson.loads(SPAN)
    head["int"] = {"rank": 0, "time_us": 1795208593902722, "seq_id": 0}
    head["normal"]["log_type_name"] = "init_start"
    first = orjson.dumps(head)
    assert titan_stack.read_event(first, first) == []


def test_scalars_and_other_lines_of_system_logs() -> None:
    """A scalar is a metric without a reduction of its own, and a line that is neither span nor scalar an event."""
    scalar = {"log_type_name": "metric_value", "event_name": "train.loss"}
    assert event(normal=scalar, double={"value": 2.5}, normvector={"step_tags": None}) == [
        {"t": 1795208593.902722, "m": {"train.loss": 2.5}, "step": 42}
    ]
    other = {"log_type_name": "training_start", "event_name": None}
    assert event(normal=other, normvector={"step_tags": None}) == [
        {"kind": "event", "t": 1795208593.902722, "name": "training_start", "step": 42}
    ]


def test_a_line_of_prime_rl_is_of_the_component_that_has_its_names() -> None:
    """`time/step` is of the component that the line's other names belong to; where none tells, the name says so."""
    trainer = prime(b'{"step": 12, "time": 1755861234.5, "time/step": 18.5, "time/forward_backward": 12.0}')
    assert trainer == {
        "trainer": [
            {"kind": "define", "m": {"time/step": {"reduce": "last"}, "time/forward_backward": {"reduce": "last"}}},
            {"t": 1755861234.5, "step": 12, "m": {"time/step": 18.5, "time/forward_backward": 12.0}},
        ]
    }
    assert prime(b'{"step": 12, "time": 1755861234.5, "time/step": 20, "time/pack": 0.5}').keys() == {"orchestrator"}
    assert prime(b'{"step": 12, "time": 1755861234.5, "max_vio/mean": 0.5, "my_loss/x/max": 1}').keys() == {"trainer"}
    untold = prime(b'{"step": 12, "time": 1755861234.5, "time/step": 20}')
    assert untold["trainer"][1]["m"] == {"unattributed/time/step": 20}


def test_an_evaluation_of_prime_rl_has_a_step() -> None:
    """The float step of an evaluation is that integer."""
    made = prime(b'{"step": 10.0, "time": 1755861234.5, "eval/gsm8k/policy_version": 9.0}')
    assert made["orchestrator"][1]["step"] == 10


def test_a_line_of_verl_has_no_time() -> None:
    """null, which NaN was, is no observation, and there is no `t`. The file is the driver's, whatever its name."""
    found = only(verl.bind("gsm8k.jsonl", b'{"step":0,"data":{}}'))
    assert found.open == {"actor": "trainer"}
    assert found.line(b'{"step":3,"data":{"perf/mfu/actor":null,"critic/rewards/mean":0.53,"x":[1,2]}}') == [
        {"kind": "define", "m": {"critic/rewards/mean": {"reduce": "last"}}},
        {"step": 3, "m": {"critic/rewards/mean": 0.53, "x": [1, 2]}},
    ]
    assert verl.bind("rollout.jsonl", b'{"step":3,"data":{},"text":"a"}') == ()


def test_a_line_of_ms_swift_has_its_step_in_a_text() -> None:
    """The step is what stands before the slash; other texts are left out."""
    line = b'{"loss": 0.5, "global_step/max_steps": "7/14", "elapsed_time": "1m 2s", "memory(GiB)": 1.5}'
    found = only(swift.bind("logging.jsonl", line))
    assert found.line(line)[1] == {"step": 7, "m": {"loss": 0.5, "memory(GiB)": 1.5}}
    assert found.line(b'{"loss": 0.5, "iteration": "8/14"}')[1]["step"] == 8


def test_the_summary_of_ms_swift_is_no_line() -> None:
    """The summary, which holds the whole history again, says nothing; a line without a step is a dead letter."""
    assert swift.read(b'{"last_model_checkpoint": "a/checkpoint-4", "log_history": [{"loss": 9, "step": 1}]}') == []
    with pytest.raises(BadRecord, match="no step"):
        swift.read(b'{"loss": 0.5}')


def test_of_a_log_of_roll_only_metrics_count() -> None:
    """Behind the logger's prefix, whose time is taken for UTC; other lines, whatever they are, say nothing."""
    found = only(roll.bind("log_rank_DRIVER_0_1.log", ROLL.replace(b"metrics_tag: ", b"pipeline begins")))
    assert found.open == {"actor": "trainer", "rank": 0, "pid": 4242, "t": 1787229296.0}
    line = ROLL + b'{"step": 3, "metrics": {"time/step_total": NaN, "tokens/lengths": [], "val": {"gsm8k": 0.5}}}'
    assert found.line(line)[1] == {
        "t": 1787229296.0,
        "step": 3,
        "m": {"time/step_total": "NaN", "val/gsm8k": 0.5},
    }
    assert found.line(b"Traceback (most recent call last):") == []
    assert found.line(b'echo metrics_tag: {"step": 3, "metrics": {"a": 1}}') == []
    with pytest.raises(BadRecord, match="not JSON"):
        found.line(ROLL + b'{"step": 3')


def test_names_of_roll_say_how_they_are_reduced() -> None:
    """By the end of the name, or by a tag as older versions write it; quantiles count as they are."""
    line = (
        ROLL + b'{"step": 3, "metrics": {"a/len_max": 1, "b/mean": 2, "loss@sum": 3, "l@p99": 4, "l@min": 5, "c": 6}}'
    )
    define, record = roll.read(line)
    assert record["m"] == {"a/len_max": 1, "b/mean": 2, "loss": 3, "l/p99": 4, "l/min": 5, "c": 6}
    assert {name: entry["reduce"] for name, entry in define["m"].items()} == {
        "a/len_max": "max",
        "b/mean": "mean",
        "loss": "sum",
        "l/p99": "last",
        "l/min": "min",
        "c": "last",
    }
