"""How evidence becomes a ranking: absence, precedence, explaining away, locality, and `unknown`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.alerts.episodes import FIRING, Episode, Moment
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.why.evidence import ABSENT, BEFORE, LATE, SHOWS, UNKNOWN, Evidence
from rlship_sidecar.why.graph import Graph, graph_of, read
from rlship_sidecar.why.ranking import UNKNOWN_WEIGHT, Around, Explanation, rank, symptoms_of

AT = 100  # when the episode began
MADE = graph_of()


def sign(*leads_to: str, within: int = 10, at: str = "") -> dict[str, Any]:
    edges = {name: {"within": within, "source": "s"} for name in leads_to}
    return {"says": "it is so", "metric": "m", "above": 1, "at": at, "leads_to": edges}


def cause(**given: Any) -> dict[str, Any]:
    return {"says": "a cause", "source": "s"} | given


def graph(signs: Mapping[str, dict[str, Any]], **causes: dict[str, Any]) -> Graph:
    return read({"sign": signs, "cause": causes})


def shows(name: str, at: int = AT, *, rank: str = "", actor: str = "trainer", state: str = SHOWS) -> Evidence:
    moment = Moment(at, float(at))
    return Evidence(name, state, (name,), name, at, moment, moment, None, actor, "step", at, rank)


def without(name: str, state: str = ABSENT) -> Evidence:
    return Evidence(name, state, ("m",))


EPISODE = Episode("r", "warning", FIRING, "", (0, 0, 0), *(Moment(AT, float(AT)),) * 3, None, ())


def answer(made: Graph, found: Sequence[Evidence], symptoms: Sequence[str] = ("down",), **around: Any) -> Explanation:
    evidence = {one: without(one, UNKNOWN) for one in made.signs} | {one.sign: one for one in found}
    return rank(made, EPISODE, symptoms, evidence, Around(**around))


def weights(said: Explanation) -> dict[str, float]:
    return {"unknown" if one.cause is None else one.cause.name: one.weight for one in said.candidates}


CHAIN = {"first": sign("second"), "second": sign("down"), "down": sign(), "other": sign("down")}


def test_strengths_multiply_and_divide() -> None:
    """What shows multiplies, what is logged and absent divides, and what is not logged changes nothing."""
    made = graph(CHAIN, c=cause(decisive=["first"], strong=["second"], weak=["other"]))
    assert weights(answer(made, [shows("first"), shows("second"), shows("other")]))["c"] == 50 * 8 * 2.5
    assert weights(answer(made, [shows("first"), without("second"), shows("other")]))["c"] == 50 / 8 * 2.5
    assert weights(answer(made, [shows("first"), shows("other")]))["c"] == 50 * 2.5
    assert weights(answer(made, [shows("first", state=BEFORE), shows("second", AT)]))["c"] == 8


def test_what_does_not_show_makes_no_cause() -> None:
    """Signs that a cause does not have count where a strong one shows, and then no more than one strong sign."""
    signs = CHAIN | {name: sign() for name in "pqr"}
    made = graph(signs, c=cause(strong=["second"], weak=["other", "not p", "not q", "not r"]))
    calm = [without(name) for name in "pqr"]
    assert weights(answer(made, [shows("other"), *calm]))["c"] == 2.5
    assert weights(answer(made, [shows("second"), *calm]))["c"] == 8 * 8
    assert weights(answer(made, [shows("second"), calm[0], shows("q")]))["c"] == 8 * 2.5 / 2.5


def test_weak_signs_that_are_absent_are_no_proof() -> None:
    """However many there are, together they divide by no more than one strong sign."""
    signs = CHAIN | {name: sign() for name in "pqr"}
    made = graph(signs, c=cause(decisive=["first"], weak=["p", "q", "r"]))
    assert weights(answer(made, [shows("first"), without("p"), without("q")]))["c"] == pytest.approx(8)
    assert weights(answer(made, [shows("first"), *map(without, "pqr")]))["c"] == 50 / 8


def test_a_symptom_that_follows_from_something_is_weak_evidence() -> None:
    """All causes of what leads to it share it. One that follows from nothing else counts in full: there it began."""
    made = graph(CHAIN, a=cause(strong=["down"]), b=cause(decisive=["down"]), c=cause(strong=["other", "down"]))
    said = weights(answer(made, [shows("down")]))
    assert (said["a"], said["b"], said["unknown"]) == (8, 50, UNKNOWN_WEIGHT)
    said = weights(answer(made, [shows("other", 95), shows("down")]))
    assert said["c"] == 8 * 2.5 and "a" not in said
    both = graph(CHAIN, c=cause(weak=["other"], strong=["down"]), d=cause(strong=["second"]))
    said = weights(answer(both, [shows("second", 94), shows("other", 95), shows("down")]))
    assert said == {"d": 8, "c": 2.5 * 2.5, "unknown": UNKNOWN_WEIGHT}


def test_of_several_decisive_signs_one_is_enough() -> None:
    """That another one is absent says nothing then; where none shows, each that is absent counts."""
    made = graph(CHAIN, c=cause(decisive=["first", "other"], weak=["second"]))
    assert weights(answer(made, [shows("first"), without("other")]))["c"] == 50
    assert weights(answer(made, [shows("second"), without("first"), without("other")]))["c"] == 2.5 / 50 / 50


def test_what_a_cause_explains_itself_is_not_explained_away() -> None:
    """A sign that follows from one of the cause's own counts, though it follows from another sign as well."""
    signs = {"first": sign("second"), "beside": sign("second"), "second": sign("down"), "down": sign()}
    made = graph(signs, c=cause(strong=["first"], weak=["second"]), d=cause(strong=["second"]))
    found = [shows("beside", 90), shows("first", 91), shows("second", 92), shows("down")]
    assert weights(answer(made, found)) == {"c": 8 * 2.5, "unknown": UNKNOWN_WEIGHT}


