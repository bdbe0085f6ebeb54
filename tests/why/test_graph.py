"""The graph that comes with rlship is whole, and a file with a mistake is refused with its line."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.catalogue.metrics import lookup
from rlship_sidecar.alerts.words import entry_of
from rlship_sidecar.config import CONFIG_FILE, load
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.why import graph
from rlship_sidecar.why.graph import BadGraph, graph_of, merged, read, read_file
from tests.guards.tree import ROOT

PACKAGED = graph_of()
OWN = {"coverage/missing", "coverage/short", "coverage/gap"}
TEXT = """\
[sign.tool_fails]
says = "tools fail"
metric = "trainer/tools/failure_frequency"
above = 0.2
at = "environment"
[sign.tool_fails.leads_to]
reward_down = { within = 10, source = "our runs" }

[cause.tool_server_down]
says = "the tool server is down"
at = "environment"
decisive = ["tool_fails"]
weak = ["rollout_slow", "not clip_up"]
look = "its dashboard"
source = "our runs"
"""


def test_every_metric_of_it_is_known() -> None:
    """Signs name metrics of the catalogue, keys that the sidecar itself makes, or idle times of one actor."""
    for sign in PACKAGED.signs.values():
        for name in (*sign.metrics, *filter(None, (sign.less, sign.of))):
            bare = name.removesuffix("/nonfinite").partition("/")
            known = entry_of(name.removesuffix("/nonfinite")) or lookup(bare[0], bare[2])
            own = name in OWN or name.startswith("zz_rlship/ledger/") or name == "generator/policy_lag"
            assert known is not None or own, (sign.name, name)


def test_every_cause_can_be_told() -> None:
    """Each cause has a place and a way to look, evidence that no other cause has in whole, and a source."""
    evidence = [frozenset(cause.evidence) for cause in PACKAGED.causes.values()]
    assert len(set(evidence)) == len(evidence)
    for cause in PACKAGED.causes.values():
        assert cause.look and cause.remedy and cause.source, cause.name
        assert not cause.look.endswith(".") and len(cause.says) < 76, cause.name
    used = {part.sign for cause in PACKAGED.causes.values() for part in cause.evidence}
    led_to = {edge.to for sign in PACKAGED.signs.values() for edge in sign.leads_to}
    assert set(PACKAGED.signs) == used | led_to | {name for name, sign in PACKAGED.signs.items() if sign.leads_to}


def test_the_file_names_its_sources() -> None:
    """The file is for people: it says in its first lines what the tables are."""
    text = (files("rlship_sidecar.why") / "graph.toml").read_text(encoding="utf-8")
    assert text.startswith("# Signs and causes") and "[sign.NAME.leads_to]" in text[:900]


def test_a_sign_reaches_what_follows_from_it() -> None:
    """By the fewest edges, with the steps that they may take; a sign that is absent breaks the way."""
    made = read(
        {
            "sign": {
                "a": {"says": "a", "metric": "x", "above": 1, "leads_to": {"b": {"within": 2, "source": "s"}}},
                "b": {"says": "b", "metric": "x", "above": 2, "leads_to": {"c": {"within": 3, "source": "s"}}},
                "c": {"says": "c", "metric": "x", "above": 3, "leads_to": {"a": {"within": 1, "source": "s"}}},
            }
        }
    )
    assert made.reach("a") == {"b": 2, "c": 5}
    assert made.reach("a", {"b"}) == {"b": 2}
    assert made.reach("a", {"a"}) == {"b": 2, "c": 5}
    assert made.reach("a", (), ()) == {"b": 2, "c": 5}  # beyond one sign that is not among those shown, and no more
    assert made.reached["c"] == {"a", "b", "c"}


def test_a_file_adds_to_it() -> None:
    """A sign and a cause of a user's own, in fifteen lines."""
    made = graph_of(read_file(TEXT.encode(), "mine.toml"))
    assert len(made.signs) == len(PACKAGED.signs) + 1
    assert made.causes["tool_server_down"].shows == ("tool_fails", "rollout_slow")
    assert "reward_down" in made.reach("tool_fails")


def test_a_table_lies_over_one_of_the_package() -> None:
    """Key by key, edge by edge; another test takes the place of the former one; a cause can be switched off."""
    text = """\
[sign.ess_low]
below = 0.5
[sign.ess_low.leads_to]
kl_up = { within = 7, source = "own" }
[cause.host_busy]
enabled = false
[cause.kv_thrash]
look = "elsewhere"
"""
    made = graph_of(read_file(text.encode(), "mine.toml"))
    sign, before = made.signs["ess_low"], PACKAGED.signs["ess_low"]
    assert (sign.test, sign.value, sign.says) == ("below", 0.5, before.says)
    assert {edge.to for edge in sign.leads_to} == {edge.to for edge in before.leads_to} | {"kl_up"}
    assert "host_busy" not in made.causes
    assert made.causes["kv_thrash"].look == "elsewhere"
    assert made.causes["kv_thrash"].evidence == PACKAGED.causes["kv_thrash"].evidence


