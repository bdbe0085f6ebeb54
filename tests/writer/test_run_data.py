"""The records `run`: what a process says of its run, in every form that jobs pass, without secrets."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import enum
import json
import os
import signal
import subprocess
import threading
import types
from collections import deque, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlship
from rlship import rundata, settings
from rlship.encode import MAX_LINE_BYTES
from rlship.flusher import Timing
from rlship.hidden import is_secret, is_secret_argument
from tests.kit.cases import statistical
from tests.kit.waiting import wait_until
from tests.spec.schemas import faults
from tests.writer.reading import (
    MORTAL,
    NOW,
    answers,
    files,
    kinds,
    lines,
    logger_at,
    merged,
    program,
    records,
    soon,
    whole,
)
from tests.writer.trl_names import NAMES

Record = dict[str, Any]


def written(folder: Path, **members: Any) -> list[str]:
    """The lines of the `run` records that a call makes."""
    logger = logger_at(folder)
    logger.run_data(**members)
    logger.close()
    return [line for line in lines(folder) if '"kind":"run"' in line]


# --- the lines ---


def test_the_record_is_pinned(tmp_path: Path) -> None:
    """All members of one call are one line, in the order in which they were given."""
    (line,) = written(
        tmp_path,
        config={"lr": 1e-6, "model": {"name": "x", "layers": [1, 2], "none": None}, "empty": {}, "on": True},
        name="grpo-7b",
        notes='a "b"\n',
        tags=["a", "b"],
        group="g",
        project="p",
        entity="e",
        job_type="train",
        summary={"best": 0.9},
        exit_code=-9,
    )
    assert line == (
        '{"kind":"run","t":1763600000.125,"config":{"lr":1e-06,"model":{"name":"x","layers":[1,2],"none":null},'
        '"empty":{},"on":true},"name":"grpo-7b","notes":"a \\"b\\"\\n","tags":["a","b"],"group":"g","project":"p",'
        '"entity":"e","job_type":"train","summary":{"best":0.9},"exit_code":-9}'
    )


def test_calls_between_two_looks_are_one_record_of_the_newest_values(tmp_path: Path) -> None:
    """A job that updates its summary in a loop does not fill its file; a flush shows what was said before it."""
    logger = logger_at(tmp_path)
    logger.start()
    for i in range(1000):
        logger.summary(best=i)
    logger.config({"a": 1}, b=2)
    assert logger.flush()
    logger.config(a=3)
    assert logger.flush()
    logger.close()
    found = records(tmp_path)
    assert kinds(found)[-1] == "close"
    assert merged(found) == {"summary": {"best": 999}, "config": {"a": 3, "b": 2}}
    assert 2 <= kinds(found).count("run") < 50
    assert found[-2] == {"kind": "run", "t": NOW, "config": {"a": 3}}


def test_an_object_and_a_leaf_replace_each_other(tmp_path: Path) -> None:
    """In both directions, in one record and in a later one; an object joins an object; `{}` is a leaf."""
    logger = logger_at(tmp_path)
    logger.config(a={"b": 1, "c": 2}, d=1, e={"f": {"g": 1}}, h={"i": 1})
    logger.config(a={"b": {"x": 1}}, d={"y": 1}, e={"f": 3}, h={})
    logger.flush()
    logger.config(a=7, d={"z": 2})
    logger.close()
    after = {"a": 7, "d": {"y": 1, "z": 2}, "e": {"f": 3}, "h": {}}
    assert merged(records(tmp_path))["config"] == after


def test_nothing_given_writes_nothing(tmp_path: Path) -> None:
    """Calls without a value, and None for a member, leave no record."""
    logger = logger_at(tmp_path)
    logger.start()
    logger.config()
    logger.summary(None)
    logger.run_data(name=None, config=None)
    logger.config({})
    logger.close()
    assert kinds(records(tmp_path)) == ["open", "close"]


# --- what configurations hold ---


class Strategy(str, enum.Enum):
    """As transformers has them."""

    STEPS = "steps"


class Colour(enum.Enum):
    """Of no type that JSON has."""

    RED = 1


@dataclasses.dataclass
class Optimizer:
    """A part of a configuration."""

    lr: float = 1e-6
    where: Path = Path("/data")


class Odd:
    """Without a repr of its own."""

    def __init__(self) -> None:
        self.lr = 1


class Broken:
    """Whose own code fails."""

    def __repr__(self) -> str:
        raise KeyError("x")


class Lazy(dict):  # type: ignore[type-arg]
    """A dict of another kind."""


class Missing:
    """A mapping as OmegaConf has it: one of its values is missing."""

    def keys(self) -> list[str]:
        """Its names."""
        return ["lr", "path"]

    def __getitem__(self, name: str) -> int:
        if name == "path":
            raise LookupError("Missing mandatory value: path")
        return 3


FORMS: list[tuple[Any, Any]] = [
    (True, True),
    (None, None),
    (2**53 + 1, 2**53 + 1),
    (2**70, str(2**70)),
    (10**400, str(10**400)),
    (float("nan"), "NaN"),
    (float("-inf"), "-Infinity"),
    (-0.0, -0.0),
    (np.float32(0.5), 0.5),
    (np.int64(7), 7),
    (np.bool_(True), True),
    (np.array(2.5), 2.5),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.zeros(20_000), "<numpy.ndarray of shape (20000,)>"),
    (Strategy.STEPS, "steps"),
    (Colour.RED, "Colour.RED"),
    (Path("/a") / "b", "/a/b"),
    (Optimizer(), {"lr": 1e-6, "where": "/data"}),
    ([Optimizer(), (1, 2), {3}], [{"lr": 1e-6, "where": "/data"}, [1, 2], [3]]),
    ({"b", "a"}, ["a", "b"]),
    (range(3), [0, 1, 2]),
    (deque([1]), [1]),
    (argparse.Namespace(x=1), {"x": 1}),
    (types.SimpleNamespace(y=[2]), {"y": [2]}),
    (Missing(), {"lr": 3, "path": "<LookupError>"}),
    (Lazy(a=1), {"a": 1}),
    ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "None": "b", "(1, 2)": "c"}),
    (len, "builtins.len"),
    (Optimizer, "tests.writer.test_run_data.Optimizer"),
    (Odd(), "<tests.writer.test_run_data.Odd object>"),
    (datetime.timedelta(1), "datetime.timedelta(days=1)"),
    (b"ab", "b'ab'"),
    (Broken(), "<tests.writer.test_run_data.Broken>"),
    ("half \ud800", "half \ufffd"),
]


@pytest.mark.parametrize(("value", "kept"), FORMS, ids=lambda value: type(value).__name__)
def test_every_value_becomes_json(value: Any, kept: Any, tmp_path: Path) -> None:
    """Whatever jobs have in their configurations is kept as JSON, or a short text stands in its place."""
    (line,) = written(tmp_path, config={"x": value})
    assert json.loads(line)["config"] == {"x": kept}


@pytest.mark.parametrize(
    "given",
    [
        {"lr": 3, "opt": {"name": "x"}},
        argparse.Namespace(lr=3, opt={"name": "x"}),
        types.SimpleNamespace(lr=3, opt={"name": "x"}),
        types.MappingProxyType({"lr": 3, "opt": {"name": "x"}}),
        dataclasses.make_dataclass("Config", ["lr", "opt"])(3, {"name": "x"}),
        type("Model", (), {"to_dict": lambda self: {"lr": 3, "opt": {"name": "x"}}})(),
        type("Pydantic", (), {"model_fields": {"lr": 0, "opt": 0}, "lr": 3, "opt": {"name": "x"}})(),
        type("Flags", (), {"flag_values_dict": lambda self: {"lr": 3, "opt": {"name": "x"}}})(),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_configuration_is_any_object_of_names_and_values(given: Any, tmp_path: Path) -> None:
    """A dict, a namespace, a dataclass and their like say the same."""
    logger = logger_at(tmp_path)
    logger.config(given)
    logger.close()
    assert merged(records(tmp_path)) == {"config": {"lr": 3, "opt": {"name": "x"}}}


def test_what_is_wrong_is_said_and_the_rest_is_kept(tmp_path: Path) -> None:
    """Members of another type, and names that do not exist."""
    logger = logger_at(tmp_path)
    logger.run_data(config=3, name=7, tags=5, exit_code=256, colour="red")
    logger.run_data(exit_code=True, tags="one", summary=[1])
    logger.config({"": 1, "x" * 1001: 2, "a": 3})
    logger.close()
    assert merged(records(tmp_path)) == {"name": "7", "tags": ["one"], "config": {"a": 3}}
    assert [where for where, _ in answers(tmp_path)] == [
        *("config", "tags", "exit_code", "colour", "summary"),
        *("config", "config"),
    ]


def test_a_configuration_that_holds_itself_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither depth nor width is endless; the limit is a tenth of the usual one here."""
    monkeypatch.setattr("rlship.settings._MAX_PARTS", settings._MAX_PARTS // 10)
    loop: Record = {"a": 1}
    loop["me"], loop["both"] = loop, [loop, loop]
    logger = logger_at(tmp_path)
    logger.config(loop)
    assert logger.close()
    assert merged(records(tmp_path))["config"]["me"]["me"]["a"] == 1
    assert any("more than 10000 keys and elements" in told for _, told in answers(tmp_path))


def test_an_object_that_was_a_leaf_meanwhile_has_its_new_keys_alone() -> None:
    """Although the leaf was replaced before any record could say it, a record empties what an older one said."""
    data = rundata.RunData()

    def put(**config: Any) -> None:
        data.put(rundata.read({"config": config}, pytest.fail), NOW)

    put(a={"b": {"c": 1}, "d": 2})
    said = data.take()
    put(a={"b": 3})
    put(a={"b": {"e": 4}})
    put(a=5)
    put(a={"f": {"g": 6}})
    put(a={"f": 7})
    put(a={"f": {"h": 8}})
    said += data.take()
    assert [json.loads(line)["config"]["a"] for line in said] == [{"b": {"c": 1}, "d": 2}, {}, {"f": {"h": 8}}]
    assert merged([json.loads(line) for line in said]) == merged([json.loads(line) for line in data.all()])
    assert data.take() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab.é\x00\ud800", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.é", min_size=1, max_size=3), inner),
    max_leaves=12,
)


