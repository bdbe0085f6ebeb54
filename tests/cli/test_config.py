"""Where settings come from, which of them wins, and what is reported of a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.config import Config, load, state_dir_for
from rlship_sidecar.errors import UsageProblem

WRITER_VARIABLES = [
    "RLSHIP_DIR",
    "RLSHIP_ACTOR",
    "RLSHIP_RANK",
    "RLSHIP_WORLD",
    "RLSHIP_REPLICA",
    "RLSHIP_ATTEMPT",
    "RLSHIP_PARENT",
    "RLSHIP_DISABLE",
    "RLSHIP_WATCH_ONCE",
    "RLSHIP_STATUS_JSON",
]


def write(folder: Path, text: str) -> Path:
    (folder / "rlship.toml").write_text(text, encoding="utf-8")
    return folder


def test_nothing_set_gives_the_defaults(tmp_path: Path) -> None:
    """Without file, variables and flags every key has its default."""
    assert load(tmp_path, {}, {}) == Config()


def test_precedence(tmp_path: Path) -> None:
    """A flag beats a variable, a variable beats the file, the file beats the default."""
    write(tmp_path, 'grace_s = 1\njoin_s = 1\nimplicit_s = 1\nsinks = ["jsonl"]\n')
    config = load(
        tmp_path, {"sinks": ("console",), "poll_s": None}, {"RLSHIP_SINKS": "tensorboard", "RLSHIP_JOIN_S": "2"}
    )
    assert (config.grace_s, config.join_s, config.implicit_s) == (1, 2, 1)
    assert config.sinks == ["console"]
    assert config.max_wait_s == 600
    assert load(tmp_path, {}, {"RLSHIP_SINKS": "tensorboard, console"}).sinks == ["tensorboard", "console"]
    assert load(tmp_path, {"sinks": ()}, {}).sinks == ["jsonl"]


def test_every_key_can_be_set_by_its_variable(tmp_path: Path) -> None:
    """RLSHIP_<KEY> exists for each key of Config, but for tables: rules of alerts, the graph and notifiers."""
    samples = {"state_dir": "/s", "sinks": "jsonl", "reductions": '{"loss": ["max"]}', "per_rank": "true"}
    samples["alerts"] = "false"
    samples["opens_per_s"] = "70"
    for key in Config.__struct_fields__:
        if key in ("sink", "alert", "why", "notify"):
            continue  # tables, which have variables for options or none
        config = load(tmp_path, {}, {f"RLSHIP_{key.upper()}": samples.get(key, "7")})
        assert getattr(config, key) != getattr(Config(), key), key


def test_sink_options_of_all_places_are_merged(tmp_path: Path) -> None:
    """A variable replaces one option of a sink and leaves the others of the file alone."""
    write(tmp_path, '[sink.wandb]\nproject = "a"\nentity = "me"\n')
    env = {"RLSHIP_SINK__WANDB__PROJECT": "b", "RLSHIP_SINK__WANDB__TAGS": '["x", "y"]'}
    assert load(tmp_path, {}, env).sink == {"wandb": {"project": "b", "entity": "me", "tags": ["x", "y"]}}


def test_an_empty_variable_is_no_setting(tmp_path: Path) -> None:
    """An empty RLSHIP_ variable counts as not given."""
    assert load(tmp_path, {}, {"RLSHIP_GRACE_S": "", "RLSHIP_STATE_DIR": " "}) == Config()


def test_a_single_reduction_needs_no_list(tmp_path: Path) -> None:
    """In rlship.toml a reduction may be a name or a list of names."""
    write(tmp_path, '[reductions]\nloss = "max"\n"trainer/token" = ["mean", "std"]\n')
    assert load(tmp_path, {}, {}).reductions == {"loss": ["max"], "trainer/token": ["mean", "std"]}


def test_sinks_named_twice_count_once(tmp_path: Path) -> None:
    """Naming a sink twice does not ship twice to it."""
    assert load(tmp_path, {"sinks": ("jsonl", "console", "jsonl")}, {}).sinks == ["jsonl", "console"]


def test_relative_state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative state_dir is relative to the folder of rlship.toml, or to the working directory if from a flag."""
    monkeypatch.chdir(tmp_path)
    experiment = tmp_path / "exp"
    experiment.mkdir()
    write(experiment, 'state_dir = "state"\n')
    assert load(Path("exp"), {}, {}).state_dir == str(experiment / "state")
    config = load(Path("exp"), {"state_dir": "here"}, {})
    assert config.state_dir == str(tmp_path / "here")
    assert state_dir_for(experiment, config) == tmp_path / "here" / "exp"


def test_state_lies_in_the_experiment_by_default(tmp_path: Path) -> None:
    """Without state_dir the state is in the experiment's own rlship/state."""
    assert state_dir_for(tmp_path, Config()) == tmp_path / "rlship" / "state"


@pytest.mark.parametrize("variable", WRITER_VARIABLES)
def test_variables_of_writers_and_flags_are_left_alone(variable: str, tmp_path: Path) -> None:
    """Variables that mean something to the writers or to click are no mistake in the configuration."""
    assert load(tmp_path, {}, {variable: "1"}) == Config()