def test_the_page_is_true() -> None:
    """The example on the page adds a cause, and the page counts what the graph has."""
    page = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    made = graph_of(read_file(example.encode(), "why.md"))
    assert "tool_server_down" in made.causes and "host_busy" not in made.causes
    edges = sum(len(sign.leads_to) for sign in PACKAGED.signs.values())
    said = f"{len(PACKAGED.signs)} signs, {edges} edges between them and {len(PACKAGED.causes)} causes"
    assert said in " ".join(page.split())
    for key in (*graph._SIGN_KEYS, *graph._CAUSE_KEYS, *graph.EVENTS, *graph.AT):
        assert re.search(rf'`"?{key}\b', page), key


MISTAKES = {
    "[sing.x]\nsays = 'a'": (1, "there is no kind 'sing'", "allowed are sign and cause"),
    "sign = 3": (1, "is no table of tables", "[sign.NAME]"),
    "[sign]\nx = 3": (2, "is no table", "[sign.x]"),
    "[sign.X]\nsays = 'a'\nmetric = 'm'\nabove = 1": (1, "'X' is no name of a sign", "small letters"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nabove = 1\nabov = 2": (5, "there is no key abov", 'did you mean "above"?'),
    "[sign.x]\nsays = 'a'\nmetric = 'm'": (1, "it does not say what it looks for", "allowed is one of change, above"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nabove = 1\nbelow = 2": (5, "both above and below", "allowed is one of"),
    "[sign.x]\nsays = 'a'\nabove = 1": (1, "it has no metric", "rlship metrics"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nstalls = true": (3, "stalls is of no metric", "leave metric out"),
    "[sign.x]\nmetric = 'm'\nabove = 1": (1, "is missing or empty", 'write says = "…"'),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nchange = 'up'": (4, "m is not in the catalogue", "add size"),
    "[sign.x]\nsays = 'a'\nmetric = 'train/lr'\nchange = 'up'": (4, "train/lr is a claim", "add size"),
    "[sign.x]\nsays = 'a'\nmetric = 'rwd/timeouts'\nchange = 'down'": (4, "known healthy value", "allowed: up"),
    "[sign.x]\nsays = 'a'\nmetric = 'train/loss'\napart = 'up'": (4, "has no usual floor", "add floor"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nchange = 'upp'\nsize = 2": (4, "'upp' is not allowed", 'did you mean "up"?'),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nabove = 1\nlasting = 2": (5, "is not allowed here", "beside change"),
    "[sign.x]\nsays = 'a'\nmetric = 'train/loss'\nchange = 'up'\nlasting = 0.5": (5, "is not allowed", ">= 1"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nabove = inf": (4, "'inf' is not allowed", "a finite number"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nfalls = false": (4, "False is not allowed", "allowed: true"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nstuck = 1": (4, "'1' is not allowed", "2..200"),
    "[sign.x]\nsays = 'a'\nevent = 'rain'": (3, "'rain' is not allowed", "restart, job_restart, rollback"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nabove = 1\nneed = [3, 2]": (5, "[3, 2] is not allowed", "k <= n"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nabove = 1\nat = 'moon'": (5, "'moon' is not allowed", "trainer, generator"),
    "[sign.x]\nsays = 'a'\nmetric = 'm'\nabove = 1\n[sign.x.leads_to]\nkl_upp = { within = 1, source = 's' }": (
        6,
        "there is no sign 'kl_upp'",
        "did you mean kl_up",
    ),
    "[sign.ess_low.leads_to]\nkl_up = { within = 1 }": (2, "is missing or empty", 'write source = "…"'),
    "[sign.ess_low.leads_to]\nkl_up = { source = 's' }": (2, "'None' is not allowed", "0..1000"),
    "[sign.ess_low.leads_to]\nkl_up = 3": (2, "'3' is no edge", "within = 5"),
    "[cause.c]\nsays = 'a'\nsource = 's'": (1, "it has 0 signs", "write decisive, strong, weak"),
    "[cause.c]\nsays = 'a'\nstrong = ['not kl_up']\nsource = 's'": (1, "it has 0 signs", "names of signs"),
    "[cause.c]\nsays = 'a'\nstrong = ['kl_u']\nsource = 's'": (3, "there is no sign 'kl_u'", "did you mean kl_up"),
    "[cause.c]\nsays = 'a'\nstrong = 'kl_up'\nsource = 's'": (3, "'kl_up' is not allowed", 'such as ["a", "not b"]'),
    "[cause.c]\nsays = 'a'\nstrong = ['kl_up']\nweak = ['not kl_up']\nsource = 's'": (4, "twice", "once"),
    "[cause.c]\nsays = 'a'\nstrong = ['kl_up']\n": (1, "is missing or empty", 'write source = "…"'),
    "[cause.c]\nsays = 'a'\nstrong = ['kl_up']\nsource = 's'\nenabled = 1": (5, "1 is not allowed", "true or false"),
    "[cause.c]\nsays = 'a'\nstrong = ['kl_up']\nsource = 's'\nweight = 9": (5, "there is no key weight", "says, at"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_refused_with_its_line(text: str) -> None:
    """The message has file, line, key and value; the hint says what is allowed."""
    line, message, hint = MISTAKES[text]
    with pytest.raises(UsageProblem) as raised:
        read_file(text.encode(), "mine.toml")
    assert raised.value.message.startswith(f"mine.toml, line {line}: "), raised.value.message
    assert message in raised.value.message
    assert hint in raised.value.hint, raised.value.hint


def test_text_that_is_no_toml_is_refused() -> None:
    """With what the parser says."""
    with pytest.raises(UsageProblem, match="not TOML"):
        read_file(b"[sign", "mine.toml")


def test_sizes_are_bounded() -> None:
    """A graph of thousands of signs is refused before it is read."""
    text = "".join(f"[sign.s{at}]\nsays = 'a'\nmetric = 'm'\nabove = 1\n" for at in range(graph.MAX_SIGNS + 1))
    with pytest.raises(UsageProblem, match=f"at most {graph.MAX_SIGNS}|there are"):
        read_file(text.encode(), "mine.toml")


def test_settings_hold_one_too(tmp_path: Path) -> None:
    """`[why]` in rlship.toml has the same tables; a mistake has its line; another user's file counts for nothing."""
    file = tmp_path / CONFIG_FILE
    file.write_text(re.sub(r"^\[", "[why.", TEXT, flags=re.MULTILINE))
    assert "tool_server_down" in graph_of(load(tmp_path, {}, {}).why).causes
    file.write_text("lead = 'trainer'\n[why.cause.host_busy]\nenabled = 2\n")
    with pytest.raises(UsageProblem, match=r"line 3: why\.cause\.host_busy\.enabled: 2 is not allowed"):
        load(tmp_path, {}, {})
    file.write_text("[why.cause.host_busy]\nenabled = false\n")
    file.chmod(0o666)
    with pytest.raises(UsageProblem, match="why is not taken from it"):
        load(tmp_path, {}, {})


def test_settings_of_a_folder_and_of_an_experiment_are_laid_together(tmp_path: Path) -> None:
    """The experiment's own file wins key by key."""
    (tmp_path / "run").mkdir()
    (tmp_path / CONFIG_FILE).write_text("[why.cause.host_busy]\nenabled = false\nlook = 'a'\n")
    (tmp_path / "run" / CONFIG_FILE).write_text("[why.cause.host_busy]\nlook = 'b'\n")
    found = load(tmp_path, {}, {}, experiment=tmp_path / "run").why
    assert found["cause"]["host_busy"] == {"enabled": False, "look": "b"}


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
VALUES = st.one_of(
    PLAIN,
    st.lists(PLAIN, max_size=3),
    st.sampled_from(["up", "train/lr", ["kl_up"], ["not kl_up"], {"kl_up": {"within": 3, "source": "s"}}]),
)
KEYS = st.sampled_from([*graph._SIGN_KEYS, *graph._CAUSE_KEYS, "odd"])


SMALL: dict[str, dict[str, Any]] = {
    "sign": {
        "ess_low": {"says": "a", "metric": "correctness/is_ess", "change": "down"},
        "kl_up": {"says": "b", "metric": "train/kl_ref", "change": "up"},
    },
    "cause": {"kv_thrash": {"says": "c", "strong": ["ess_low"], "source": "s"}},
}


@given(st.dictionaries(st.sampled_from(["x", "ess_low", "kv_thrash"]), st.dictionaries(KEYS, VALUES, max_size=6)))
def test_whatever_it_holds_it_is_read_or_refused(tables: dict[str, Any]) -> None:
    """No table, however odd, ends in another error than that of a mistake with its place."""
    for kind in ("sign", "cause"):
        try:
            made = read(merged(SMALL, {kind: tables}))
        except BadGraph as problem:
            assert problem.at[0] == kind and problem.hint
        else:
            assert set(made.signs) >= set(SMALL["sign"])