def test_two_looks_at_one_change_do_not_explain_each_other() -> None:
    """Signs of the same metric are one change, whichever began first."""
    made = graph(CHAIN, c=cause(strong=["second"]))
    grows, jumps = shows("first", 90), replace(shows("second", 92), metric="first")
    assert weights(answer(made, [grows, jumps, shows("down")]))["c"] == 8


def test_causes_that_cannot_lead_to_the_symptom_are_left_out() -> None:
    """However much of them shows."""
    made = graph(CHAIN | {"alone": sign()}, a=cause(decisive=["alone"]), b=cause(weak=["first"]))
    assert set(weights(answer(made, [shows("alone"), shows("first")]))) == {"b", "unknown"}
    # Without a sign of the symptom nothing can be said about that.
    assert set(weights(answer(made, [shows("alone"), shows("first")], ()))) == {"a", "b", "unknown"}


def test_a_cause_of_what_came_beside_the_episode_is_less_likely() -> None:
    """A cause whose signs lead to the symptoms of other episodes alone is divided, over signs that are absent too."""
    signs = {"near": sign("down"), "far": sign("later", "way"), "way": sign("down"), "later": sign(), "down": sign()}
    made = graph(signs, near=cause(strong=["near"]), far=cause(strong=["far"]))
    found = [shows("far", 92), shows("near", 98), shows("down"), shows("later", 103), without("way")]
    assert weights(answer(made, found, beside={"later"})) == {"near": 8, "far": 8 / 2.5, "unknown": UNKNOWN_WEIGHT}
    assert weights(answer(made, [*found[:-1], shows("way", 95)], beside={"later"}))["far"] == 8


def test_a_sign_that_follows_from_another_one_is_explained_away() -> None:
    """Only for causes that do not explain the first one; and only in order, and soon enough."""
    made = graph(CHAIN, root=cause(strong=["first"]), late=cause(strong=["second"]))
    said = answer(made, [shows("first", 90), shows("second", 95), shows("down")])
    assert weights(said) == {"root": 8, "unknown": UNKNOWN_WEIGHT}
    assert said.roots == ("first",)
    for at in (99, 50):  # behind it, or long before it
        said = answer(made, [shows("first", at), shows("second", 95), shows("down")])
        assert weights(said)["late"] == 8, at


def test_a_way_through_an_absent_sign_is_broken() -> None:
    """What leads to a sign only by one that is logged and does not show, does not explain it."""
    signs = {"a": sign("b"), "b": sign("c"), "c": sign("down"), "down": sign()}
    made = graph(signs, c=cause(strong=["c"]))
    assert "c" not in weights(answer(made, [shows("a", 90), shows("c", 95), shows("down")]))
    assert weights(answer(made, [shows("a", 90), without("b"), shows("c", 95), shows("down")]))["c"] == 8


def test_a_way_through_signs_that_are_not_known_is_short() -> None:
    """One sign of which nothing is known may lie on the way. Through two on end, all could be explained by all."""
    signs = {"a": sign("b"), "b": sign("c"), "c": sign("d"), "d": sign("down"), "down": sign()}
    made = graph(signs, c=cause(strong=["c"]), d=cause(strong=["d"]))
    assert "c" not in weights(answer(made, [shows("a", 90), shows("c", 95), shows("down")]))
    assert weights(answer(made, [shows("a", 90), shows("d", 95), shows("down")]))["d"] == 8
    assert "d" not in weights(answer(made, [shows("a", 90), shows("b", 92), shows("d", 95), shows("down")]))


