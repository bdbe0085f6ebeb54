"""Lines of rollouts, traces and streams of other frameworks and the records that they become, both as literal text."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import orjson
import pyarrow  # type: ignore[import-untyped, unused-ignore]
import pytest

from rlship_formats.foreign import (
    areal,
    areal_rollouts,
    miles,
    prime_rl,
    prime_rl_traces,
    rollouts,
    tinker,
    verl_rollouts,
    zstd,
)
from rlship_formats.foreign.contract import BadRecord, Reader, Record
from rlship_formats.foreign.rollouts import rollout

VERL = (
    b'{"input": "user\\n1+1?", "output": "It is 2.", "gts": "2", "score": 1.0, "step": 2, "acc": true, "pred": "2",'
    b' "request_id": "r20"}'
)
TINKER = (
    b'{"schema_version": 1, "split": "train", "iteration": 3, "group_idx": 7, "traj_idx": 1, "tags": ["math"],'
    b' "sampling_client_step": null, "total_reward": 1.25, "final_reward": 1.0, "trajectory_metrics": {"correct": 1.0},'
    b' "steps": [{"step_idx": 0, "ob_len": 10, "ac_len": 5, "reward": 0.25}], "final_ob_len": 40}'
)
MILES = (
    b'{"sample_index":5,"group_index":2,"status":"completed","reward":0.5,"prompt":"2+2?","messages":[{"role":"user",'
    b'"content":"2+2?"},{"role":"assistant","content":"It is 4."}]}'
)
NODES = (
    b'[{"message":{"role":"user","content":"1+1?"},"sampled":false,"timestamp":1795261700.25,"token_ids":[3,4],'
    b'"mask":[false,false],"logprobs":[]},{"parent":0,"message":{"role":"assistant","content":"It is 2."},'
    b'"sampled":true,"timestamp":1795261701.25,"token_ids":[6,7,8],"mask":[false,true,true],"logprobs":[-0.5,-0.25]},'
    b'{"parent":1,"message":{"role":"user","content":"Sure?"},"sampled":false,"timestamp":1795261702.5,"token_ids":[9],'
    b'"mask":[false],"logprobs":[]},{"parent":2,"message":{"role":"assistant","content":"Yes."},"sampled":true,'
    b'"timestamp":1795261703.5,"token_ids":[1,2],"mask":[false,true],"logprobs":[-1.0]}]'
)
EPISODE = (
    b'{"id":"e1","env":{"id":"gsm8k","name":"math"},"task":{"type":"gsm8k","data":{"prompt":"1+1?"}},"group":{"id":"g1"},'
    b'"run":{"type":"train","id":"r0","work":{"type":"train","step":4,"policy":{"start":3,"end":4}}},"ok":true,'
    b'"errors":[],"traces":[{"id":"t1","task":{"key":"k"},"agent":{"name":"solver"},"nodes":' + NODES + b',"rewards":'
    b'{"correct":{"score":1.0,"weight":1.0},"format":{"score":0.5,"weight":0.5}},"metrics":{"turns":2.0},"info":'
    b'{"advantage":-0.5,"arrival":{"time":1795261704.25}},"ok":true,"stop_condition":"agent_completed","errors":[]}]}'
)
SESSION = (
    b'{"task_id": 100, "session_id": 3, "rank": 1, "role": "rollout", "status": "rejected", "reason": "stale",'
    b' "submit_ts": 1795415559.5, "finalized_ts": 1795415560.0, "total_s": 0.5, "generate_s": 0.25, "phases":'
    b' {"generate": [{"start_ts": 1795415559.5, "end_ts": 1795415559.75}], "reward": [{"start_ts": 1795415559.75,'
    b' "end_ts": null}]}, "counters": {"turns": 2}}'
)
SPAN = (
    b'{"name": "train.ppo_step", "ph": "X", "ts": 60341, "dur": 5000, "pid": 9, "tid": 9, "cat": "compute", "args":'
    b' {"global_step": 7, "rank": 0}}'
)


def made(reader: Reader, path: str, line: bytes) -> dict[str, list[Record]]:
    """What a line of a file that begins with it becomes, by actor; actors of which it says nothing are left out."""
    bound = reader.bind(path, line)
    found = {str(one.open["actor"]): list(one.line(line)) for one in bound}
    return {actor: records for actor, records in found.items() if records}


def one(reader: Reader, path: str, line: bytes) -> Record:
    """The one sample in a line, without what is drawn. Behind it stands what keeps its row from waiting for more."""
    ((record, *ends),) = made(reader, path, line).values()
    assert 0 <= record.pop("pri") < 1
    chunk = path.startswith("monitors/file/traces/stream/")
    end = {"kind": "close", "reason": "chunk"} if chunk else {"kind": "barrier", "step": record["step"]}
    assert ends == ([] if path.endswith("stream.jsonl") else [end])
    return record


def test_verl() -> None:
    """Input, output and score have the common names, and what the reward function added has its own."""
    row = {"prompt": "user\n1+1?", "response": "It is 2.", "reward": 1.0, "gts": "2", "acc": True, "pred": "2"}
    row["request_id"] = "r20"
    sample = {"kind": "sample", "step": 2, "table": "train", "score": 1.0, "row": row}
    assert one(verl_rollouts.READER, "rollout_data/2.jsonl", VERL) == sample
    assert one(verl_rollouts.READER, "val/2.jsonl", VERL) == {**sample, "table": "eval"}
    assert list(one(verl_rollouts.READER, "rollouts/2.jsonl", VERL)["row"])[:3] == ["prompt", "response", "reward"]


def test_a_column_of_the_job_does_not_take_a_common_name() -> None:
    """A reward function of verl's that adds `reward` keeps it, behind a folder."""
    row = one(verl_rollouts.READER, "rollouts/2.jsonl", VERL.replace(b'"pred"', b'"reward"'))["row"]
    assert (row["reward"], row["extra/reward"]) == (1.0, "2")


