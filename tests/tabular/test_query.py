"""`rlship query`: what it answers, what it refuses, and what it says."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlship_sidecar.cli.group import rlship
from rlship_sidecar.cli.query import _lines
from rlship_sidecar.decode.lines import Dead
from rlship_sidecar.store.store import Changes
from rlship_sidecar.tabular.database import Answer
from tests.guards.tree import ROOT
from tests.kit.cases import long
from tests.kit.files import experiment as write_experiment
from tests.kit.files import file as written
from tests.kit.files import rollback
from tests.kit.verbs import run_here
from tests.kit.waiting import wait_until
from tests.reference.building import CLOSE, barrier, clock, event, file, log
from tests.tabular.stores import ODD, experiment, rich_rows, row, store


def run(*args: object, text: str | None = None) -> Result:
    return CliRunner().invoke(rlship, ["query", *map(str, args)], input=text)


def ask(sql: str, folder: Path) -> list[dict[str, Any]]:
    """The answer, as JSON has it."""
    result = run(sql, folder, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three experiments: one with rows of all kinds and records, one with a few rows, one that no sidecar watched."""
    folder = tmp_path_factory.mktemp("outputs")
    dead = [("a.jsonl", Dead(812, "not JSON", "{oops\x1b]0;x\x07")), ("a.jsonl", Dead(900, "bad value", "{}", "loss"))]
    experiment(folder / "grpo", rich_rows(), dead)
    lines = (log(7, loss=2**53 + 1), event(ODD, attrs={"bytes": 2**63}), barrier(7, 9.5), clock(0.25, 0.01, 8), CLOSE)
    (folder / "grpo" / "rlship" / "a.jsonl").write_bytes(file(*lines, host="n07", world=4, pid=2**63))
    experiment(folder / "ppo", [row(0), row(1, values={"trainer/loss": 9.0, "trainer/step": 1.0, "trainer/LOSS": 2.0})])
    (folder / "raw" / "rlship").mkdir(parents=True)
    (folder / "raw" / "rlship" / "b.jsonl").write_bytes(file(log(0, loss=1), id="b"))
    return folder


def test_final_rows_and_revisions(outputs: Path) -> None:
    """A table of rows has the last revision of each, with _all behind its name all of them."""
    last = ask("SELECT revision, value FROM figures WHERE step = 0 AND key = 'trainer/loss'", outputs / "grpo")
    every = ask("SELECT revision FROM figures_all WHERE step = 0 AND key = 'trainer/loss'", outputs / "grpo")
    assert last == [{"revision": 1, "value": 0.5}]
    assert every == [{"revision": 0}, {"revision": 1}]


def test_missing_is_null(outputs: Path) -> None:
    """A figure that a row has not is null, and so is not part of a mean."""
    told = ask("SELECT count(*) n, count(tokens) has, avg(tokens) = 2**60 AS same FROM trainer_steps", outputs / "grpo")
    assert told == [{"n": 4, "has": 1, "same": True}]


def test_tables_of_each_actor(outputs: Path) -> None:
    """Each actor's rows of a kind are a table with a column for each figure; the other tables are there too."""
    names = {one["name"] for one in ask("SHOW TABLES", outputs / "grpo")}
    assert {"trainer_steps", "generator_aligned", "generator_clock", "generator_points", "figures_all"} <= names
    assert ask('SELECT "tokens/rate" FROM generator_clock', outputs / "grpo") == [{"tokens/rate": 1 / 3}]
    assert ask("SELECT x FROM generator_points", outputs / "grpo") == [{"x": 0.0 + 2**53 - 1}]
    assert ask("SELECT x_2 FROM generator_points", outputs / "grpo") == [{"x_2": 1.0}]


def test_names_that_differ_by_case_or_are_taken(outputs: Path) -> None:
    """SQL knows no case: the second of two such columns has a number, as has one called like a fixed column."""
    told = ask("SELECT LOSS, loss_2, step, step_2 FROM trainer_steps ORDER BY row", outputs / "ppo")
    assert list(told[1].values()) == [2.0, 9.0, 1, 1.0]