FILE_MISTAKES = [
    ("grce_s = 1", ["rlship.toml", "grce_s", "1", 'did you mean "grace_s"?']),
    ("zebra = 1", ["rlship.toml", "zebra", "allowed are: grace_s"]),
    ('grace_s = "30"', ["rlship.toml", "grace_s", "'30'", "seconds, a finite number > 0"]),
    ("grace_s = 0", ["grace_s = 0", "> 0"]),
    ("max_wait_s = inf", ["max_wait_s = inf", "finite"]),
    ("join_s = nan", ["join_s = nan", "finite"]),
    ("poll_s = 61", ["poll_s = 61", "0.01..60"]),
    ("lease_ttl_s = 0.5", ["lease_ttl_s = 0.5", ">= 1"]),
    ("state_dir = 3", ["state_dir = 3", "a path"]),
    ('state_dir = ""', ["state_dir = ''", "a path"]),
    ("state_dir = state", ["rlship.toml", "not TOML", "line 1"]),
    ('axis = "trainer"', ["unknown key axis", "allowed are: grace_s"]),
    ('sinks = "wandb"', ["sinks = 'wandb'", "a list of sink names"]),
    ('sinks = ["wandd"]', ['there is no sink "wandd"', 'did you mean "wandb"?', "tensorboard, jsonl, console"]),
    ("[sink.tensorbord]\nx = 1", ["[sink.tensorbord]", 'did you mean "tensorboard"?']),
    ("sink = 3", ["sink = 3", "[sink.wandb]"]),
    ('[reductions]\nloss = "maen"', ['"loss"', 'there is no reduction "maen"', 'did you mean "mean"?']),
    ("[reductions]\nloss = []", ['"loss" = []', "non-empty"]),
    ("[reductions]\nloss = 3", ["reductions", "a table of lists of names"]),
]


@pytest.mark.parametrize(("text", "told"), FILE_MISTAKES, ids=[text for text, _ in FILE_MISTAKES])
def test_a_mistake_in_the_file_is_told_in_full(text: str, told: list[str], tmp_path: Path) -> None:
    """An error in rlship.toml names the file, the key, the value and what is allowed, and has exit code 2."""
    with pytest.raises(UsageProblem) as caught:
        load(write(tmp_path, text), {}, {})
    for part in told:
        assert part in str(caught.value)
    assert caught.value.exit_code == 2


ELSEWHERE_MISTAKES: list[tuple[dict[str, Any], dict[str, str], list[str]]] = [
    ({}, {"RLSHIP_GRACE_S": "soon"}, ["RLSHIP_GRACE_S = 'soon'", "a finite number > 0"]),
    ({}, {"RLSHIP_GRACE_S": "inf"}, ["RLSHIP_GRACE_S = inf", "finite"]),
    ({}, {"RLSHIP_LEASE_TTL": "3"}, ["RLSHIP_LEASE_TTL", "did you mean RLSHIP_LEASE_TTL_S?"]),
    ({}, {"RLSHIP_SINK": "jsonl"}, ["RLSHIP_SINK ", "did you mean RLSHIP_SINKS?"]),
    ({}, {"RLSHIP_SINK__WANDB": "x"}, ["RLSHIP_SINK__WANDB", "RLSHIP_SINK__WANDB__PROJECT"]),
    ({}, {"RLSHIP_SINK__WANDD__PROJECT": "x"}, ["RLSHIP_SINK__WANDD__PROJECT", 'did you mean "wandb"?']),
    ({}, {"RLSHIP_REDUCTIONS": "loss=max"}, ["RLSHIP_REDUCTIONS", "not JSON"]),
    ({"poll_s": 100.0}, {}, ["--poll = 100.0", "0.01..60"]),
    ({"sinks": ("wand",)}, {}, ["--sink", 'did you mean "wandb"?']),
]


@pytest.mark.parametrize(("flags", "env", "told"), ELSEWHERE_MISTAKES)
def test_a_mistake_in_a_flag_or_variable_names_it(
    flags: dict[str, Any], env: dict[str, str], told: list[str], tmp_path: Path
) -> None:
    """An error names the variable or flag that the value came from."""
    with pytest.raises(UsageProblem) as caught:
        load(tmp_path, flags, env)
    for part in told:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '[sink.wandb]\napi_key = "hunter2"',
        '[sink.wandb]\nkey = "hunter2"',
        '[sink.wandb.auth]\ntoken = "hunter2"',
        'WANDB_API_KEY = "hunter2"',
        'wandb-api-key = "hunter2"',
    ],
)
def test_secrets_in_the_file_are_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    """A key that looks like a secret is refused wherever it stands, with the way out and without its value."""
    with pytest.raises(UsageProblem) as caught:
        load(write(tmp_path, text), {}, {})
    assert "WANDB_API_KEY" in caught.value.hint
    assert "hunter2" not in str(caught.value)


def test_secrets_in_sink_variables_are_refused(tmp_path: Path) -> None:
    """A secret is not taken as a sink's option from the environment either."""
    with pytest.raises(UsageProblem) as caught:
        load(tmp_path, {}, {"RLSHIP_SINK__WANDB__API_KEY": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A rlship.toml that is no readable file, or not UTF-8, is a usage error that names it."""
    (tmp_path / "rlship.toml").mkdir()
    with pytest.raises(UsageProblem, match=r"rlship\.toml: cannot be read"):
        load(tmp_path, {}, {})
    other = tmp_path / "other"
    other.mkdir()
    (other / "rlship.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageProblem, match=r"rlship\.toml: not TOML"):
        load(other, {}, {})


@pytest.mark.parametrize("text", ["notify_max_age_s = 1e9", "alerts = false", '[notify.a]\nkind = "slack"'])
def test_a_file_that_others_can_write_says_nothing_of_messages(text: str, tmp_path: Path) -> None:
    """Neither who gets messages nor how old an episode may be: with a receiver of the operator's own, an old experiment
    would send all of its episodes.
    """
    settings = tmp_path / "rlship.toml"
    settings.write_text(text)
    settings.chmod(0o666)
    with pytest.raises(UsageProblem, match=f"{text.strip('[').split('.')[0].split()[0]} is not taken from it"):
        load(tmp_path, {}, {})