def test_what_is_dated_to_the_step_explains_what_is_not() -> None:
    """A jump of a setting may come after the estimated onset of its effect, but not after that was surely there."""
    made = graph(CHAIN, late=cause(strong=["second"]))

    def found(sure: int, of_first: int) -> set[str]:
        first, second = shows("first", 92), shows("second", 82)
        signs = [replace(first, sure=of_first), replace(second, sure=sure), shows("down")]
        return set(weights(answer(made, signs)))

    assert found(95, 92) == {"unknown"}
    assert found(85, 92) == {"late", "unknown"}
    assert found(95, 99) == {"late", "unknown"}  # the first one is as vague


def test_the_lag_of_the_policy_extends_edges() -> None:
    """Where the trainer is 20 steps behind its generators, an effect may come 20 steps later."""
    made = graph(CHAIN, late=cause(strong=["second"]))
    found = [shows("first", 70), shows("second", 95), shows("down")]
    assert weights(answer(made, found))["late"] == 8
    assert "late" not in weights(answer(made, found, lag=20))


def test_what_began_after_the_symptom_does_not_cause_it() -> None:
    """It counts for nothing, but as a consequence it may."""
    made = graph(CHAIN, c=cause(strong=["first"], weak=["other"]))
    said = answer(made, [shows("first", 120, state=LATE), shows("other"), shows("down")])
    (one,) = [one for one in said.candidates if one.cause]
    assert one.weight == 2.5 and [found.part.sign for found in one.of("too late")] == ["first"]
    after = graph(CHAIN | {"down": sign("end"), "end": sign()}, c=cause(strong=["first"], weak=["end"]))
    assert weights(answer(after, [shows("first"), shows("end", 120, state=LATE), shows("down")]))["c"] == 20


def test_the_wrong_order_speaks_against_a_cause() -> None:
    """Its second sign began before the first one, by more than clocks can differ."""
    made = graph(CHAIN, c=cause(strong=["first", "second"]))
    right = answer(made, [shows("first", 90), shows("second", 92), shows("down")])
    wrong = answer(made, [shows("first", 97), shows("second", 92), shows("down")])
    near = answer(made, [shows("first", 94), shows("second", 92), shows("down")])
    assert (weights(right)["c"], weights(wrong)["c"], weights(near)["c"]) == (64, 64 / 2.5, 64)
    assert wrong.candidates[0].order == (("second", "first"),)


def test_signs_at_one_place_speak_for_a_cause() -> None:
    """One rank, or ranks of one host; two ranks of an actor, or two hosts, speak against it."""
    made = graph(CHAIN, c=cause(strong=["second", "other"]))

    def weight(one: str, two: str, **hosts: str) -> float:
        found = [shows("second", rank=one), shows("other", rank=two, actor="node")]
        return weights(answer(made, found, hosts={k.replace("__", "/0."): v for k, v in hosts.items()}))["c"] / 64

    assert weight("trainer/0.2", "trainer/0.2") == 2.5
    assert weight("trainer/0.2", "trainer/0.3") == 1 / 2.5
    assert weight("trainer/0.2", "node/0.1") == 1
    assert weight("trainer/0.2", "node/0.1", trainer__2="n1", node__1="n1") == 2.5
    assert weight("trainer/0.2", "node/0.1", trainer__2="n0", node__1="n1") == 1 / 2.5


def test_unknown_is_at_what_came_first() -> None:
    """The rank that stands out there, else the actor that logs it, else where such a change has its origin."""
    signs = {"up": sign("down", at="generator"), "down": sign()}
    made = graph(signs)

    def place(one: Evidence) -> str:
        (unknown,) = answer(made, [one, shows("down")], lead="trainer").candidates
        return unknown.place

    assert place(shows("up", 95, rank="rollout/1.0", actor="rollout")) == "rollout/1.0"
    assert place(shows("up", 95, actor="rollout")) == "rollout"
    assert place(shows("up", 95)) == "generator"  # the lead only logs it
    assert place(without("up")) == "trainer"


def test_a_cause_is_at_the_place_of_its_evidence() -> None:
    """Of the actor that it names, whatever the job calls that; for a machine the rank that runs there."""
    signs = {
        "slow": sign("down", at="generator"),
        "logged": sign("down"),
        "hot": sign("down", at="node"),
        "down": sign(),
    }
    made = graph(
        signs,
        a=cause(at="generator", strong=["slow", "logged"]),
        b=cause(at="node", strong=["hot", "logged"]),
        c=cause(weak=["logged"]),
        d=cause(at="reward", weak=["logged"]),
    )
    found = [
        shows("slow", actor="rollout", rank="rollout/2.0"),
        shows("logged", rank="trainer/0.3"),
        shows("hot", actor="node"),
    ]
    said = {one.cause.name: one.place for one in answer(made, found, lead="trainer").candidates if one.cause}
    assert said == {"a": "rollout/2.0", "b": "trainer/0.3", "c": "trainer/0.3", "d": "reward"}