def test_a_metric_called_like_a_fixed_column_is_named(outputs: Path) -> None:
    """On stderr, where a query names the fixed column alone; not where it names the metric's column, or neither."""
    asked = run("SELECT step, loss FROM trainer_steps", outputs / "ppo", "--csv")
    assert asked.stdout.startswith("step,LOSS\n") and asked.exit_code == 0
    assert asked.stderr == "step is the step of the row; the metric trainer/step is step_2\n"
    asked = run("SELECT STEP, x FROM generator_points WHERE x > 0", outputs / "grpo")
    assert asked.stderr == "x is the value of the axis; the metric point/generator/x is x_2\n"
    for sql in (
        "SELECT step, step_2 FROM trainer_steps",
        "SELECT t.loss FROM trainer_steps t",
        "SELECT step FROM rows",
    ):
        assert run(sql, outputs / "ppo").stderr == ""


def test_several_experiments(outputs: Path) -> None:
    """All experiments in a folder are in one table; one without a store has records, and its lack of rows is
    reported.
    """
    result = run("SELECT experiment, count(*) n FROM rows GROUP BY ALL ORDER BY ALL", outputs, "--csv")
    assert result.stdout == "experiment,n\ngrpo,7\nppo,2\n"
    assert result.stderr == "raw: no sidecar has watched it yet, so it has no rows\n"
    assert [one["experiment"] for one in ask("SELECT experiment FROM writers ORDER BY 1", outputs)] == ["grpo", "raw"]
    alone = run("SELECT * FROM rows", outputs / "raw")
    assert (alone.exit_code, "rlship watch --once" in alone.stderr) == (1, True)
    assert ask("SELECT value FROM observations", outputs / "raw") == [{"value": 1.0}]


def test_records(outputs: Path) -> None:
    """Records hold what the files do: JSON that can be asked, clocks, and who closed; an absurd pid is null."""
    assert ask("SELECT name, attrs->>'bytes' AS n, attrs FROM events", outputs / "grpo") == [
        {"name": ODD, "n": str(2**63), "attrs": {"bytes": 2**63}}
    ]
    assert ask(
        "SELECT b.t - c.offset_s - opened_t AS s FROM barriers b ASOF JOIN clocks c ON b.t >= c.t "
        "JOIN writers w ON w.file = b.file",
        outputs / "grpo",
    ) == [{"s": 9.25}]
    (writer,) = ask("SELECT closed, pid, world, last_step, last_barrier FROM writers", outputs / "grpo")
    assert writer == {"closed": "exit", "pid": None, "world": 4, "last_step": 7, "last_barrier": 7}


def test_configuration(tmp_path: Path) -> None:
    """Labels of a writer and attributes of its `config` events are lines of one table; labels are a column, too."""
    told = event("config", step=3, attrs={"lr": 0.1, "optimizer": {"name": "adam"}})
    files = (file(told, id="a", labels={"model": "7b"}, job="j"), file(id="b", rank=1, labels={"model": "1b"}))
    (tmp_path / "rlship").mkdir()
    for number, data in enumerate(files):
        (tmp_path / "rlship" / f"{number}.jsonl").write_bytes(data)
    assert ask("SELECT rank, step, source, key, value FROM config ORDER BY rank, key DESC", tmp_path) == [
        {"rank": 0, "step": 3, "source": "event", "key": "optimizer", "value": {"name": "adam"}},
        {"rank": 0, "step": None, "source": "label", "key": "model", "value": "7b"},
        {"rank": 0, "step": 3, "source": "event", "key": "lr", "value": 0.1},
        {"rank": 1, "step": None, "source": "label", "key": "model", "value": "1b"},
    ]
    assert ask("SELECT labels, job FROM writers ORDER BY rank", tmp_path) == [
        {"labels": {"model": "7b"}, "job": "j"},
        {"labels": {"model": "1b"}, "job": None},
    ]


def test_dead_letters(outputs: Path) -> None:
    """Lines and values that could not be used are there with where and why."""
    told = ask("SELECT byte, metric, reason FROM dead_letters ORDER BY byte", outputs / "grpo")
    assert told == [
        {"byte": 812, "metric": None, "reason": "not JSON"},
        {"byte": 900, "metric": "loss", "reason": "bad value"},
    ]
    assert ask("SELECT of, count FROM dead_counts ORDER BY of", outputs / "grpo") == [
        {"of": "line", "count": 1},
        {"of": "value", "count": 1},
    ]


