"""What `rlship check` finds in the vectors of lines, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rlship.identity import detect
from rlship.logger import Logger
from rlship_formats.reading import KNOWN_KINDS
from rlship_sidecar.checking import syntax
from rlship_sidecar.checking.file import FileCheck
from rlship_sidecar.checking.finding import ERROR
from rlship_sidecar.checking.members import bad_value
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.schemas import Schemas
from tests.kit.cases import statistical
from tests.kit.files import barrier, file, log
from tests.spec.calling import play
from tests.spec.vectors import RecordCase, call_scripts, record_cases

CASES = record_cases()
SCRIPTS = call_scripts()
OPEN = (
    b'{"kind":"open","rlship":1,"id":"0123456789abcdef","actor":"a","t":1763600000,"host":"h","pid":1,"writer":"w"}\n'
)
T = b'"t":1763600001'


def findings(path: Path, *options: str) -> tuple[int, list[dict[str, object]]]:
    """The exit code and what `--json` prints."""
    done = CliRunner().invoke(rlship, ["check", "--json", *options, str(path)])
    return done.exit_code, [json.loads(line) for line in done.output.splitlines()]


def of(tmp_path: Path, *lines: bytes) -> list[dict[str, object]]:
    """What is found in a file that has these lines behind a good `open`."""
    path = tmp_path / "f.jsonl"
    path.write_bytes(OPEN + b"".join(line + b"\n" for line in lines))
    return findings(path)[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_errors_are_the_dead_letters_and_values_of_the_vectors(case: RecordCase, tmp_path: Path) -> None:
    """Every line and value that readers cannot use is an error at its line and byte, of its reason, with a why and a
    fix; nothing else is one, and the exit code says whether there are any.
    """
    path = tmp_path / "f.jsonl"
    path.write_bytes(case.data)
    code, found = findings(path)
    expected = []
    for number, said in enumerate(case.expected()["lines"], 1):
        dead = [[None, said["dead"]]] if "dead" in said else said.get("dead_values", [])
        expected += [(number, said["at"], what, metric) for metric, what in dead]
    errors = [one for one in found if one["level"] == ERROR]
    assert [(one["line"], one["at"], one["what"], one.get("metric")) for one in errors] == expected
    assert all(one["why"] and one["fix"] for one in found)
    assert code == (1 if expected else 0)


@pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if "reports" not in script])
def test_nothing_is_wrong_with_what_a_good_writer_writes(name: str, tmp_path: Path) -> None:
    """The records of every script of calls have no finding, not even a warning, but where the script itself goes on
    for a step that it has closed.
    """
    facts = dict(SCRIPTS[name]["open"])
    axis, labels, parent = facts.pop("axis", "global_step"), facts.pop("labels", None), facts.pop("parent", None)
    logger = Logger(str(tmp_path), detect(**facts, environ={}), axis=axis, labels=labels)
    logger.adopt(parent)
    logger.start()
    play(SCRIPTS[name], logger)
    logger.close()
    assert logger.path is not None
    assert findings(Path(logger.path), "--strict") == (0, [])


@pytest.mark.parametrize(
    ("line", "why", "column"),
    [
        (b'{"m":{"x":NaN}}', "NaN is not JSON", 11),
        (b'{"m":{"x":"NaN","y":-Infinity}}', "-Infinity is not JSON", 21),
        (b'{"m":{"x":1e400}}', '"1e400" is too large for a double', 11),
        (b'\xef\xbb\xbf{"m":{}}', "it begins with a byte order mark", 1),
        (b'{"m":{"\xff":1}}', "byte 0xff is not UTF-8", 8),
        (b'{"m":{"x":1}}{"m":{}}', 'something follows its object: "{\\"m\\":{}}"', 14),
        (b'{"m":{"x":1', "it is torn: it ends in the middle of a record", 12),
        (b'{"m":{"\\ud800":1}}', "\\ud800 is half a surrogate pair", 8),
        (b"hello", 'it does not begin with {: "hello"', 1),
        (b'12,"y":1}', 'it does not begin with {: "12,\\"y\\":1}"', 1),
        (b"{'m':{}}", "expecting property name enclosed in double quotes", 2),
        (b'{"m":\x00}', "it has NUL bytes", 6),
    ],
)
def test_it_says_where_a_line_is_no_json(line: bytes, why: str, column: int) -> None:
    """The byte at which a strict parser stops, and what stands there."""
    reason = syntax.not_json(line)
    assert (reason.why, reason.column) == (why, column)


def test_it_says_which_part_of_a_value_cannot_be_used() -> None:
    """An element, a weight, a member of a summary: each is named."""
    values = {
        'element 1 of its array is "x"': [1, "x"],
        "the weight 1 is -1": {"v": [1, 2], "w": [1, -1]},
        "`v` has 2 elements and `w` 1": {"v": [1, 2], "w": [1]},
        "`n` of the summary is 1.5": {"n": 1.5},
        "`m2` of the summary is -1, below 0": {"n": 1, "m2": -1},
        'its value is the text "x"': "x",
    }
    assert [bad_value("a", value).why for value in values.values()] == list(values)


def test_rules_that_readers_do_not_enforce_are_warnings(tmp_path: Path) -> None:
    """A step after its barrier, a record after `close`, a time in milliseconds, a name that stands twice, a tag that
    does, and an unknown kind.
    """
    found = of(
        tmp_path,
        b'{"t":1763600001000,"step":1,"m":{"x":1,"x":2}}',
        b'{"kind":"event",' + T + b',"step":2,"name":"step_tag","attrs":{"tag":"eval"}}',
        b'{"kind":"event",' + T + b',"step":2,"name":"step_tag","attrs":{"tag":"eval"}}',
        b'{"kind":"barrier",' + T + b',"step":2}',
        b"{" + T + b',"step":2,"m":{}}',
        b'{"kind":"rollback",' + T + b',"step":2}',
        b"{" + T + b',"step":2,"m":{}}',
        b'{"kind":"metrics",' + T + b',"step":3,"m":{}}',
        b'{"kind":"close",' + T + b"}",
        b"{" + T + b',"step":3,"m":{}}',
    )
    assert [(one["line"], one["what"]) for one in found] == [
        *((2, "duplicate name"), (2, "absurd time"), (4, "tag twice"), (6, "behind its barrier")),
        *((9, "unknown kind"), (11, "after close")),
    ]
    assert {one["level"] for one in found} == {"warning"}
    assert "it looks like milliseconds" in str(found[1]["why"])
    assert findings(tmp_path / "f.jsonl")[0] == 0
    assert findings(tmp_path / "f.jsonl", "--strict")[0] == 1


LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(0, 3), st.floats(), st.text("ab.é", max_size=3)),
    st.sampled_from(["NaN", "mean", "x", "step_tag"]),
)
NAMES = st.sampled_from(["m", "v", "w", "n", "x", "tag", "reduce", "sum", ""])
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
MEMBERS = st.sampled_from(
    [
        *("m", "t", "step", "name", "dur", "attrs", "table", "row", "pri", "score", "n", "from", "to", "offset"),
        *("err", "rlship", "id", "actor", "rank", "world", "beat", "reason"),
    ]
)
RECORDS = st.builds(
    lambda kind, members: kind | members,
    st.one_of(st.just({}), st.sampled_from(sorted({*KNOWN_KINDS, "other"})).map(lambda kind: {"kind": kind})),
    st.dictionaries(MEMBERS, ANYTHING, max_size=5),
)


@statistical(1000)
@given(st.lists(RECORDS.map(lambda record: json.dumps(record).encode()) | st.binary(max_size=20), max_size=6))
def test_no_line_is_too_odd_to_be_explained(lines: list[bytes]) -> None:
    """Whatever stands in a file, the errors are what the decoder cannot use, each with a why and a fix."""
    checked, decoder = FileCheck(), Decoder(Schemas())
    for line in [OPEN[:-1], *(line.replace(b"\n", b" ") for line in lines)]:
        batch = decoder.decode([line], [0], max_steps=1 << 62, last_step=1 << 62)
        found = [one for one in checked.line(line, 0) if one.level == ERROR]
        assert [(one.what, one.metric) for one in found] == [(dead.reason, dead.metric) for dead in batch.dead]
        assert all(one.why and one.fix for one in found)


def test_an_unfinished_line_and_an_empty_file_are_told(tmp_path: Path) -> None:
    """Bytes behind the last LF are no error: the writer may just be writing them."""
    path = tmp_path / "f.jsonl"
    path.write_bytes(OPEN + b'{"m"')
    (found,) = findings(path)[1]
    assert (found["line"], found["at"], found["what"], found["level"]) == (2, len(OPEN), "unfinished line", "warning")
    path.write_bytes(OPEN + bytes(9))
    (found,) = findings(path)[1]
    assert (found["what"], found["why"][:43]) == ("unfinished line", "9 bytes after the last LF hold NUL bytes: w")
    path.write_bytes(b"")
    assert [one["what"] for one in findings(path)[1]] == ["no line"]


def test_people_read_a_line_for_each_finding_and_how_to_put_it_right(tmp_path: Path) -> None:
    """File, line and column as compilers say it; of one thing at most twenty in a file, then how many more."""
    path = tmp_path / "f.jsonl"
    path.write_bytes(OPEN + b'{"m":{"x":NaN}}\n' * 25)
    done = CliRunner().invoke(rlship, ["check", str(path)])
    lines = done.output.splitlines()
    assert lines[:2] == [f"{path}:2:11: error: not JSON: NaN is not JSON", '    fix: write the string "NaN"']
    assert lines[-2:] == [
        f"{path}: and 5 more: not JSON (all of them: --json)",
        "1 file, 26 lines: 25 errors, 0 warnings",
    ]
    assert (done.exit_code, len(lines)) == (1, 42)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With what to give instead."""
    done = CliRunner().invoke(rlship, ["check", str(tmp_path / "none.jsonl")])
    assert done.exit_code == 1
    assert "none.jsonl cannot be read: No such file or directory" in done.output