def test_symptoms_are_the_signs_that_the_rule_saw() -> None:
    """Of the same metric in the same direction, and those that show if there are any."""
    made = graph_of()
    (rule,) = (one for one in rules_of() if one.name == "divergence")
    evidence = {name: without(name) for name in made.signs}
    one = Episode("divergence", "warning", FIRING, "", (0, 0, 0), *(Moment(1, 1.0),) * 3, None, (("entropy", 0.1),))
    assert set(symptoms_of(one, [rule], made, evidence)) == {"entropy_up", "entropy_down", "entropy_gone"}
    evidence["entropy_up"] = shows("entropy_up")
    assert symptoms_of(one, [rule], made, evidence) == ["entropy_up"]
    for rule in rules_of():
        odd = Episode(rule.name, "warning", FIRING, "", (0, 0, 0), *(Moment(1, 1.0),) * 3, None, ())
        assert symptoms_of(odd, [rule], made, evidence), f"no sign of the graph sees what {rule.name} does"


@pytest.mark.parametrize("others", [UNKNOWN, ABSENT])
@pytest.mark.parametrize("name", MADE.causes)
def test_a_cause_all_of_whose_signs_show_comes_first(name: str, others: str) -> None:
    """Of every cause that comes with rlship: its signs show in the order of the graph, no other sign does."""
    made = MADE
    signs = made.causes[name].shows
    depth = {one: sum(one in made.reach(other) and other not in made.reach(one) for other in signs) for one in signs}
    evidence = {one: without(one, others) for one in made.signs}
    for part in made.causes[name].evidence:
        evidence[part.sign] = shows(part.sign, 90 + 2 * depth[part.sign]) if part.wanted else without(part.sign)
    leads_down = any("reward_down" in made.reached[one] for one in signs)
    symptom = "reward_down" if leads_down else max(signs, key=lambda one: depth[one])
    evidence[symptom] = shows(symptom)
    first = rank(made, EPISODE, [symptom], evidence).candidates[0]
    assert first.cause is not None and first.cause.name == name


STATES = st.sampled_from([SHOWS, ABSENT, UNKNOWN, LATE, BEFORE])


@st.composite
def found(draw: st.DrawFn) -> dict[str, Evidence]:
    """Evidence of any signs of the packaged graph, at any time around the episode."""
    names = draw(st.lists(st.sampled_from(sorted(MADE.signs)), max_size=12, unique=True))
    said = {name: without(name, UNKNOWN) for name in MADE.signs}
    for name in names:
        state = draw(STATES)
        at = draw(st.integers(AT + 4, AT + 20) if state == LATE else st.integers(60, AT + 3))
        rank = draw(st.sampled_from(["", "trainer/0.1", "trainer/0.2", "generator/1.0"]))
        said[name] = without(name, state) if state in (ABSENT, UNKNOWN) else shows(name, at, state=state, rank=rank)
    return said


@given(found(), st.lists(st.sampled_from(sorted(MADE.signs)), max_size=3, unique=True))
def test_any_evidence_gives_one_ranking(evidence: dict[str, Evidence], symptoms: list[str]) -> None:
    """It is sorted, holds unknown once and causes with something that shows, whatever order evidence comes in."""
    said = rank(MADE, EPISODE, symptoms, evidence)
    order = [one.weight for one in said.candidates]
    assert order == sorted(order, reverse=True)
    assert sum(one.cause is None for one in said.candidates) == 1
    assert all(one.supporting for one in said.candidates if one.cause)
    other = rank(MADE, EPISODE, symptoms, dict(reversed(evidence.items())))
    assert weights(other) == weights(said)


@given(st.data(), st.sampled_from(sorted(MADE.causes)))
def test_more_evidence_for_a_cause_never_harms_it(data: st.DataObject, name: str) -> None:
    """A sign that shows makes it likelier than one that is not logged, and one that is absent less likely, as long as
    nothing else shows.
    """
    parts = MADE.causes[name].evidence
    part = data.draw(st.sampled_from([one for one in parts if one.wanted]))
    evidence = {one: without(one, UNKNOWN) for one in MADE.signs}
    for other in parts:
        state = data.draw(st.sampled_from([ABSENT, UNKNOWN, *([SHOWS] if other.wanted else [])]))
        evidence[other.sign] = shows(other.sign, 95) if state == SHOWS else without(other.sign, state)

    def weight(state: Evidence) -> float:
        return weights(rank(MADE, EPISODE, (), evidence | {part.sign: state})).get(name, 0.0)

    best, middle, least = weight(shows(part.sign, 95)), weight(without(part.sign, UNKNOWN)), weight(without(part.sign))
    assert best >= middle >= least