def plain(value: Any) -> Any:
    """JSON data as they come back."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and value - value != 0:
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value.replace("\ud800", "\ufffd") if isinstance(value, str) else value


@statistical(300)
@given(st.lists(st.dictionaries(st.text("ab.é", min_size=1, max_size=3), JSON), max_size=4), st.integers(0, 3))
def test_any_json_comes_back(configs: list[Record], taken: int) -> None:
    """However it is nested, updated and cut into records, the records come to what the calls said."""
    data, told = rundata.RunData(), []
    lines: list[str] = []
    for i, config in enumerate(configs):
        data.put(rundata.read({"config": config}, lambda path, why: told.append(why)), NOW)
        if i % 4 == taken:
            lines += data.take()
    lines += data.take()
    expected = merged([{"kind": "run", "config": plain(config)} for config in configs if config])
    assert merged([json.loads(line) for line in lines]) == merged([json.loads(line) for line in data.all()]) == expected
    assert [fault for line in lines for fault in faults("record", json.loads(line))] == told == []


# --- secrets ---

SECRET = [
    ("api_key", "abc"),
    ("OPENAI_API_KEY", "abc"),
    ("apiKey", "abc"),
    ("wandb-api-key", "abc"),
    ("db.password", "geheim"),
    ("Password", "geheim"),
    ("client_secret", "geheim"),
    ("AWS_SECRET_ACCESS_KEY", "geheim"),
    ("credentials", "geheim"),
    ("HF_TOKEN", "abcdefghijklmnop"),
    ("hub_token", "abcdefghijklmnop"),
    ("token", "0123456789abcdef"),
    ("authToken", "0123456789abcdef"),
    ("note", "hf_abcdefg"),
    ("x", "sk-proj-abc"),
    ("x", "ghp_abcdef"),
    ("extra", "run --with hf_abcdefghijklmnopqrstuvwxyz now"),
    ("extra", "python x.py --api_key=abc --lr=1"),
    ("extra", "Client(password='hunter2', retries=3)"),
    ("url", "https://me:hunter2@example.org/x"),
]
PLAIN = [
    ("max_new_tokens", 2048),
    ("pad_token_id", 151643),
    ("api_key", None),
    ("password", True),
    ("secret", 7),
    ("pad_token", "<|endoftext|>"),
    ("bos_token", "<｜begin▁of▁sentence｜>"),
    ("image_token", "[IMAGE_PLACEHOLDER_0]"),
    ("eos_token", "</s>"),
    ("stop_token", "a text with blanks in it"),
    ("secretary", "Ms Miller"),
    ("keyboard", "abc"),
    ("monkey", "abc"),
    ("token_type", "a-rather-long-word"),
    ("passed", "all-of-them-were-passed"),
    ("prompt", "scikit-learn and task-specific words; the secret of life: a=1, b=2"),
    ("url", "https://example.org/a:b@c"),
    ("api_key", ""),
]


@pytest.mark.parametrize(("name", "value"), SECRET)
def test_secrets_never_reach_the_disk(name: str, value: str, tmp_path: Path) -> None:
    """Not at the top, not inside objects and arrays, not in a summary; their paths do."""
    logger = logger_at(tmp_path)
    logger.config({name: value, "in": {name: value}, "list": [{name: value, "kept": 1}]})
    logger.summary({name: value})
    logger.close()
    text = json.dumps(value)
    # A short one without its quotes may stand in the writer's random id.
    assert (text if len(value) < 8 else text[1:-1]) not in "\n".join(lines(tmp_path))
    found = merged(records(tmp_path))
    assert found["config"] == {"list": [{"kept": 1}]}
    assert found["dropped"] == [f"config.{name}", f"config.in.{name}", f"config.list.0.{name}", f"summary.{name}"]


@pytest.mark.parametrize(("name", "value"), PLAIN)
def test_what_is_no_secret_stays(name: str, value: Any, tmp_path: Path) -> None:
    """Numbers, bools, special tokens, and words that only resemble those of secrets."""
    (line,) = written(tmp_path, config={name: value})
    assert json.loads(line)["config"] == {name: value}
    assert "dropped" not in json.loads(line)


def test_arguments_of_a_command_keep_their_places(tmp_path: Path) -> None:
    """In an array `***` stands for a secret, also behind the option that names it."""
    (line,) = written(tmp_path, config={"args": ["--api-key", "abc", "--lr", "1e-6", "hf_abcdef", "--token=x"]})
    found = json.loads(line)
    assert found["config"] == {"args": ["--api-key", "***", "--lr", "1e-6", "***", "--token=x"]}
    assert found["dropped"] == ["config.args.1", "config.args.4"]


def test_of_the_names_of_trl_one_is_a_secret(tmp_path: Path) -> None:
    """With a text under each of its names that a token could be, only `hub_token` is dropped; with numbers all stay."""
    assert len(NAMES) == len(set(NAMES)) > 200
    assert {"pad_token_id", "hub_token", "max_completion_length", "num_key_value_heads"} <= set(NAMES)
    texts, numbers = dict.fromkeys(NAMES, "0123456789abcdef-x"), dict.fromkeys(NAMES, 1)
    (line,) = written(tmp_path / "texts", config=texts)
    assert json.loads(line)["dropped"] == ["config.hub_token"]
    assert json.loads(line)["config"] == {name: text for name, text in texts.items() if name != "hub_token"}
    (line,) = written(tmp_path / "numbers", config=numbers)
    assert json.loads(line) == {"kind": "run", "t": NOW, "config": numbers}


def test_a_secret_takes_back_what_stood_there(tmp_path: Path) -> None:
    """It is not written again with the rest once a file is gone."""
    logger = logger_at(tmp_path)
    logger.config(key={"api_key": 1}, a=1)
    logger.flush()
    logger.config(key={"api_key": "abc"})
    assert logger.stream.declared.lines() == [
        '{"kind":"run","t":1763600000.125,"config":{"a":1},"dropped":["config.key.api_key"]}\n'
    ]
    logger.close()


def test_the_event_config_has_no_secrets_either(tmp_path: Path) -> None:
    """Jobs that say their configuration by the event, as before, are as safe; a `run` names what was dropped."""
    logger = logger_at(tmp_path)
    attrs = {"lr": 1, "api_key": "geheim", "in": {"HF_TOKEN": "0123456789abcdef", "a": (1, 2)}, "x": ["hf_abc", 2]}
    logger.event("config", **attrs)
    logger.event("other", api_key="kept")
    logger.close()
    found = records(tmp_path)
    events = [record["attrs"] for record in found if record["kind"] == "event"]
    assert events == [{"lr": 1, "in": {"a": [1, 2]}, "x": ["***", 2]}, {"api_key": "kept"}]
    assert merged(found) == {"dropped": ["config.api_key", "config.in.HF_TOKEN", "config.x.0"]}


def test_an_event_config_reads_every_kind_of_value_as_a_configuration(tmp_path: Path) -> None:
    """Secrets in objects, tuples, bytes, paths and what has no JSON are found as `config` finds them."""
    Pair = namedtuple("Pair", "password x")
    deep: Record = {"password": "geheim"}
    for _ in range(100):
        deep = {"k": deep}

    class Raising(dict[str, Any]):
        def items(self) -> Any:
            raise ValueError("password=geheim")

    attrs = {
        "args": argparse.Namespace(api_key="geheim", lr=1),
        "password": ("geheim",),
        "secret": b"geheim",
        "credentials": Path("/geheim"),
        "pair": Pair("geheim", 1),
        "text": types.SimpleNamespace(note="password=geheim"),
        "deep": deep,
        "raising": Raising(),
    }
    for name in ("event", "config"):
        (tmp_path / name).mkdir()
        logger = logger_at(tmp_path / name)
        if name == "event":
            logger.event("config", **attrs)
        else:
            logger.config(attrs)
        logger.close()
        assert b"geheim" not in b"".join(path.read_bytes() for path in (tmp_path / name / "rlship").iterdir())
    (event,) = (record["attrs"] for record in records(tmp_path / "event") if record.get("name") == "config")
    assert event["args"] == {"lr": 1}
    assert event["pair"] == ["***", 1]


def test_labels_have_no_secrets(tmp_path: Path) -> None:
    """One that looks like a secret is left out, which stderr says."""
    done = program(
        "import sys, rlship\nrlship.init(sys.argv[1], 'trainer', labels={'hf_token': 'hf_abcdefghijklmn', 'a': 1})",
        tmp_path,
    )
    assert records(tmp_path)[0]["labels"] == {"a": "1"}
    assert "the label 'hf_token' looks like a secret, so it is left out" in done.stderr


LONG = "a1B2" * 10
FURTHER = (
    *[{name: "geheim"} for name in ("DB_PASS", "PGPASSWORD", "MYSQL_PWD", "GITHUB_PAT", "SSH_KEY", "OPENAI_KEY")],
    *[{name: "geheim"} for name in ("passWord", "dbpassword", "mysecret", "secretkey", "bearer", "smtp-pass")],
    *[{"note": f"{prefix}{LONG}"} for prefix in ("wandb_v1_", "pypi-AgE", "npm_", "dckr_pat_", "sk_live_")],
    {"note": "run with wandb_v1_" + LONG},
    {"note": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----\n"},
    {"hook": "https://hooks.slack.com/services/T0/B0/x"},
    {"mirror": f"https://{LONG}@host/simple"},
    {"header": "Authorization: Bearer abc"},
    {"header": f"Bearer {LONG}"},
    {"note": "DB_PASS=geheim python x.py"},
)
HARMLESS = (
    *({"max_tokens": "auto"}, {"pad_token": "<|endoftext|>"}, {"tokenizer": "Qwen/Qwen3-0.6B"}, {"key_dim": "64"}),
    *({"num_key_value_heads": "8"}, {"monkey": "patch"}, {"prompt_key": "prompt"}, {"reward_key": "score"}),
    *(
        {"forward_pass": "fused"},
        {"PWD": "/home/me"},
        {"OLDPWD": "/home"},
        {"pat": "x"},
        {"path": "/a"},
        {"bypass": "no"},
    ),
    *({"secretary": "Ms Miller"}, {"keys": "a"}, {"compass": "north"}, {"mode": "npm_config_registry_of_the_team"}),
    *({"mirror": "https://pypi-mirror.example.org/simple"}, {"repo": "ssh://git@github.com/me/x"}),
    *({"repo": "https://my-team@dev.azure.com/x"}, {"data": f"abfss://{'container-' * 3}1@account/x"}),
    *({"note": "the bearer of good news"}, {"cert": "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----"}),
)


def test_names_and_forms_of_further_secrets() -> None:
    """Names of accounts' passwords and of services' keys, keys of known services, private keys, webhooks, tokens in
    addresses and headers; words that only resemble them stay.
    """
    assert [one for one in FURTHER for name, text in one.items() if not is_secret(("config", name), text)] == []
    assert [one for one in HARMLESS for name, text in one.items() if is_secret(("config", name), text)] == []


def test_arguments_behind_options_of_further_secrets() -> None:
    """`--db-pass V` is one, and `--key V` where V may be a key; what stands behind `-p` may be anything."""
    assert is_secret_argument("--db-pass", "geheim")
    assert is_secret_argument("--key", LONG)
    assert not is_secret_argument("--key", "reward")
    assert not is_secret_argument("-p", "8080")


def test_a_command_in_a_text() -> None:
    """An option with its value is a secret there too, if the value is no plain word of a sentence."""
    for text in ("train.py --db-pass geheim7", f"sh -c 'x --key {LONG}'", "a --lr 1 --password p4ss --seed 3"):
        assert is_secret(("config", "cmd"), text), text
    for text in ("say --password on the command line", "a --lr 1 --seed 3 --key reward", "x --token 5", "--", "a -- b"):
        assert not is_secret(("config", "cmd"), text), text


def test_only_texts_are_secrets() -> None:
    """The rule itself: an empty text is not one, and elements of arrays have the name above them."""
    assert is_secret(("config", "api_keys", "0"), "x")
    assert is_secret(("config", "tokens", "token", "3"), "0123456789abcdef")
    assert not is_secret(("config", "tokens", "3"), "0123456789abcdef")
    assert not is_secret(("config", "password"), " ")


# --- bounds ---


def test_a_large_configuration_is_several_records(tmp_path: Path) -> None:
    """None is longer than a line, and together they say all."""
    config = {f"k{i}": {"text": "é" * 30_000, "n": i} for i in range(60)}
    made = written(tmp_path, config=config)
    assert len(made) > 2
    assert max(len(line.encode()) for line in made) < MAX_LINE_BYTES
    assert merged([json.loads(line) for line in made]) == {"config": config}


def test_the_longest_leaves_fit(tmp_path: Path) -> None:
    """Whatever its characters, a text has 65,536 of them, an array 512 KiB, and long names do not break the line."""
    path = {"\x01" * 1000: {"€" * 1000: {"a" * 900: "\x02" * 70_000, "list": ["€" * 60_000] * 9}}}
    made = written(tmp_path, config={"deep": path, "long": "x" * 70_000})
    assert all(len(line.encode()) < MAX_LINE_BYTES for line in made)
    found = merged([json.loads(line) for line in made])["config"]
    assert found["long"] == "x" * 65_536
    (inner,) = (below for one in found["deep"].values() for below in one.values())
    assert inner["a" * 900] == "\x02" * 65_536
    assert inner["list"].startswith('["€€') and len(inner["list"]) == 65_536
    assert len(answers(tmp_path)) == 2  # of paths that begin alike one is named


def test_keys_beyond_ten_thousand_are_left_out_and_said(tmp_path: Path) -> None:
    """The first 10,000 stay and go on being updated; others are left out, once with a word."""
    logger = logger_at(tmp_path)
    logger.config({f"k{i}": i for i in range(10_005)})
    logger.config(more=1, k0="new")
    logger.summary(best=1)
    logger.close()
    found = merged(records(tmp_path))
    assert len(found["config"]) == 10_000
    assert (found["config"]["k0"], found["config"]["k9999"], found["summary"]) == ("new", 9999, {"best": 1})
    ((where, told),) = answers(tmp_path)
    assert where == "config"
    assert "more than 10000 keys or 4 MiB: 'config.k10000' and 4 others" in told


def test_more_than_four_mebibytes_are_left_out(tmp_path: Path) -> None:
    """The memory of the job is bounded, whatever it notes."""
    logger = logger_at(tmp_path)
    for i in range(100):
        logger.config({f"k{i}": "x" * 60_000})
    logger.close()
    assert len(merged(records(tmp_path))["config"]) == (4 << 20) // 60_002
    assert len(answers(tmp_path)) == 1


def test_a_full_buffer_drops_none(tmp_path: Path) -> None:
    """Run data waits outside of the buffer, so that lines that do not fit take no key with them."""
    logger = logger_at(tmp_path, buffer_bytes=4096)
    logger.start()
    for i in range(500):
        logger.event("fill", text="x" * 3000)
        logger.config({f"k{i}": i})
    logger.close()
    found = records(tmp_path)
    assert "gap" in kinds(found)
    assert merged(found)["config"] == {f"k{i}": i for i in range(500)}


# --- files that are lost, and other processes ---


def test_a_file_that_is_gone_takes_nothing_with_it(tmp_path: Path) -> None:
    """The next file says all of it again, behind its definitions, and what was said since comes after it."""
    logger = logger_at(tmp_path)
    logger.config(a=1, b={"c": 2})
    logger.run_data(name="n", tags=["t"], exit_code=1)
    logger.flush()
    (path,) = files(tmp_path)
    path.unlink()
    logger.config(a=3)
    logger.log({"x": 1})
    assert logger.close()
    found = records(tmp_path)
    assert kinds(found)[:2] == ["open", "run"]
    assert merged(found) == {"config": {"a": 3, "b": {"c": 2}}, "name": "n", "tags": ["t"], "exit_code": 1}


def test_a_truncated_file_has_it_again(tmp_path: Path) -> None:
    """As with definitions, what may be lost is written again."""
    logger = logger_at(tmp_path)
    logger.start()
    logger.flush()
    header = files(tmp_path)[0].stat().st_size
    logger.config(a=1)
    logger.flush()
    os.truncate(files(tmp_path)[0], header)
    logger.log({"x": 1})
    logger.close()
    found = [json.loads(line) for line in lines(tmp_path) if line]
    assert kinds(found) == ["open", "gap", "run", "metrics", "close"]
    assert merged(found) == {"config": {"a": 1}}


def test_a_forked_child_does_not_say_it_again(tmp_path: Path) -> None:
    """The parent's file has it. What the child itself notes is in its own file, without facts."""
    program(
        MORTAL
        + """
import sys, rlship
rlship.init(sys.argv[1], "trainer", config={"lr": 1})
rlship.flush()
if os.fork() == 0:
    rlship.log({"x": 1})
    rlship.summary(child=1)
    rlship.close()
    os._exit(0)
os.wait()
rlship.config(lr=2)
""",
        tmp_path,
    )
    both = [[json.loads(line) for line in whole(path)] for path in files(tmp_path)]
    (child,) = (found for found in both if "parent" in found[0])
    (parent,) = (found for found in both if "parent" not in found[0])
    assert merged(child) == {"summary": {"child": 1}}
    assert merged(parent)["config"] == {"lr": 2}