def test_exact_answers(outputs: Path) -> None:
    """Large integers, what is not finite, decimals, lists, times and columns of one name survive in JSON and CSV."""
    sql = (
        "SELECT (2::HUGEINT << 90) + 1 AS big, 'nan'::DOUBLE AS nan, 0.5 AS half, [1, NULL] AS list, 1 AS a, 2 AS a, "
        "to_timestamp(1.5) AS at, '' AS empty, NULL AS none"
    )
    (told,) = ask(sql, outputs / "ppo")
    assert told == {
        "big": 2**91 + 1,
        "nan": "NaN",
        "half": 0.5,
        "list": [1, None],
        "a": 1,
        "a_2": 2,
        "at": "1970-01-01 00:00:01.500000+00:00",
        "empty": "",
        "none": None,
    }
    line = run(sql, outputs / "ppo", "--csv").stdout.splitlines()[1]
    assert next(csv.reader(io.StringIO(line))) == [
        str(2**91 + 1), "NaN", "0.5", "[1, null]", "1", "2", "1970-01-01 00:00:01.500000+00:00", "", ""
    ]  # fmt: skip
    assert line.endswith(',"",')


def test_a_table_for_people(outputs: Path) -> None:
    """Without --json and --csv columns are aligned, and nothing in names and texts can move the cursor."""
    result = run("SELECT byte, excerpt FROM dead_letters ORDER BY byte", outputs / "grpo")
    assert result.stdout == "byte  excerpt\n 812  {oops\\x1b]0;x\\x07\n 900  {}\n"
    odd = run("SELECT name FROM events", outputs / "grpo").stdout
    assert "\x1b" not in odd
    assert odd.splitlines()[1] == 'a "b", c\\n=é\\x1b[31m'


def test_a_question_from_standard_input(outputs: Path) -> None:
    """- reads the question from standard input."""
    assert run("-", outputs / "ppo", "--csv", text="SELECT count(*) AS n\nFROM rows;\n").stdout == "n\n2\n"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_parquet('https://127.0.0.1:1/x.parquet')",
        "SELECT * FROM sqlite_scan('{file}', 'rows')",
        "SELECT * FROM sources",
        "COPY rows TO '{folder}/stolen.csv'",
        "EXPORT DATABASE '{folder}/stolen'",
        "ATTACH '{folder}/stolen.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "CALL pragma_version()",
        "CREATE TABLE stolen AS SELECT 1",
        "INSERT INTO rows SELECT * FROM rows",
        "UPDATE figures SET value = 0",
        "DELETE FROM rows",
        "DROP TABLE rows",
        "SELECT 1; SELECT 2",
        "SELECT getenv('HOME')",
        "",
    ],
)
def test_a_question_only_reads_the_tables(outputs: Path, tmp_path: Path, sql: str) -> None:
    """No file, network, extension, setting or variable is in reach, nothing is written, and the exit code is 2."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\nhidden,1\n")
    result = run(sql.format(file=secret, folder=tmp_path), outputs / "ppo")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "hidden" not in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["secret.csv"]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT * FROM figurs", "there is no table figurs\n  did you mean figures"),
        ("SELECT * FROM trainer", "there is no table trainer\n  did you mean trainer_steps"),
        ("SELECT vlaue FROM figures", "did you mean value"),
        ("SELECT los FROM trainer_steps", "did you mean loss"),
        ("SELECT step FROM trainer_steps WHERE lives > 1", "rows, rows_all have it"),
        ("SELECT f.los FROM trainer_steps f", "did you mean loss"),
        ("SELECT nope FROM dead_counts", "dead_counts has experiment, file, reason, of, count, byte, excerpt"),
        ("SELECT zzz FROM writers JOIN rows USING (actor)", "columns: DESCRIBE rows or writers"),
        ("SELECT * FROM figures WHERE", "syntax error"),
        ("CREATE TABLE x (y INT)", "a query only reads, and this is CREATE"),
        ("SELECT 1; SELECT 2", "a query is one statement, and these are 2"),
        ("PIVOT figures ON key USING first(value)", "PIVOT … ON key IN ('trainer/loss'"),
    ],
)
def test_helpful_errors(outputs: Path, sql: str, told: str) -> None:
    """A question that cannot be answered says what is wrong with it, and names that are near."""
    result = run(sql, outputs / "ppo")
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT step, barrier/spread_s FROM trainer_steps", 'double quotes: "barrier/spread_s"'),
        ("SELECT t.Barrier/Spread_S FROM trainer_steps t", 'double quotes: "barrier/spread_s"'),
        ("SELECT loss/ranks/max FROM trainer_steps", 'double quotes: "loss/ranks/max"'),
        ("SELECT barrier/spread FROM trainer_steps", 'did you mean "barrier/spread_s"?'),
        ('SELECT "barrier/spread" FROM trainer_steps', 'did you mean "barrier/spread_s"?'),
        ("SELECT last_barier FROM writers", "did you mean last_barrier?"),
    ],
)
def test_a_column_that_needs_quotes(tmp_path: Path, sql: str, told: str) -> None:
    """SQL divides at the slash of a metric's name, so the way out names the column in double quotes."""
    values = {"trainer/barrier/spread_s": 0.5, "trainer/loss": 1.0, "trainer/loss/ranks/max": 2.0}
    job = experiment(tmp_path / "job", [row(0, values=values)])
    (job / "rlship" / "r0.jsonl").write_bytes(file(barrier(0, 1.0)))
    result = run(sql, job)
    assert result.exit_code == 2
    assert told in result.stderr


