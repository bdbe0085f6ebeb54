"""The languages that have a writer in formats/writers: how each one's driver is built and started, and what it can do.

Another language is another row of `LANGUAGES`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.guards.tree import ROOT, files
from tests.kit import tools
from tests.kit.tools import needed

WRITERS = ROOT / "formats" / "writers"
BUILT = ROOT / "build" / "writers"
BUILD_S = 110

Command = Callable[[Path, Path], list[str]]


@dataclass(frozen=True)
class Language:
    """One row. `folder` is that of the sources in formats/writers; `build` and `run` are given it and the folder where
    results of building lie, and return a command; without `build` there is nothing to build.
    """

    name: str
    folder: str
    run: Command
    tools: tuple[str, ...]
    build: Command | None = None
    # What scripts of calls may need, see formats/vectors/README.md, as far as this language can do it.
    able: frozenset[str] = frozenset()
    threads: bool = True  # it has the command `threads`, and a thread or timer of its own that flushes
    forks: bool = False  # it has the command `fork`
    closes_at_exit: bool = True  # it writes a `close` where the program ends without
    lines: int = 10_000  # that each of eight processes writes at once
    values: int = 80_000  # of one list, which its driver can read in a second or two
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """How to start the driver, which is built now where its sources have changed since."""
        for tool in self.tools:
            needed(tool)
        return self.run(WRITERS / self.folder, self._built())

    def _built(self) -> Path:
        """The folder of what was built from these very sources; one process builds, others wait for it."""
        if self.build is None:
            return BUILT
        sources = sorted(files(WRITERS / self.folder))
        key = hashlib.sha256(b"\0".join([repr(self.build(Path(), Path())).encode(), *map(Path.read_bytes, sources)]))
        built = BUILT / f"{self.name}-{key.hexdigest()[:16]}"
        BUILT.mkdir(parents=True, exist_ok=True)
        with open(BUILT / f"{self.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not built.is_dir():
                self._build(built)
        return built

    def _build(self, built: Path) -> None:
        assert self.build is not None
        for old in BUILT.glob(f"{self.name}-" + "[0-9a-f]" * 16 + "*"):
            shutil.rmtree(old)
        unfinished = built.with_name(built.name + ".unfinished")
        unfinished.mkdir()
        command = self.build(WRITERS / self.folder, unfinished)
        done = subprocess.run(
            command, cwd=unfinished, env={**os.environ, "PATH": tools.path()}, capture_output=True, timeout=BUILD_S
        )
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        assert done.returncode == 0, f"{' '.join(command)}\n{said}"
        unfinished.rename(built)


# --- C, and C++ ---

_STRICT = ("-O1", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread")


def _compiled(*compiler: str) -> Command:
    def build(sources: Path, built: Path) -> list[str]:
        return [*compiler, *_STRICT, str(sources / "conform.c"), "-o", str(built / "conform")]

    return build


def _program(sources: Path, built: Path) -> list[str]:
    return [str(built / "conform")]


_C = frozenset(
    (
        *("arrays", "64-bit integers", "half surrogates", "parent", "errors of spans", "nested attributes", "samples"),
        *("cut", "ledger"),
    )
)


def compiled_c(name: str, *compiler: str, forks: bool = True, settings: Mapping[str, str] | None = None) -> Language:
    return Language(
        name=name,
        folder="c",
        tools=compiler[:1],
        build=_compiled(*compiler),
        run=_program,
        able=_C,
        forks=forks,
        settings={"RLSHIP_LEDGER_SHARE": "1", **(settings or {})},
    )


# --- POSIX shells ---


def _shell(name: str, *shell: str, lines: int) -> Language:
    return Language(
        name=name,
        folder="sh",
        tools=shell[:1],
        run=lambda sources, built: [needed(shell[0]), *shell[1:], str(sources / "conform.sh")],
        able=frozenset(
            (
                *("arrays", "64-bit integers", "half surrogates", "parent", "errors of spans", "nested attributes"),
                *("samples", "ledger"),
            )
        ),
        threads=False,
        forks=True,
        closes_at_exit=False,
        lines=lines,
        values=40_000,
        settings={"RLSHIP_LEDGER_SHARE": "1"},
    )


# --- Rust and Go ---

_RUST_OR_GO = frozenset(
    (
        *("arrays", "summaries", "64-bit integers", "NUL characters", "labels", "parent", "errors of spans"),
        *("nested attributes", "samples", "cut"),
    )
)


def _go(sources: Path, built: Path) -> list[str]:
    return [needed("go"), "build", "-C", str(sources), "-o", str(built / "conform"), "./conform"]


def _rustc(sources: Path, built: Path) -> list[str]:
    strict = ("--edition", "2021", "-O", "-D", "warnings")
    return [needed("rustc"), *strict, str(sources / "conform.rs"), "-o", str(built / "conform")]


# --- JavaScript ---


def _node(sources: Path, built: Path) -> list[str]:
    return [needed("node"), str(sources / "conform.mjs")]


_JAVASCRIPT = Language(
    name="javascript",
    folder="js",
    tools=("node",),
    run=_node,
    able=frozenset(
        (
            *("arrays", "summaries", "any value", "64-bit integers", "NUL characters", "half surrogates", "labels"),
            *("parent", "errors of spans", "nested attributes", "samples", "cut", "ledger"),
        )
    ),
    settings={"RLSHIP_LEDGER_SHARE": "1"},
    threads=False,  # each has a file of its own: test_javascript.py
)


LANGUAGES = (
    compiled_c("c", "gcc", "-std=c99"),
    compiled_c("c++", "g++", "-std=c++17", "-x", "c++"),
    # A fork while another thread allocates leaves the child of this sanitizer, as gcc 12 has it, waiting for ever.
    compiled_c(
        *("c-sanitized", "gcc", "-std=c99", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        forks=False,
        settings={"ASAN_OPTIONS": "detect_leaks=1:exitcode=99", "UBSAN_OPTIONS": "halt_on_error=1"},
    ),
    # Of forks with threads in the child this sanitizer knows nothing.
    compiled_c(
        *("c-threads", "gcc", "-std=c99", "-fsanitize=thread"),
        forks=False,
        settings={"TSAN_OPTIONS": "exitcode=99"},
    ),
    _shell("dash", "dash", lines=2_000),
    _shell("ash", "busybox", "ash", lines=2_000),
    _shell("bash", "bash", lines=2_000),
    Language(
        name="rust",
        folder="rust",
        tools=("rustc",),
        build=_rustc,
        run=_program,
        able=_RUST_OR_GO | {"ledger"},
        settings={"RLSHIP_LEDGER_SHARE": "1"},
    ),
    Language(
        name="go",
        folder="go",
        tools=("go",),
        build=_go,
        run=_program,
        able=_RUST_OR_GO | {"any value", "ledger"},
        settings={"RLSHIP_LEDGER_SHARE": "1"},
    ),
    _JAVASCRIPT,
)
NAMES = tuple(language.name for language in LANGUAGES)


def language_of(name: str) -> Language:
    """The row of this name."""
    return next(language for language in LANGUAGES if language.name == name)