def test_a_killed_process_keeps_what_it_said(tmp_path: Path) -> None:
    """SIGKILL takes nothing that is older than the half second after which lines are written."""
    source = """
import os, signal, sys, time, rlship
rlship.init(sys.argv[1], "trainer", config={"lr": 1})
rlship.summary(best=2)
time.sleep(1.2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    program(source, tmp_path, code=-signal.SIGKILL)
    found = merged(records(tmp_path))
    assert (found["config"], found["summary"]) == ({"lr": 1}, {"best": 2})
    assert found["facts"]["host"] == os.uname().nodename


def test_many_threads_note_at_once(tmp_path: Path) -> None:
    """Each key has the value that its thread gave it last, whenever the writing thread looks."""
    logger = logger_at(tmp_path, timing=Timing(flush=0.001))

    def work(name: str) -> None:
        for i in range(300):
            logger.config({name: {"i": i, f"k{i % 7}": i}})
            logger.summary({name: i})

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logger.close()
    found = merged(records(tmp_path))
    own = {"i": 299} | {f"k{i % 7}": i for i in range(293, 300)}
    assert found == {"config": {f"t{n}": own for n in range(8)}, "summary": {f"t{n}": 299 for n in range(8)}}


# --- init, and facts ---


def test_init_takes_what_wandb_takes(tmp_path: Path) -> None:
    """config, name, notes, tags, group, project, entity and job_type; a second call of init updates them."""
    program(
        """
