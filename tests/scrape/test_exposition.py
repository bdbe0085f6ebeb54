"""Text in, plain data out, whatever the text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.scrape.connection import Deadline
from rlship_sidecar.scrape.exposition import LONGEST_LINE, MOST_SAMPLES, Family, NotMetrics, Sample, parse
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
    """Samples with their labels in order; NaN, infinities and numbers beyond all doubles are none."""
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


def test_series_are_bounded() -> None:
    """Neither too many series nor too long a line is read."""
    with pytest.raises(NotMetrics, match="more than 100000 series"):
        parse("\n".join(f"a{number} 1" for number in range(MOST_SAMPLES + 1)))
    with pytest.raises(NotMetrics, match="line 2 has"):
        parse(f'a 1\nb{{x="{"y" * LONGEST_LINE}"}} 1\n')


def test_reading_ends_in_time() -> None:
    """A page that is made to take long is given up at the deadline, label bombs as well."""
    bomb = "a{" + ",".join(f'l{number}="\\"\\""' for number in range(600)) + "} 1\n"
    assert len(bomb) < LONGEST_LINE
    deadline = Deadline(0.3)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        parse(bomb * 2000, check=lambda: deadline.left(1.0))
    assert time.monotonic() - began < 3


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "replace")), st.booleans())
def test_any_text_is_read_or_refused(text: str, openmetrics: bool) -> None:
    """Nothing but NotMetrics is raised, and every value is a finite number."""
    try:
        families = parse(text, openmetrics=openmetrics)
    except NotMetrics:
        return
    assert all(abs(sample.value) < float("inf") for family in families for sample in family.samples)


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