def test_the_order_of_arguments(outputs: Path) -> None:
    """The folder may stand before the question or behind it; without a question the order is said."""
    first, last, neither = run(outputs, "SELECT 1"), run("SELECT 1", outputs), run(outputs)
    assert (first.exit_code, first.stdout) == (last.exit_code, last.stdout) == (0, last.stdout)
    assert neither.exit_code == 2
    assert "rlship query DIR SQL" in neither.stderr


@pytest.mark.parametrize("package", ["duckdb", "pyarrow", "pytz"])
def test_without_its_packages(outputs: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Where a package is missing the answer is the command that installs it, with exit code 2."""
    monkeypatch.setitem(sys.modules, package, None)
    result = run("SELECT 1", outputs)
    assert result.exit_code == 2
    assert f"package {package}" in result.stderr
    assert f"{sys.executable} -m pip install duckdb pyarrow pytz" in result.stderr


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, the others are answered from, and the exit code is 3."""
    folder = tmp_path / "grpo"
    (folder / "rlship").mkdir(parents=True)
    for name in "ab":
        (folder / "rlship" / f"{name}.jsonl").write_bytes(file(log(0, loss=1), id=name))
    before = os.open

    def refusing(path: Any, *more: Any, **named: Any) -> int:
        if os.fspath(path).endswith("b.jsonl"):
            raise PermissionError(13, "Permission denied", path)
        return before(path, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    result = run("SELECT count(*) AS n FROM observations", folder, "--csv")
    assert (result.exit_code, result.stdout) == (3, "n\n1\n")
    assert result.stderr == "grpo/b.jsonl cannot be read: Permission denied\n"


def test_stores_that_cannot_be_read(tmp_path: Path) -> None:
    """Where of several experiments one has a store of another version, one no store at all in its place, and one a row
    that is not one, they are named, the others are answered from, and the exit code is 3. Alone each is an error.
    """
    experiment(tmp_path / "good", [row(0), row(1)])
    experiment(tmp_path / "zoo", [row(0)])
    (experiment(tmp_path / "burnt", [row(0)]) / "rlship" / "state" / "store.3.db").write_bytes(b"\xff" * 9999)
    cut = experiment(tmp_path / "cut", [row(no, values={"trainer/loss": 0.5, "n" * 500: 1.0}) for no in range(999)])
    whole = (cut / "rlship" / "state" / "store.3.db").read_bytes()
    spoilt = whole.replace(b'"trainer/loss":0.5', b'"trainer/loss":0,5')
    assert spoilt != whole
    (cut / "rlship" / "state" / "store.3.db").write_bytes(spoilt)
    made = store(tmp_path / "old")
    made.change("update meta set value = '1' where key = 'version'")
    made.commit(Changes())
    made.close()
    (tmp_path / "old" / "rlship" / "b.jsonl").write_bytes(file(log(0, loss=1), id="b"))

    result = run("SELECT experiment, count(*) AS n FROM rows GROUP BY ALL ORDER BY ALL", tmp_path, "--csv")
    assert (result.exit_code, result.stdout) == (3, "experiment,n\ngood,2\nzoo,1\n")
    told = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in told] == ["burnt", "cut", "old"]
    assert "version 1," in told[2] and "row 0 cannot be decoded" in told[1] and "cannot be read" in told[0]
    assert all(line.endswith("not in the answer") for line in told)
    steps = run("SELECT experiment, step FROM trainer_steps ORDER BY ALL", tmp_path, "--csv")
    assert (steps.exit_code, steps.stdout) == (3, "experiment,step\ngood,0\ngood,1\nzoo,0\n")
    records = run("SELECT experiment, value FROM observations", tmp_path, "--csv")
    assert (records.exit_code, records.stdout) == (3, "experiment,value\nold,1.0\n")
    for name in ("burnt", "cut", "old"):
        alone = run("SELECT count(*) FROM rows", tmp_path / name)
        assert (alone.exit_code, alone.stdout) == (1, ""), name
    for name in ("good", "zoo", "cut"):
        shutil.rmtree(tmp_path / name)
    unread = run("SELECT count(*) FROM rows", tmp_path)
    assert (unread.exit_code, unread.stdout) == (1, "")
    assert "burnt" in unread.stderr and "cannot be read" in unread.stderr and "replay" in unread.stderr


def test_actors_with_odd_names(tmp_path: Path) -> None:
    """An actor of any name has its table, under that name in double quotes."""
    folder = experiment(tmp_path / "odd", [row(0, actor='a"b; DROP')])
    assert ask('SELECT loss FROM "a""b; DROP_steps"', folder) == [{"loss": 0.1}]


def test_the_name_of_an_experiment(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of its folder, however the folder was named."""
    monkeypatch.chdir(outputs / "ppo" / "rlship")
    assert ask("SELECT DISTINCT experiment FROM rows", Path("..")) == [{"experiment": "ppo"}]


def test_json_has_no_infinity(outputs: Path) -> None:
    """A number of a JSON value that no double can hold is a text, so that each line is JSON."""
    result = run("SELECT '[1e999, -1e999]'::JSON AS x", outputs / "ppo", "--json")
    assert result.stdout == '{"x": ["Infinity", "-Infinity"]}\n'


def test_no_form_of_an_answer_moves_a_cursor(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON spells out DEL, C1 and marks that turn text around; CSV all that is not printable, only on a terminal."""
    text = "\x9b31m\x7f\x1b\u061c\u200e\u200f\u2028\u202a\u202e\u2066\u2069é"
    sql = f"SELECT {' || '.join(f'chr({ord(one)})' for one in text)} AS x"
    written = run(sql, outputs / "ppo", "--json").stdout
    assert written.strip().isprintable() and json.loads(written) == {"x": text}
    assert run(sql, outputs / "ppo", "--csv").stdout == f"x\n{text}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert list(_lines(Answer(["x"], [False], iter([(text,)])), as_json=False, as_csv=True)) == [
        "x",
        "\\x9b31m\\x7f\\x1b\\u061c\\u200e\\u200f\\u2028\\u202a\\u202e\\u2066\\u2069é",
    ]


@pytest.mark.long
def test_memory_is_bounded(tmp_path: Path) -> None:
    """A question about 400,000 figures is answered in little more memory than --memory says."""
    folder = experiment(
        tmp_path / "big", (row(no, values={f"trainer/m{i}": i + 0.5 for i in range(20)}) for no in range(20_000))
    )
    code = (
        "import sys; from rlship.__main__ import main\n"
        f"sys.argv = ['rlship', 'query', 'SELECT count(*), sum(value) FROM figures', {str(folder)!r}, '--csv', "
        "'--memory', '100MB']\n"
        # Not ru_maxrss, which remembers what the process that started this one had in memory.
        "try:\n    main()\n"
        "finally:\n    print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110)
    assert done.stdout.splitlines()[1] == "400000,4000000.0"
    assert int(done.stderr.split()[-1]) < 400_000  # KiB, of which the packages alone are about half


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 1), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_a_question_can_be_stopped(outputs: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C and SIGTERM end a question that would go on for ever, and its temporary files are gone."""
    sql = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r"
    # A shell's background jobs, and so perhaps these tests, ignore SIGINT.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from rlship.__main__ import main"
    )
    arguments = f"import sys; sys.argv = ['rlship', 'query', {sql!r}, {str(outputs / 'ppo')!r}]"
    asking = subprocess.Popen(
        [sys.executable, "-c", f"{program}\n{arguments}\nmain()"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: list(tmp_path.glob("rlship-query-*/tables.db")), "the tables are being made")
        time.sleep(0.5)  # so that the question itself is struck; that it has begun shows nowhere
        asking.send_signal(number)
        assert asking.wait(30) == code
    finally:
        asking.kill()
        asking.wait()
    assert list(tmp_path.iterdir()) == []


ENDLESS = "with recursive n(no) as (select 0 union all select no + 1 from n) select no, '' as body from n"


def spoil_store(folder: Path, *statements: str) -> Path:
    """Run SQL on the store of an experiment with one row."""
    path = experiment(folder, [row(0)]) / "rlship" / "state" / "store.3.db"
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return folder


def run_apart(*args: object) -> subprocess.CompletedProcess[str]:
    """A verb in a process of its own, which may take 20 s: one that hangs or fills memory fails alone."""
    command = [sys.executable, "-m", "rlship", *map(str, args)]
    limited = "ulimit -v 4000000; exec " + shlex.join(command)
    return subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=20, cwd=ROOT)


QUERY = ("query", "SELECT * FROM rows")
EXPORT = ("export", "--table", "rows", "--format", "csv", "-o", "-")
VERBS = pytest.mark.parametrize("verb", [QUERY, EXPORT], ids=["query", "export"])


@VERBS
@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (("drop table rows", f"create view rows as {ENDLESS}"), "the view rows"),
        pytest.param(("drop table units", f"create view units as {ENDLESS}"), "the view units", marks=pytest.mark.long),
        pytest.param(
            ("drop table meta", f"create view meta as select 'version' as key, no as value from ({ENDLESS})"),
            "view meta",
            marks=pytest.mark.long,
        ),
        (("create trigger t after insert on rows begin delete from rows; end",), "the trigger t"),
        pytest.param(("create table more (x)",), "the table more", marks=pytest.mark.long),
    ],
    ids=["rows", "units", "meta", "trigger", "table"],
)
def test_a_store_that_no_sidecar_made(
    tmp_path: Path, verb: tuple[str, ...], statements: tuple[str, ...], said: str
) -> None:
    """A view in place of a table could answer without end: only the tables of the schema are asked."""
    done = run_apart(*verb, spoil_store(tmp_path, *statements))
    assert done.returncode == 1, done.stdout
    assert "was not made by a sidecar" in done.stderr
    assert said in done.stderr


@VERBS
@pytest.mark.parametrize("no", [2**62, *long(2**33, -7)])
def test_numbers_are_bounded_by_the_file(tmp_path: Path, verb: tuple[str, ...], no: int) -> None:
    """A row's number says nothing about how many rows there are."""
    folder = spoil_store(tmp_path, f"update rows set no = {no}", f"update units set no = {no}")
    done = run_apart(*verb, folder)
    assert done.returncode == 1, done.stdout
    assert "cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


@VERBS
@pytest.mark.parametrize("where", ["rlship/state", "rlship/state/store.3.db", "rlship/state/store.3.db-wal"])
def test_links_are_not_followed(tmp_path: Path, verb: tuple[str, ...], where: str) -> None:
    """The store of another experiment is not read through a link, whatever on the way is one."""
    mine, other = experiment(tmp_path / "mine", [row(0)]), experiment(tmp_path / "other", [row(0)])
    if (mine / where).exists():
        os.rename(mine / where, tmp_path / "aside")
    (mine / where).symlink_to(other / where)
    done = run_here(*verb, mine, cwd=ROOT, env=os.environ)
    assert done.returncode == 1, done.stdout
    assert "is a link" in done.stderr


@pytest.mark.parametrize("verb", [QUERY, EXPORT, ("status",)], ids=["query", "export", "status"])
@pytest.mark.parametrize("name", ["store.4.db", "store.3.db-wal", "store.3.db-journal"])
def test_a_fifo_is_not_waited_for(tmp_path: Path, verb: tuple[str, ...], name: str) -> None:
    """No verb opens what is no regular file."""
    os.mkfifo(experiment(tmp_path, [row(0)]) / "rlship" / "state" / name)
    done = run_here(*verb, tmp_path, cwd=ROOT, env=os.environ)
    assert done.returncode == 1, done.stdout
    assert f"{name} is no regular file" in done.stderr


@VERBS
def test_the_state_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]) -> None:
    """It is refused as `watch` refuses it, unless the user names the folder where the sidecar keeps the state."""
    made = experiment(tmp_path / "job", [row(0)])
    elsewhere = tmp_path / "states" / "job"
    shutil.copytree(made / "rlship" / "state", elsewhere)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setattr("rlship_sidecar.ownership.place._our_uid", lambda folder: 12345)
    monkeypatch.setattr("rlship_sidecar.ownership.place._TRUSTED", ())
    refused = CliRunner().invoke(rlship, [*verb, str(made)])
    assert refused.exit_code == 1
    assert "belongs to another user" in refused.stderr
    assert "sudo -u" in refused.stderr
    assert CliRunner().invoke(rlship, [*verb, str(made), "--state-dir", str(elsewhere.parent)]).exit_code == 0