def test_tinker_cookbook() -> None:
    """A trajectory's total reward and group have the common names; the table is the file's, one for each split."""
    found = one(tinker.READER, "iteration_000003/train_rollout_summaries.jsonl", TINKER)
    assert found == {
        "kind": "sample",
        "step": 3,
        "table": "train",
        "score": 1.25,
        "row": {
            "group": 7,
            "reward": 1.25,
            "split": "train",
            "traj_idx": 1,
            "tags": ["math"],
            "final_reward": 1.0,
            "trajectory_metrics": {"correct": 1.0},
            "steps": [{"step_idx": 0, "ob_len": 10, "ac_len": 5, "reward": 0.25}],
            "final_ob_len": 40,
        },
    }
    assert one(tinker.READER, "iteration_000003/eval_gsm8k_rollout_summaries.jsonl", TINKER)["table"] == "eval_gsm8k"


def test_tinker_cookbook_metrics_and_spans() -> None:
    """Metrics as they were logged last, spans with their wall clock; a line without a step is a dead letter."""
    line = b'{"step": 1, "optim/lr": 0.0001, "env/all/reward/total": 0.25, "note": "text"}'
    assert made(tinker.READER, "metrics.jsonl", line) == {
        "trainer": [
            {"kind": "define", "m": {"optim/lr": {"reduce": "last"}, "env/all/reward/total": {"reduce": "last"}}},
            {"step": 1, "m": {"optim/lr": 0.0001, "env/all/reward/total": 0.25}},
        ]
    }
    line = b'{"step": 1, "spans": [{"name": "sample", "duration": 1.5, "wall_start": 1795261701.0, "wall_end": 2.0}]}'
    span = {"kind": "span", "step": 1, "name": "sample", "dur": 1.5, "t": 1795261701.0}
    assert made(tinker.READER, "timing_spans.jsonl", line) == {"trainer": [span]}
    with pytest.raises(BadRecord, match="no step"):
        tinker.read_metrics(b'{"error_rate": 0.5}')


