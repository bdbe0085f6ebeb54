"""The page's modules as one script, and the page with its data as one file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zlib
from importlib import resources
from pathlib import Path

import pytest

from rlship_sidecar.view import exported, joined
from tests.page import made

PAGE = Path(str(resources.files("rlship_sidecar.view").joinpath("page")))


def modules() -> dict[str, str]:
    return {name: exported.text_of(name) for name in joined.ORDER}


def own() -> dict[str, str]:
    return {name: text for name, text in modules().items() if not name.startswith("vendor/")}


def test_the_order_names_every_module_once() -> None:
    """No module of the page is left out of an exported file, and a browser fetches all of them at once."""
    there = sorted(path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*.js"))
    assert sorted(joined.ORDER) == there and len(set(joined.ORDER)) == len(joined.ORDER)
    shell = exported.text_of("index.html")
    assert re.findall(r'<link rel="modulepreload" href="([^"]+)">', shell) == list(joined.ORDER)


def test_a_module_sees_what_it_imports_and_nothing_else() -> None:
    """Each module has a scope of its own; imports and exports become entries of one table."""
    script = joined.join(
        {
            "a.js": "const hidden = 1;\nexport const one = hidden;\nexport function two() { return 2; }\n",
            "b/c.js": 'import { one, two as second } from "../a.js";\nexport const sum = one + second();\n',
        },
        ("a.js", "b/c.js"),
    )
    assert 'const { one, two: second } = $modules["a.js"];' in script
    assert '$modules["b/c.js"] = { sum: sum };' in script
    assert script.count("(function () {") == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('import { x } from "./later.js";', "does not stand above it in the order"),
        ("export default 3;", "line 1: an import or export of a form that cannot be joined"),
        ('import "./a.js";', "line 1: an import or export of a form that cannot be joined"),
    ],
)
def test_what_cannot_be_joined_is_refused(text: str, said: str) -> None:
    """A form that the joiner does not know is named, with its line, and never left in the script."""
    with pytest.raises(joined.JoinError, match=re.escape(said)):
        joined.join({"x.js": text, "later.js": ""}, ("x.js", "later.js"))


def test_texts_of_the_job_never_become_html() -> None:
    """The page's own modules have no way to make HTML or code of a text."""
    for name, text in own().items():
        found = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", text)
        assert found is None, f"{name}: {found}"


def test_nothing_is_loaded_from_another_host() -> None:
    """No address of another host stands in the page, but for the name of SVG's elements."""
    texts = {**own(), "index.html": exported.text_of("index.html"), "style.css": exported.text_of("style.css")}
    for name, text in texts.items():
        assert set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", re.sub(r"(?m)^\s*//.*$", "", text))) <= {
            "http://www.w3.org/2000/svg"
        }, name


def test_what_is_vendored_has_its_licence() -> None:
    """The licence and the version of uPlot stand beside it."""
    folder = PAGE / "vendor" / "uplot"
    assert "MIT License" in (folder / "LICENSE").read_text(encoding="utf-8")
    version = re.search(r"uPlot (\d[\d.]+\d),", (folder / "README.md").read_text(encoding="utf-8"))
    assert version is not None and f"(v{version[1]})" in (folder / "uPlot.esm.js").read_text(encoding="utf-8")[:400]


def test_the_page_is_light() -> None:
    """All of the page together is under 250 KB once it is compressed."""
    files = [path.read_bytes() for path in PAGE.rglob("*") if path.suffix in {".js", ".css", ".html"}]
    assert sum(len(gzip.compress(data)) for data in files) < 250_000


def test_data_cannot_leave_its_element() -> None:
    """Whatever a job wrote, the data end where they should, and read back as they were."""
    held = made.embedded(steps=60, ranks=4, hostile=True)
    text = exported.one_file(exported.packed_ranks(held)).decode()
    inside = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert not set("<>\u2028\u2029") & set(inside)
    outer = json.loads(inside)
    assert outer["ranks"]["r0"]["hosts"][0] == made.HOSTILE
    rest = json.loads(zlib.decompress(base64.b64decode(outer["z"])))
    assert rest["experiments"]["experiments"][0]["name"] == made.HOSTILE
    assert text.count("<script") == text.count("</script>") == 2


def test_only_the_pages_own_script_and_style_may_run() -> None:
    """The policy of an exported file names the digests of its script and its style, and allows nothing else."""
    text = exported.one_file(exported.packed_ranks(made.embedded(steps=60, ranks=4))).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    script = re.search(r"<script>(.*)</script>", text, re.S)
    style = re.search(r"<style>(.*)</style>", text, re.S)
    assert policy is not None and script is not None and style is not None
    digests = [base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode() for found in (script, style)]
    assert policy[1].split("; ") == [
        "default-src 'none'",
        f"script-src 'sha256-{digests[0]}'",
        f"style-src 'sha256-{digests[1]}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
