"""Text in, plain data out, whatever the text."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_agents.scrape import exposition
from rlship_agents.scrape.connection import Deadline
from rlship_agents.scrape.exposition import (
    MAX_LINE,
    MAX_SAMPLES,
    Family,
    Memory,
    NotMetrics,
    Sample,
    parse,
)
from tests.scrape.pages import Page

TEXT = """\
# HELP a_total What it is.
# TYPE a_total counter
a_total{x="1",b="\\"q\\" \\\\ \\n"} 5.0
# TYPE t histogram
t_bucket{le="+Inf"} 3
t_count 3
t_sum 1e-3
plain 7 1395066363000
# TYPE n gauge
n{k="nan"} NaN
n{k="inf"} +Inf
n{k="big"} 1e400
n{k="fine"} -2.5
"""


def test_the_text_format() -> None:
    """Samples with their labels in order; NaN, infinities and numbers beyond all doubles are left out."""
    assert parse(TEXT) == [
        Family("a", "counter", (Sample("a_total", (("b", '"q" \\ \n'), ("x", "1")), 5.0),)),
        Family(
            "t",
            "histogram",
            (Sample("t_bucket", (("le", "+Inf"),), 3.0), Sample("t_count", (), 3.0), Sample("t_sum", (), 0.001)),
        ),
        Family("plain", "unknown", (Sample("plain", (), 7.0),)),
        Family("n", "gauge", (Sample("n", (("k", "fine"),), -2.5),)),
    ]


def test_openmetrics() -> None:
    """The stricter format is read by its own rules, exemplars and creation times too."""
    text = '# TYPE a counter\n# UNIT a \na_total{x="1"} 5 # {id="7"} 1.0\na_created{x="1"} 1.5e9\n# EOF\n'
    assert parse(text, openmetrics=True) == [
        Family(
            "a",
            "counter",
            (Sample("a_total", (("x", "1"),), 5.0), Sample("a_created", (("x", "1"),), 1.5e9)),
        )
    ]


def test_only_what_is_wanted_is_read() -> None:
    """Lines of other names are passed over, but for the first one, which shows whether this is metrics text."""
    wanted = [family.name for family in parse(TEXT, wanted=lambda name: name.startswith("t"))]
    assert wanted == ["t"]
    with pytest.raises(NotMetrics):
        parse("no metrics here\n" + TEXT, wanted=lambda name: name.startswith("t"))


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE html>\n<html><body>404</body></html>",
        '{"detail":"Not Found"}',
        "Internal Server Error",
        "a 1\nb{x=1} 2\n",
        "a one\n",
        "a{x='1'} 1\n",
        "# TYPE a\n",
        "\x00\x01\x02",
    ],
)
def test_what_is_no_exposition_is_told(text: str) -> None:
    """Pages, JSON, and lines that are damaged are refused whole, as half an answer would look like less work done."""
    with pytest.raises(NotMetrics):
        parse(text)


def test_nothing_is_an_exposition() -> None:
    """An exporter that has nothing to say says nothing."""
    assert parse("") == parse("\n\n") == parse("# a comment\n") == []


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither too many series nor too long a line is read."""
    assert MAX_SAMPLES == 100_000
    monkeypatch.setattr(exposition, "MAX_SAMPLES", 1000)
    for page in ("\n".join(f"a{number} 1" for number in range(1001)), "# TYPE a gauge\n" + "a 1\n" * 1001):
        with pytest.raises(NotMetrics, match="more than 1000 series"):
            parse(page)
    with pytest.raises(NotMetrics, match="line 2 has"):
        parse(f'a 1\nb{{x="{"y" * MAX_LINE}"}} 1\n')


def test_reading_ends_in_time() -> None:
    """A page that is made to take long is given up at the deadline, label bombs as well."""
    bomb = "a{" + ",".join(f'l{number}="\\"\\""' for number in range(600))
    assert len(bomb) < MAX_LINE - 20
    deadline = Deadline(0.3)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        parse("".join(f'{bomb},n="{number}"}} 1\n' for number in range(2000)), check=lambda: deadline.left(1.0))
    assert time.monotonic() - began < 3


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "replace")), st.booleans())
def test_any_text_is_read_or_refused(text: str, openmetrics: bool) -> None:
    """Nothing but NotMetrics is raised, and every value is a finite number."""
    try:
        families = parse(text, openmetrics=openmetrics)
    except NotMetrics:
        return
    assert all(abs(sample.value) < float("inf") for family in families for sample in family.samples)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Series that are others at each look do not pile up."""
    monkeypatch.setattr(exposition, "MAX_REMEMBERED", 20_000)
    memory = Memory()
    for look in range(30):
        parse("".join(f'a{{x="{look}-{number}"}} 1\n' for number in range(10)), memory=memory)
        assert 0 < len(memory.series) <= 100


def test_a_page_is_parsed_once() -> None:
    """Of a page that was met before only the values are read: hundreds of lines in a fraction of the time, equal."""
    pages = [Page(1.0) for _ in range(3)]
    for number, page in enumerate(pages):
        for engine in range(8):
            page.engine(engine, time_to_first_token_seconds={str(b): number + b for b in range(50)})
    memory = Memory()
    assert parse(pages[0].text(), memory=memory) == parse(pages[0].text())

    def took(**options: Any) -> float:
        began = time.thread_time()
        parse(pages[1].text(), **options)
        return time.thread_time() - began

    assert min(took(memory=memory) for _ in range(3)) < min(took() for _ in range(3)) / 2
    assert parse(pages[2].text(), memory=memory) == parse(pages[2].text())


lines = st.lists(
    st.sampled_from(
        [
            "# TYPE a counter",
            "# TYPE a gauge",
            "# TYPE h histogram",
            "# HELP a Help.",
            " # TYPE a gauge",
            "a 1",
            "a 2 3",
            'a{x="1"} 2',
            'a{x="1"} NaN',
            'a{x="} 1"} 1e400',
            'a{x="1"}  7',
            "a_total 3",
            'h_bucket{le="+Inf"} 4',
            "h_sum 0.5",
            "h_count\t4",
            "b\u2028c 1",
            "",
        ]
    ),
    max_size=12,
)


@given(st.lists(lines, min_size=1, max_size=4))
def test_memory_changes_no_value(pages: list[list[str]]) -> None:
    """Whatever pages came before, a page's samples are those that it has for one who never saw another; it is refused
    if it is then.
    """
    memory = Memory()
    for page in pages:
        text = "\n".join(page)
        found = []
        for kept in (None, memory):
            try:
                samples = [sample for family in parse(text, memory=kept) for sample in family.samples]
            except NotMetrics:
                samples = None
            # Whether a stray line ends a family before is the one thing in which they may differ.
            named = {(one.name.removesuffix("_total"), one.labels, one.value) for one in samples or ()}
            found.append((samples is None, named))
        assert found[0] == found[1]


names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda n: not n.endswith(("_total", "_created")))
label_values = st.text(st.characters(blacklist_characters='"\\\n\r', blacklist_categories=("Cs", "Cc", "Zl", "Zp")))


@given(st.dictionaries(names, st.tuples(st.floats(allow_nan=False, allow_infinity=False), label_values), min_size=1))
def test_what_is_written_is_read(series: dict[str, tuple[float, str]]) -> None:
    """Every series of a page comes back with its label and the bits of its value."""
    page = Page()
    for name, (value, text) in series.items():
        page.gauge(name, value, label=text)
    found = {family.name: (family.samples[0].value, family.samples[0].labels) for family in parse(page.text())}
    assert found == {name: (value, (("label", text),)) for name, (value, text) in series.items()}