@pytest.mark.parametrize("line", [b'{"step":1,"data":{"loss":1.0}}', b'{"step":1,"time":1795261701.0,"optim/lr":1.0}'])
def test_tinker_cookbook_takes_no_other_frameworks_metrics(line: bytes) -> None:
    """verl's `file` logger may write into `metrics.jsonl`, and prime-rl does."""
    assert not tinker.bind("metrics.jsonl", line)


def test_miles() -> None:
    """What the model said is the response; the file's name has the step, and says whether it is an evaluation."""
    row = {"group": 2, "prompt": "2+2?", "response": "It is 4.", "reward": 0.5, "sample_index": 5}
    sample = {"kind": "sample", "step": 12, "table": "train", "score": 0.5, "row": {**row, "status": "completed"}}
    assert one(miles.READER, "trajectory/12.jsonl", MILES) == sample
    assert one(miles.READER, "trajectory/eval_12.jsonl", MILES) == {**sample, "table": "eval"}


@pytest.mark.parametrize(
    ("key", "actor"), [("train/step", "trainer"), ("rollout/step", "rollout"), ("eval/step", "rollout")]
)
def test_miles_names_the_axis_of_a_line(key: str, actor: str) -> None:
    """Each axis is an actor's; the step is no metric of its own."""
    line = orjson.dumps({"ts": 1795261710.5, "step_key": key, "step": 3, "metrics": {key: 3, "loss": 0.5}})
    assert made(miles.READER, "dashboard/metrics.jsonl", line) == {
        actor: [
            {"kind": "define", "m": {"loss": {"reduce": "last"}}},
            {"t": 1795261710.5, "step": 3, "m": {"loss": 0.5}},
        ]
    }


def test_miles_lines_of_other_axes_are_streams() -> None:
    """An axis that nothing tells of is no step of the trainer's; the time is known."""
    line = b'{"ts":1795261710.5,"step_key":"lora_a/step","step":3,"metrics":{"x":1.0}}'
    assert made(miles.READER, "dashboard/metrics.jsonl", line) == {"trainer": [{"t": 1795261710.5, "m": {"x": 1.0}}]}


def test_miles_phases() -> None:
    """A phase that ended is a span of its process; one that began gives nothing yet."""
    line = b'{"name":"actor_train","t0":1795261710.0,"t1":1795261714.5,"node":"n0","gpus":[0],"rank":1,"role":"train"}'
    assert made(miles.READER, "dashboard/phases/20261121_11.jsonl", line) == {
        "phases": [
            {"kind": "span", "t": 1795261710.0, "dur": 4.5, "name": "actor_train", "lane": "train 1 n0"},
        ]
    }
    assert miles.read_phase(line.replace(b"1795261714.5", b"-1.0")) == []


def test_prime_rl_names_the_producer() -> None:
    """The producer says whose a line is, whatever its names; another one stands before them."""
    path = "monitors/file/metrics.jsonl"
    line = b'{"step": 2, "time": 1795261720.0, "time/step": 20.5, "producer": "%s"}'
    for producer in ("trainer", "orchestrator"):
        (found,) = made(prime_rl.READER, path, line % producer.encode()).items()
        assert found[0] == producer
        assert found[1][-1] == {"t": 1795261720.0, "step": 2, "m": {"time/step": 20.5}}
    assert made(prime_rl.READER, path, line % b"judge")["trainer"][-1]["m"] == {"judge/time/step": 20.5}


def test_prime_rl_lines_without_a_step_are_streams() -> None:
    """They have a time, and the usual reductions: several looks make a mean. They may be the first of a file."""
    line = b'{"step": null, "time": 1795261723.0, "inference/running": 4.0, "producer": "orchestrator"}'
    stream = {"t": 1795261723.0, "m": {"inference/running": 4.0}}
    assert made(prime_rl.READER, "monitors/file/metrics.jsonl", line) == {"orchestrator": [stream]}