def test_one_file_that_cannot_be_read_keeps_no_other_from_being_checked(tmp_path: Path) -> None:
    """It is named on stderr and counted, and so is a folder without files; the exit code is 1."""
    good, bad, empty = tmp_path / "good.jsonl", tmp_path / "bad.jsonl", tmp_path / "empty"
    good.write_bytes(file(log(0, loss=1), barrier(0)))
    bad.symlink_to(good)
    empty.mkdir()
    done = CliRunner().invoke(rlship, ["check", str(bad), str(empty), str(good)])
    assert done.exit_code == 1
    assert done.stdout.endswith("1 file, 3 lines: 0 errors, 4 warnings; 2 could not be checked\n")
    assert done.stderr.splitlines() == [
        f"Error: {bad} cannot be read: Too many levels of symbolic links",
        f"Error: {empty} holds no writers' files",
    ]
    folder = tmp_path / "run" / "rlship"
    folder.mkdir(parents=True)
    good.rename(folder / "good.jsonl")
    (folder / "bad.jsonl").symlink_to(folder / "good.jsonl")
    done = CliRunner().invoke(rlship, ["check", str(folder.parent)])
    assert done.exit_code == 1
    assert done.stdout.endswith("1 file, 3 lines: 0 errors, 4 warnings; 1 could not be checked\n")


@pytest.mark.parametrize("defined_first", [True, False])
def test_a_metric_under_the_key_of_a_reduction(tmp_path: Path, defined_first: bool) -> None:
    """It is found once, whether the define stands before or behind the metric; other metrics below one are not."""
    define = b'{"kind":"define","m":{"t":{"reduce":["mean","max"]},"u":{"reduce":"mean"}}}'
    log = b'{%b,"step":1,"m":{"t":5,"t/max":-9,"t/min":1,"u/max":2}}' % T
    (found,) = of(tmp_path, *((define, log, log) if defined_first else (log, define, log)))
    assert (found["level"], found["what"], found["line"]) == ("warning", "shared key", 3)
    assert found["why"] == '"t/max" is a metric and the key of the max of "t": rows have the metric alone'