import argparse, sys, rlship
log = rlship.init(sys.argv[1], "trainer", config=argparse.Namespace(lr=1, seed=2), name="n", notes="why", tags=["a"],
                  group="g", project="p", entity="e", job_type="train")
assert rlship.init(sys.argv[1], "trainer", config={"lr": 3}, tags=("b",)) is log
rlship.config(extra=True)
rlship.summary({"best": 1})
""",
        tmp_path,
    )
    found = merged(records(tmp_path))
    found.pop("facts")
    assert found == {
        "config": {"lr": 3, "seed": 2, "extra": True},
        "name": "n",
        "notes": "why",
        "tags": ["b"],
        "group": "g",
        "project": "p",
        "entity": "e",
        "job_type": "train",
        "summary": {"best": 1},
    }


def test_no_line_waits_for_facts(tmp_path: Path) -> None:
    """To look for facts may take long, in a large git repository on a busy machine. So the first lines are written
    before, and the facts right after them.
    """
    logger = logger_at(tmp_path, timing=Timing(flush=1e6))
    logger.find_facts()
    logger.stream.buffer.append('{"m":{"x":1},"step":0,"t":1.5}\n', 40, 0)  # before there is a writing thread
    assert logger.start()
    found = soon(tmp_path, lambda found: any("facts" in record for record in found))
    assert ["facts" in record for record in found[1:]] == [False, True]
    logger.close()


def test_init_adds_facts(tmp_path: Path) -> None:
    """Command, folder, host, Python, packages that are imported, and the launcher's job; once, and without secrets."""
    source = "import sys, numpy, rlship\nrlship.init(sys.argv[1], 'trainer')"
    environ = {"SLURM_JOB_ID": "4121", "SLURM_PROCID": "0", "TORCHELASTIC_RUN_ID": "none"}
    program(source, tmp_path, env=environ)
    (run,) = (record for record in records(tmp_path) if record["kind"] == "run")
    facts = run["facts"]
    assert faults("record", run) == []
    assert facts["command"][-3:] == ["-c", (MORTAL + source), str(tmp_path)]
    assert (facts["cwd"], facts["host"], facts["job"]) == (os.getcwd(), os.uname().nodename, "slurm:4121")
    assert facts["python"].startswith("3.")
    assert facts["packages"] == {"rlship": rlship.__version__, "numpy": np.__version__}