def test_prime_rl_traces() -> None:
    """A trace is a sample: its branch's messages, its weighted reward, the tokens that were sampled with a logprob
    each, and when it arrived.
    """
    turns = [("assistant", "It is 2."), ("user", "Sure?"), ("assistant", "Yes.")]
    assert one(prime_rl_traces.READER, "monitors/file/traces/stream/00000.jsonl", EPISODE) == {
        "kind": "sample",
        "step": 4,
        "t": 1795261704.25,
        "table": "train",
        "score": 1.25,
        "row": {
            "group": "g1",
            "prompt": "1+1?",
            "response": [{"role": role, "content": text} for role, text in turns],
            "reward": 1.25,
            "advantage": -0.5,
            "env": "math",
            "episode": "e1",
            "trace": "t1",
            "task": "k",
            "agent": "solver",
            "rewards": {"correct": 1.0, "format": 0.5},
            "metrics": {"turns": 2.0},
            "stop_condition": "agent_completed",
            "ok": True,
            "token_ids": [7, 8, 2],
            "logprobs": [-0.5, -0.25, -1.0],
        },
    }


def test_prime_rl_traces_of_the_old_layout() -> None:
    """The folder has the step and the kind, which older records lack."""
    found = orjson.loads(EPISODE)
    del found["run"]
    record = one(prime_rl_traces.READER, "rollouts/step_9/eval/all/traces.jsonl", orjson.dumps(found))
    assert (record["step"], record["table"]) == (9, "eval")


def test_prime_rl_values_that_not_every_token_has_are_left_out() -> None:
    """Logprobs of one node alone would stand beside the wrong tokens."""
    row = one(prime_rl_traces.READER, "monitors/file/traces/stream.jsonl", EPISODE.replace(b"[-1.0]", b"[]"))["row"]
    assert row["token_ids"] == [7, 8, 2]
    assert "logprobs" not in row


def test_prime_rl_episodes_that_failed_are_kept() -> None:
    """Without a trace there is the prompt, and what went wrong; without a step it is a dead letter."""
    found: dict[str, Any] = orjson.loads(EPISODE)
    found |= {"traces": [], "ok": False, "errors": [{"type": "Timeout"}]}
    path = "monitors/file/traces/stream/00003.jsonl"
    assert one(prime_rl_traces.READER, path, orjson.dumps(found))["row"] == {
        "group": "g1",
        "prompt": "1+1?",
        "env": "math",
        "episode": "e1",
        "ok": False,
        "errors": [{"type": "Timeout"}],
    }
    del found["run"]["work"]
    with pytest.raises(BadRecord, match="no step"):
        one(prime_rl_traces.READER, path, orjson.dumps(found))


def test_prime_rl_nodes_that_name_each_other_end() -> None:
    """A parent that does not stand before its child ends the branch."""
    row = one(
        prime_rl_traces.READER, "monitors/file/traces/stream.jsonl", EPISODE.replace(b'"parent":0', b'"parent":3')
    )
    assert row["row"]["response"][-1] == {"role": "assistant", "content": "Yes."}


SHIPPED = (
    b'{"version":1,"trace_id":"t1","info":{"effective":true,"ship":{"step":7,"time":1795261720.25},"advantage":-0.5},'
    b'"branches":[{"index":0,"advantages":[null,null,-0.5]}]}'
)


def test_prime_rl_annotations_that_name_their_step() -> None:
    """A trace that is in a step's batch is a sample of that step, by its id, beside the episode that it arrived in."""
    path = "monitors/file/traces/annotations/orchestrator/00001.jsonl"
    (bound,) = prime_rl_traces.READER.bind(path, SHIPPED)
    assert bound.open == {"actor": "rollouts", "replica": "orchestrator", "rank": 1}
    record, end = bound.line(SHIPPED)
    assert 0 <= record.pop("pri") < 1
    branches = [{"index": 0, "advantages": [None, None, -0.5]}]
    assert record == {
        "kind": "sample",
        "step": 7,
        "t": 1795261720.25,
        "table": "shipped",
        "score": -0.5,
        "row": {"advantage": -0.5, "trace": "t1", "effective": True, "branches": branches},
    }
    assert end == {"kind": "close", "reason": "chunk"}


