"""The bytes that the writer puts into a file, pinned."""

from __future__ import annotations

import os
from pathlib import Path

import rlship
from rlship.identity import pid_space
from tests.writer.reading import NOW, files, lines, logger_at


def test_every_kind_of_line_is_written_as_the_format_says(tmp_path: Path) -> None:
    """One run through the API gives exactly these lines."""
    logger = logger_at(tmp_path, rank=3, world=8, attempt=1, labels={"gpu": "3"})
    logger.log({"loss": 0.5, "tokens": 12, "ok": True}, step=12)
    logger.define({"loss": "mean", "busy_s": {"reduce": ["max", "mean"], "unit": "s", "per_rank": True}})
    logger.log({"lengths": [311, 1024], "kl": {"v": [0.1, 0.3], "w": [512, 80]}, "r": {"n": 32, "sum": 7.25}}, step=12)
    logger.log({"bad": float("nan"), "up": float("inf"), "down": float("-inf"), "none": None}, step=12)
    logger.log({"größe": 1.5})
    logger.barrier(12)
    logger.rollback(10)
    logger.close()
    (path,) = files(tmp_path)
    assert path.name == f"trainer-0-r3-n07-{os.getpid()}-{logger.id}.jsonl"
    assert lines(tmp_path) == [
        f'{{"kind":"open","rlship":1,"id":"{logger.id}","actor":"trainer","replica":"0","rank":3,"world":8,"attempt":1,'
        f'"axis":"global_step","beat":10,"host":"n07","pid":{os.getpid()},'
        f'"pid_space":"{pid_space()}","t":1763600000.125,"writer":"python/{rlship.__version__}","labels":{{"gpu":"3"}}}}',
        '{"t":1763600000.125,"step":12,"m":{"loss":0.5,"tokens":12,"ok":1}}',
        '{"kind":"define","m":{"loss":{"reduce":"mean"},"busy_s":{"reduce":["max","mean"],"unit":"s","per_rank":true}}}',
        '{"t":1763600000.125,"step":12,"m":{"lengths":[311,1024],"kl":{"v":[0.1,0.3],"w":[512,80]},'
        '"r":{"n":32,"sum":7.25}}}',
        '{"t":1763600000.125,"step":12,"m":{"bad":"NaN","up":"Infinity","down":"-Infinity","none":null}}',
        '{"t":1763600000.125,"step":12,"m":{"größe":1.5}}',
        '{"kind":"barrier","step":12,"t":1763600000.125}',
        '{"kind":"rollback","step":10,"t":1763600000.125}',
        '{"kind":"close","t":1763600000.125,"reason":"exit"}',
    ]


def test_absent_facts_are_absent_in_the_open_record(tmp_path: Path) -> None:
    """Without world, labels and parent the open record has none of these fields."""
    logger = logger_at(tmp_path, clock=lambda: NOW)
    logger.start()
    logger.close()
    assert lines(tmp_path)[0] == (
        f'{{"kind":"open","rlship":1,"id":"{logger.id}","actor":"trainer","replica":"0","rank":0,"attempt":0,'
        f'"axis":"global_step","beat":10,"host":"n07","pid":{os.getpid()},'
        f'"pid_space":"{pid_space()}","t":1763600000.125,"writer":"python/{rlship.__version__}"}}'
    )


def test_names_are_made_safe_for_a_file_name_but_kept_in_the_record(tmp_path: Path) -> None:
    """Separators, leading dots and foreign letters never reach the file's name; the identity inside is as given."""
    logger = logger_at(tmp_path, actor="../trainer é", replica=".a/b")
    logger.start()
    logger.close()
    (path,) = files(tmp_path)
    assert path.name.startswith("_._trainer__-_a_b-r0-n07-")
    assert '"actor":"../trainer é","replica":".a/b"' in lines(tmp_path)[0]


def test_a_very_long_name_still_makes_a_file(tmp_path: Path) -> None:
    """A name beyond what filesystems allow is shortened in the file's name only."""
    logger = logger_at(tmp_path, actor="a" * 500)
    logger.start()
    assert logger.close()
    assert f'"actor":"{"a" * 500}"' in lines(tmp_path)[0]


def test_labels_may_hold_any_text(tmp_path: Path) -> None:
    """Quotes, control characters, line separators and half surrogate pairs still give one line of valid JSON."""
    import orjson

    label = 'a"b\\c\nd\u2028e\x00\ud800f'
    logger = logger_at(tmp_path, labels={"note": label})
    logger.start()
    logger.close()
    (path,) = files(tmp_path)
    first = path.read_bytes().split(b"\n")[0]
    assert orjson.loads(first)["labels"] == {"note": label.replace("\ud800", "\ufffd")}