def test_of_several_experiments_a_planted_store_is_left_out(tmp_path: Path) -> None:
    """The others answer; the exit code says that one is missing."""
    experiment(tmp_path / "good", [row(0)])
    spoil_store(tmp_path / "bad", "drop table rows", f"create view rows as {ENDLESS}")
    done = run_apart("query", "SELECT count(*) n FROM rows", tmp_path, "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout) == {"n": 1}
    assert "bad: the store" in done.stderr


def test_what_a_barrier_adopts_has_its_step(tmp_path: Path) -> None:
    """Records before the first barrier are of its step in tables of records, as in rows, and so for --step; what is
    without a step on purpose has none, nor what follows.
    """
    lines = (
        {"t": 100.0, "m": {"early": 1.0}},
        {"kind": "span", "t": 100.0, "dur": 2.0, "name": "first"},
        {"kind": "event", "t": 101.0, "name": "began"},
        {"kind": "sample", "t": 101.0, "table": "tries", "pri": 0.5, "row": {"x": 1}},
        {"t": 102.0, "m": {"apart": 1.0}, "stream": True},
        {"kind": "barrier", "step": 4, "adopts": True, "t": 110.0},
        {"t": 111.0, "m": {"late": 1.0}},
        {"kind": "barrier", "step": 5, "adopts": True, "t": 120.0},
    )
    write_experiment(
        tmp_path, {"a.jsonl": written(*lines), "b.jsonl": written(*lines[:2], rollback(0), lines[5], id="b")}
    )
    told = ask("SELECT file[1:1] AS of, metric, step FROM observations ORDER BY file, metric", tmp_path)
    assert [tuple(one.values()) for one in told] == [
        ("a", "apart", None),
        ("a", "early", 4),
        ("a", "late", None),
        ("b", "early", None),
    ]
    for table, name in (("spans", "first"), ("events", "began"), ("samples", "tries")):
        told = ask(f"SELECT name, step FROM {table} WHERE file = 'a.jsonl' AND step = 4", tmp_path)
        assert told == [{"name": name, "step": 4}]
        if table != "samples":
            done = CliRunner().invoke(
                rlship, ["export", "--table", table, "--step=4", "-o", "-", "--format", "csv", str(tmp_path)]
            )
            assert (done.exit_code, done.stdout.count(name)) == (0, 1), done.stderr
    done = CliRunner().invoke(rlship, ["export", "--samples", "tries", "--step", "4", "-o", "-", str(tmp_path)])
    assert [json.loads(line)["step"] for line in done.stdout.splitlines()] == [4], done.stderr