def test_prime_rl_annotations_without_a_step_are_nothing() -> None:
    """The trainer's have neither step nor time, and hold no row back."""
    line = b'{"version":1,"trace_id":"t1","info":{},"branches":[{"index":0,"trainer_logprobs":[null,-0.5]}]}'
    path = "monitors/file/traces/annotations/trainer/00000.jsonl"
    assert made(prime_rl_traces.READER, path, line) == {"rollouts": [{"kind": "close", "reason": "chunk"}]}


def test_prime_rl_chunks_that_are_compressed_take_the_place_of_the_plain_ones() -> None:
    """By their attempt: what a sidecar read of the plain file counts once."""
    path = "monitors/file/traces/stream/00003.jsonl"
    ((plain,), (sealed,)) = (
        prime_rl_traces.READER.bind(path, EPISODE),
        prime_rl_traces.SEALED.bind(path + ".zst", EPISODE),
    )
    assert sealed.open == {**plain.open, "attempt": 1}
    assert sealed.line(EPISODE) == plain.line(EPISODE)


def test_areal_trajectories() -> None:
    """A task's samples are a group, at the newest version of the weights that made one of its tokens."""
    line = (
        b'{"task_id": 300, "sample_idx": 1, "seqlen": 20, "prompt_len": 12, "head_version": 6, "tail_version": 7,'
        b' "reward": 0.5, "prompt": "1+1?", "completion": "It is 2."}'
    )
    extra = {"sample_idx": 1, "seqlen": 20, "prompt_len": 12, "head_version": 6}
    row = {"group": 300, "prompt": "1+1?", "response": "It is 2.", "reward": 0.5, **extra}
    sample = {"kind": "sample", "step": 7, "table": "train", "score": 0.5, "row": row}
    assert one(areal_rollouts.READER, "rollout/7.jsonl", line) == sample
    assert one(areal_rollouts.READER, "eval-rollout/7.jsonl", line) == {**sample, "table": "eval"}
    assert not areal_rollouts.bind("rollout/7/300.jsonl", line)
    assert not verl_rollouts.READER.bind("rollout/7.jsonl", line)


def test_areal_traces() -> None:
    """A span that names its step is one of it, without a time; one that does not, and names of threads, are nothing."""
    path = "perf_tracer/traces-r0.jsonl"
    span = {"kind": "span", "step": 7, "name": "train.ppo_step", "dur": 0.005, "lane": "main"}
    assert made(areal.READER, path, SPAN) == {"trainer": [span]}
    assert made(areal.READER, path, SPAN.replace(b'"global_step": 7, ', b"")) == {}
    assert made(areal.READER, path, SPAN.replace(b'"X"', b'"i"')) == {
        "trainer": [{"kind": "event", "step": 7, "name": "train.ppo_step", "attrs": {}}]
    }
    assert areal.bind("perf_tracer/critic/traces-r12.jsonl", SPAN)[0].open == {"actor": "critic", "rank": 12}


def test_a_process_of_areals_that_begins_is_a_rollback() -> None:
    """It names itself before its first span, in a file that the process before it may have begun."""
    line = b'{"name": "process_name", "ph": "M", "pid": 9, "args": {"name": "Rank 0, Process"}}'
    assert areal.read_trace(line) == [{"kind": "rollback", "step": 0}]
    assert areal.read_trace(line.replace(b"process_name", b"thread_name")) == []


