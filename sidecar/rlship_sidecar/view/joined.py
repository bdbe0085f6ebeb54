"""The page's modules as one classic script, and the page with its data as one file that opens without a server.

The modules use a part of the language that is plain to rewrite: imports of names by a relative path at the start of a
line, exports of functions, classes and constants at the start of a line, and one list of exports in what is vendored.
Each module becomes a function of its own, so that none sees another's names but by an import.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence

# Each module stands below those that it imports.
ORDER = (
    "vendor/uplot/uPlot.esm.js",
    "numbers.js",
    "colours.js",
    "dom.js",
    "state.js",
    "canvas.js",
    "shape/curves.js",
    "chart.js",
    "packed.js",
    "source.js",
    "shape/steps.js",
    "shape/lanes.js",
    "shape/carpet.js",
    "shape/memory.js",
    "shape/samples.js",
    "shape/episodes.js",
    "run.js",
    "grid.js",
    "panels/overview.js",
    "panels/stability.js",
    "panels/list.js",
    "panels/metrics.js",
    "panels/timeline.js",
    "panels/ranks.js",
    "panels/memory.js",
    "panels/rollouts.js",
    "panels/alerts.js",
    "panels/ledger.js",
    "panels/events.js",
    "panels/rundata.js",
    "panels/diff.js",
    "main.js",
)
STYLES = ("vendor/uplot/uPlot.min.css", "style.css")

_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}|(\w+))\s+from\s+"(\.{1,2}/[^"]+)";$', re.M)
_DECLARED = re.compile(r"^export\s+((?:async\s+)?function\*?|class|const)\s+(\w+)", re.M)
_LISTED = re.compile(r"^export\s+\{([^}]*)\};$", re.M)
_COMMENT = re.compile(r"^/\*.*?\*/", re.M | re.S)
_LEFT = re.compile(r"^(?:import|export)\b", re.M)


class JoinError(ValueError):
    """A module that cannot be joined."""


def join(modules: Mapping[str, str], order: Sequence[str] = ORDER) -> str:
    """One classic script that does what the modules do. `modules` are texts by path."""
    done: list[str] = []
    parts = ['"use strict";', "const $modules = {};"]
    for name in order:
        parts.append(_scope(name, modules[name], done))
        done.append(name)
    return "\n".join(parts)


def _scope(name: str, text: str, done: Sequence[str]) -> str:
    names: dict[str, str] = {}  # exported name -> the module's own

    def bring(found: re.Match[str]) -> str:
        source = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[3]))
        if source not in done:
            raise JoinError(f"{name} imports {source}, which does not stand above it in the order")
        if found[2]:
            return f'const {found[2]} = $modules["{source}"].default;'
        wanted = ", ".join(part.strip().replace(" as ", ": ") for part in found[1].split(",") if part.strip())
        return f'const {{ {wanted} }} = $modules["{source}"];'

    def declare(found: re.Match[str]) -> str:
        names[found[2]] = found[2]
        return f"{found[1]} {found[2]}"

    def lay(found: re.Match[str]) -> str:
        for part in filter(None, map(str.strip, found[1].split(","))):
            own, _, shown = part.partition(" as ")
            names[shown.strip() or own] = own.strip()
        return ""

    # What stands inside a comment exports nothing.
    text = _COMMENT.sub(lambda found: found[0].replace("\nexport", "\n export"), text)
    text = _LISTED.sub(lay, _DECLARED.sub(declare, _IMPORT.sub(bring, text)))
    rest = _LEFT.search(text)
    if rest is not None:
        line = text.count("\n", 0, rest.start()) + 1
        raise JoinError(f"{name}, line {line}: an import or export of a form that cannot be joined")
    exports = ", ".join(f"{shown}: {own}" for shown, own in names.items())
    return f'(function () {{\n{text}\n$modules["{name}"] = {{ {exports} }};\n}})();'


def as_script_data(data: bytes) -> str:
    """JSON as it may stand inside a script element: nothing in it can end the element or the line."""
    text = data.decode()
    for char, code in (("<", "\\u003c"), (">", "\\u003e"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(char, code)
    return text


def whole_page(shell: str, styles: Sequence[str], script: str, data: bytes) -> str:
    """The page as one file: script and styles stand in it under their digests, and nothing else may load or run."""
    body, style = f"\n{script}\n", "\n".join(styles)
    if "</script" in body.lower() or "</style" in style.lower():
        raise JoinError("a module or a style sheet would end its own element")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(body)}'",
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    shell = shell.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{head}', 1)
    shell = re.sub(r'<link rel="(?:stylesheet|modulepreload)"[^>]*>\n?', "", shell)
    shell = shell.replace("</head>", f"<style>{style}</style>\n</head>", 1)
    # A browser runs no script of this type, whatever the policy says.
    held = f'<script type="application/json" id="data">{as_script_data(data)}</script>\n<script>{body}</script>'
    # By a function, so that no backslash of the data is taken for a reference.
    return re.sub(r'<script type="module"[^>]*></script>', lambda _: held, shell, count=1)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