def test_packages_that_come_later_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many jobs call init before they import what they run; a look every few seconds finds it, without importing."""
    monkeypatch.setattr("rlship.stream._RELEARN_S", 0.01)
    logger = logger_at(tmp_path)
    logger.find_facts()
    logger.start()
    soon(tmp_path, lambda found: any("facts" in record for record in found))
    module = types.ModuleType("torchtitan")
    monkeypatch.setitem(__import__("sys").modules, "torchtitan", module)
    module.__version__ = "9.9"  # type: ignore[attr-defined]
    wait_until(lambda: merged(records(tmp_path))["facts"]["packages"].get("torchtitan") == "9.9")
    logger.close()


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "abc"}, "slurm:7"),
        ({"TORCHELASTIC_RUN_ID": "abc", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "torchrun:abc"),
        ({"TORCHELASTIC_RUN_ID": "none"}, None),
        ({"RAY_JOB_ID": "01000000"}, "ray:01000000"),
        ({"LSB_JOBID": "5"}, "lsf:5"),
        ({"PBS_JOBID": "5.host"}, "pbs:5.host"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "k8s:n07"),
    ],
)
def test_the_launcher_names_the_job(environ: dict[str, str], job: str | None) -> None:
    """The outermost launcher that is known does."""
    from rlship.facts import job_of
    from tests.writer.reading import identity

    assert job_of(identity(), environ) == job


# --- git ---


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """A repository with one commit of two files, older than its index."""
    top = tmp_path / "repository"
    (top / "deep").mkdir(parents=True)
    (top / "train.py").write_text("print(1)\n")
    (top / "deep" / "ü b.txt").write_text("x\n")
    for path in (top / "train.py", top / "deep" / "ü b.txt"):
        os.utime(path, (1.7e9, 1.7e9))
    git(top, "init", "-q", "-b", "main")
    commit_all(top)
    yield top


def git(top: Path, *arguments: str) -> str:
    """What git says."""
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *own, *arguments], cwd=top, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


def commit_all(top: Path) -> None:
    """One more commit."""
    git(top, "add", "-A")
    git(top, "commit", "-q", "--allow-empty", "-m", "a")


def facts_of(folder: Path) -> Record:
    """What the writer finds."""
    from rlship import facts

    return facts.git([str(folder)])


def test_the_commit_is_that_of_git(repository: Path) -> None:
    """On a branch, with packed refs, detached, in a folder below, and in a further work tree."""
    head = git(repository, "rev-parse", "HEAD")
    assert facts_of(repository / "deep") == {"git": head, "git_dirty": False}
    git(repository, "pack-refs", "--all")
    assert facts_of(repository)["git"] == head
    commit_all(repository)
    other = git(repository, "rev-parse", "HEAD")
    assert facts_of(repository)["git"] == other != head
    git(repository, "worktree", "add", "-q", "../other", head)
    assert facts_of(repository.parent / "other")["git"] == head
    git(repository, "checkout", "-q", "--detach", head)
    assert facts_of(repository)["git"] == head


def test_a_changed_file_is_dirty(repository: Path) -> None:
    """A file of another size, one that is gone, and a change that is staged; not a file that git does not know."""
    (repository / "new.txt").write_text("x")
    assert facts_of(repository)["git_dirty"] is False
    (repository / "train.py").write_text("print(12)\n")
    assert facts_of(repository)["git_dirty"] is True
    git(repository, "add", "train.py")
    os.utime(repository / "train.py", (1.7e9, 1.7e9))
    git(repository, "add", "train.py")
    assert facts_of(repository).get("git_dirty") is not False
    git(repository, "reset", "-q", "--hard")
    (repository / "deep" / "ü b.txt").unlink()
    assert facts_of(repository)["git_dirty"] is True


def test_what_takes_long_to_find_out_is_left_out(repository: Path) -> None:
    """A file of the same size and another time, and a commit in a pack."""
    os.utime(repository / "train.py", (1.6e9, 1.6e9))
    assert facts_of(repository) == {"git": git(repository, "rev-parse", "HEAD")}
    os.utime(repository / "train.py", (1.7e9, 1.7e9))
    assert facts_of(repository)["git_dirty"] is False
    git(repository, "gc", "-q")
    assert facts_of(repository) == {"git": git(repository, "rev-parse", "HEAD")}


def test_no_repository_and_broken_ones_say_nothing(tmp_path: Path, repository: Path) -> None:
    """Nor does one before its first commit, or one whose HEAD is a pipe, which is not opened."""
    assert facts_of(tmp_path) == {}
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    assert facts_of(empty) == {}
    (repository / ".git" / "index").write_bytes(b"DIRC\0\0\0\2\0\0\0\xffxx")
    assert facts_of(repository) == {"git": git(repository, "rev-parse", "HEAD")}
    (repository / ".git" / "HEAD").unlink()
    os.mkfifo(repository / ".git" / "HEAD")
    assert facts_of(repository) == {}


def test_what_the_run_is_comes_before_its_first_lines(tmp_path: Path) -> None:
    """A reader that sees the beginning of the first write only knows the project before it knows a row; what is said
    later comes in its turn.
    """
    times = iter(range(1_763_600_000, 1_763_700_000))
    logger = logger_at(tmp_path, clock=lambda: float(next(times)))
    logger.start()
    logger.run_data(project="p")
    for step in range(200):
        logger.log({"x": step}, step=step)
        logger.barrier(step)
    logger.summary(best=1)
    logger.flush()
    logger.log({"x": 200}, step=200)
    logger.summary(best=2)
    logger.close()
    found = records(tmp_path)
    assert kinds(found)[:2] == ["open", "run"]
    assert found[1]["project"] == "p"
    assert found[1]["t"] <= found[2]["t"]
    assert kinds(found)[-3:] == ["metrics", "run", "close"]
