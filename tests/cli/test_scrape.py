"""The command `rlship scrape`: what it refuses."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rlship_sidecar.cli.group import rlship


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no endpoints to scrape"),
        (("http://127.0.0.1:1",), "no experiment to log into"),
        (("ftp://127.0.0.1", "--dir", "x"), "only http:// and https:// can be read"),
        (("http://a:b@127.0.0.1", "--dir", "x"), "--bearer-token-file"),
        (("127.0.0.1:1", "--dir", "x", "--ca-file", "/nonexistent"), "--ca-file /nonexistent"),
        (("127.0.0.1:1", "--dir", "x", "--proxy", "nowhere"), "--proxy nowhere"),
        (("127.0.0.1:1", "--dir", "x", "--interval", "0"), "--interval"),
    ],
)
def test_wrong_use_is_told(arguments: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with exit code 2, before anything is written or asked, and says the way out."""
    monkeypatch.delenv("RLSHIP_DIR", raising=False)
    result = CliRunner().invoke(rlship, ["scrape", *arguments])
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""