def test_areal_sessions() -> None:
    """A session and its phases that ended are spans with their wall clock; how it ended is an event."""
    lane = {"lane": "session 3"}
    ended = {"status": "rejected", "reason": "stale", "task_id": 100, "session_id": 3}
    assert made(areal.READER, "session_tracer/rollout/sessions-r1.jsonl", SESSION) == {
        "rollout": [
            {"kind": "span", "t": 1795415559.5, "dur": 0.5, "name": "session", **lane},
            {"kind": "span", "t": 1795415559.5, "dur": 0.25, "name": "session/generate", **lane},
            {"t": 1795415560.0, "m": {"session/turns": 2}},
            {"kind": "event", "t": 1795415560.0, "name": "session", "attrs": ended},
        ]
    }


def test_the_fair_choice_is_the_lines_own() -> None:
    """`pri` is the same whenever a line is read, spread over 0..1, and another one for each rollout of a line."""
    drawn = [rollout(b"%d" % line, "t", {}, 0)["pri"] for line in range(2000)]
    assert drawn == [rollout(b"%d" % line, "t", {}, 0)["pri"] for line in range(2000)]
    assert len(set(drawn)) == 2000
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1
    assert 0.47 < sum(drawn) / 2000 < 0.53
    assert rollout(b"a", "t", {}, 0, place=1)["pri"] != rollout(b"a", "t", {}, 0)["pri"]
    assert rollout(b"a", "t", {}, 0)["pri"] == 0.18460693099188663


@pytest.mark.parametrize("reward", [None, "text", float("nan"), float("inf"), 10**400, [1.0], {}])
def test_a_reward_that_is_no_number_is_no_score(reward: object) -> None:
    """It stands in its column; the advantage is the score then."""
    assert "score" not in rollout(b"", "t", {"reward": reward}, 0)
    assert rollout(b"", "t", {"reward": reward, "advantage": -1}, 0)["score"] == -1.0


def test_messages_are_a_text_where_there_is_one() -> None:
    """One message is its text; several keep their roles."""
    single: list[Any] = [{"role": "user", "content": "hi"}]
    assert rollouts.conversation(single) == "hi"
    assert rollouts.conversation(single * 2) == single * 2
    assert rollouts.conversation([]) is None


def packed(text: bytes) -> bytes:
    return pyarrow.compress(text, "zstd", asbytes=True)  # type: ignore[no-any-return, unused-ignore]


def test_what_a_few_packed_bytes_may_cost() -> None:
    """120 MB of line feeds, empty lines between a few others, and more lines than a file may have: none of them takes
    more than some tens of megabytes.
    """
    feeds = packed(b"\n" * (120 << 20))
    assert len(feeds) < 1 << 14
    mixed = packed((b"a" + b"\n" * 999) * 4000)
    short = packed(b"a\n" * (zstd.MAX_LINES + 1))
    tracemalloc.start()
    try:
        assert zstd.lines_of(feeds) == []
        assert len(zstd.lines_of(mixed)) == 4000
        with pytest.raises(BadRecord, match="more than 1048576 lines when unpacked"):
            zstd.lines_of(short)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_compressed_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all frames of a file, and a last one that has no end; within bounds, and with pyarrow only."""
    text = packed(b"a\nb") + packed(b"c\n\n") + b"\x5e\x2a\x4d\x18\x04\x00\x00\x00seek"  # a frame to be skipped
    assert zstd.lines_of(text) == [b"a", b"bc"]
    for damaged in (text[:9], b"no zstd" * 9):
        with pytest.raises(BadRecord, match="a damaged zstd file"):
            zstd.lines_of(damaged)
    pieces = b"".join([b"%d" % n * 99_999 + b"\n" for n in range(9)])
    assert zstd.lines_of(packed(pieces)) == pieces.split(b"\n")[:-1]
    monkeypatch.setattr(zstd, "MAX_TEXT_BYTES", 1 << 20)
    with pytest.raises(BadRecord, match="more than 1 MiB when unpacked"):
        zstd.lines_of(packed(b"x" * (3 << 20)))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"need the package pyarrow: pip install 'rlship\[query\]'"):
        zstd.lines_of(text)
