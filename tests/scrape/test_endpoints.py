"""Addresses as people write them, and lists of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_agents.scrape.endpoints import MAX_NAME, AddressProblem, Endpoint, distinct, from_text, parse
from rlship_agents.scrape.sources import MAX_ENDPOINTS, Sources


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("10.0.0.7:8000", "10.0.0.7:8000", "http://10.0.0.7:8000/metrics"),
        ("http://n07", "n07:80", "http://n07:80/metrics"),
        ("https://n07/", "n07:443", "https://n07:443/metrics"),
        ("http://N07.example.org:9/metrics", "n07.example.org:9", "http://n07.example.org:9/metrics"),
        ("http://n07:9/probe?t=1", "n07:9/probe?t=1", "http://n07:9/probe?t=1"),
        ("http://[::1]:8000", "[::1]:8000", "http://[::1]:8000/metrics"),
        ("3=http://n07:8000", "3", "http://n07:8000/metrics"),
        ("a=10.0.0.7:8000", "a", "http://10.0.0.7:8000/metrics"),
        ("n07:9/probe?t=1", "n07:9/probe?t=1", "http://n07:9/probe?t=1"),
        (" prefill-1=https://n07:8000/m ", "prefill-1", "https://n07:8000/m"),
    ],
)
def test_addresses(text: str, name: str, url: str) -> None:
    """Scheme, port and path may be left out; a replica is called by host and port, and by the path if that is not the
    usual one, or as it is named.
    """
    endpoint = parse(text)
    assert (endpoint.name, endpoint.url) == (name, url)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not an address"),
        ("ftp://n07/metrics", "only http"),
        ("file:///etc/passwd", "only http"),
        ("http://", "names no host"),
        ("a=", "not an address"),
        ("a=b=n07", "names no host"),
        ("http://n07:99999/", "Port"),
        ("http://n07:x/", "Port"),
        ("n07:0", "port 0"),
        ("http://[::1", "Invalid IPv6"),
        ("http://me:secret@n07/", "holds a password"),
        ("http://n07/\r\nX-Evil: 1", "not an address"),
        ("http://n07/a b", "not an address"),
    ],
)
def test_what_is_no_address_is_told(text: str, told: str) -> None:
    """The error says what is wrong, and no secret."""
    with pytest.raises(AddressProblem) as problem:
        parse(text)
    assert told in str(problem.value)
    assert "secret" not in str(problem.value)


@given(st.text(max_size=400))
def test_any_text_is_an_address_or_none(text: str) -> None:
    """Nothing else is raised, and what is taken cannot break a request or a name."""
    try:
        endpoint = parse(text)
    except AddressProblem:
        return
    assert 0 < len(endpoint.name) <= MAX_NAME
    assert endpoint.url.isascii()
    assert endpoint.url.isprintable()
    assert " " not in endpoint.url
    assert parse(endpoint.url).url == endpoint.url


def test_lines() -> None:
    """One address a line, comments and empty lines beside them; a bad one is reported and spoils no other."""
    endpoints, told = from_text("# engines\n\na=http://n1\nftp://x\n n2:9 \n")
    assert [endpoint.name for endpoint in endpoints] == ["a", "n2:9"]
    assert len(told) == 1
    assert told[0].startswith("line 4: ")


def test_service_discovery() -> None:
    """The JSON of Prometheus' files and of Ray's, with the labels that say scheme and path."""
    groups = [
        {"labels": {"job": "ray"}, "targets": ["10.0.0.1:8080", "10.0.0.2:8080"]},
        {"labels": {"__scheme__": "https", "__metrics_path__": "/m"}, "targets": ["n3:1"]},
    ]
    endpoints, told = from_text(json.dumps(groups))
    assert [endpoint.url for endpoint in endpoints] == [
        "http://10.0.0.1:8080/metrics",
        "http://10.0.0.2:8080/metrics",
        "https://n3:1/m",
    ]
    assert told == []


@pytest.mark.parametrize(
    "text", ["[", "[1]", '[{"targets":"n1"}]', '[{"targets":[1]}]', '{"a":1}', '[{"targets":["a b"]}]']
)
def test_damaged_service_discovery_is_told(text: str) -> None:
    """What is no list of targets is said to be none."""
    endpoints, told = from_text(text)
    assert endpoints == []
    assert len(told) == 1


@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["targets", "labels", "__scheme__", "__metrics_path__"]), inner, max_size=3
            )
        ),
        max_leaves=10,
    )
)
def test_any_json_is_read(value: object) -> None:
    """Whatever JSON a file holds, what comes of it are endpoints and problems."""
    endpoints, told = from_text(json.dumps([value]))
    assert all(isinstance(endpoint, Endpoint) for endpoint in endpoints)
    assert all(isinstance(line, str) for line in told)


def test_two_of_one_name() -> None:
    """Two addresses under one name would be one replica: the first is taken, and the other one told."""
    endpoints, told = distinct([parse("a=http://n1"), parse("a=http://n2"), parse("a=http://n1")])
    assert [endpoint.host for endpoint in endpoints] == ["n1"]
    assert told == ["http://n2:80/metrics is left out: http://n1:80/metrics has the name a too"]


def test_files_are_taken_up_as_they_change(tmp_path: Path) -> None:
    """A file may come later and change; one that goes, or is damaged, stands as it was. Each change is said once."""
    said: list[str] = []
    file = tmp_path / "endpoints.txt"
    sources = Sources([parse("n0")], [str(file)], said.append)

    def names() -> list[str]:
        sources.current()
        return [endpoint.host for endpoint in sources.current()]

    assert names() == ["n0"]
    assert said == [f"{file} is not there; it is read once it is"]
    file.write_text("n1\nn2\n")
    assert names() == ["n0", "n1", "n2"]
    file.write_text("[{")
    assert names() == ["n0", "n1", "n2"]
    file.write_bytes(b"n3\n" + b"#" * 2_000_000)
    assert names() == ["n0", "n1", "n2"]
    file.unlink()
    assert names() == ["n0", "n1", "n2"]
    os.mkfifo(file)
    assert names() == ["n0", "n1", "n2"]
    file.unlink()
    file.write_text("")
    assert names() == ["n0"]
    assert said[1] == f"{file}: 2 endpoints"
    assert said[2].startswith(f"{file}: it is not JSON")
    assert said[3] == f"{file} cannot be read: it is longer than 1048576 bytes"
    assert said[-1] == f"{file}: 0 endpoints"
    assert len(said) <= 7


def test_a_file_that_is_half_written_changes_nothing(tmp_path: Path) -> None:
    """A list that is written in place, empty and cut off for a moment, closes no endpoint and makes up none."""
    said: list[str] = []
    file = tmp_path / "endpoints.txt"
    file.write_text("n1:8000\n")
    sources = Sources([], [str(file)], said.append)
    seen = []
    for text in ("n1:8000\n", "", "n1:8", "n1:8000\nn2:8000\n", "n1:8000\nn2:8000\n"):
        file.write_text(text)
        seen.append([endpoint.name for endpoint in sources.current()])
    assert seen == [["n1:8000"]] * 4 + [["n1:8000", "n2:8000"]]
    assert said == [f"{file}: 1 endpoint", f"{file}: 2 endpoints"]


def test_a_file_that_is_empty_at_first_is_no_half_a_list(tmp_path: Path) -> None:
    """What is written into a list that was empty when it was first looked at counts once it is whole, too."""
    file = tmp_path / "endpoints.txt"
    file.write_text("")
    sources = Sources([], [str(file)], lambda line: None)
    seen = []
    for text in ("", "10.0.0.7:80", "10.0.0.7:8000\n", "10.0.0.7:8000\n"):
        file.write_text(text)
        seen.append([endpoint.name for endpoint in sources.current()])
    assert seen == [[], [], [], ["10.0.0.7:8000"]]


def test_endpoints_are_bounded() -> None:
    """Each endpoint has a thread, so there are at most so many; a longer list is reported once."""
    said: list[str] = []
    sources = Sources([parse(f"n{number}") for number in range(MAX_ENDPOINTS + 1)], [], said.append)
    for _ in range(2):
        assert len(sources.current()) == MAX_ENDPOINTS
    assert len(said) == 1
