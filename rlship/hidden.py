"""Which texts of a configuration are secrets, which never reach the disk: section 5.8 of formats/SPEC.md.

Only texts can be: `max_new_tokens` and `pad_token_id` are numbers.
"""

from __future__ import annotations

from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

IN_ITS_PLACE = "***"  # in an array, and in a command

_WORDS = frozenset(
    (
        *("password", "passwords", "passwd", "passphrase", "secret", "secrets", "credential", "credentials"),
        *("apikey", "apikeys", "accesskey", "privatekey", "authorization"),
    )
)
_BEFORE_KEY = frozenset(("api", "access", "private", "auth", "signing", "encryption"))
_KEYS = frozenset(("key", "keys"))
# A name without one of these is of nothing secret, and nearly all names are.
_HINTS = ("pass", "secret", "credential", "key", "token", "authorization")
_LEAST_TOKEN = 16  # characters
_BRACKETS = ("<>", "[]")  # around a special token of a tokenizer
_PREFIXES = (
    *("hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "nvapi-", "xoxb-", "xoxp-"),
    *("gsk_", "AKIA", "ASIA", "AIza", "eyJ"),
)
_ALWAYS = _PREFIXES[:12]  # the others begin words of languages too
_OF_WORDS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_BETWEEN = str.maketrans(dict.fromkeys("\t\n\r\"'`,;:=()[]{}<>|&?", " "))


def is_secret(path: Sequence[str], text: str) -> bool:
    """Whether a text below the names of `path` is a secret. The names of an array's elements are their numbers."""
    for name in path:
        if names_secret(name):
            return bool(text.strip())
    last = next((name for name in reversed(path) if not name.isdigit()), "")
    return (names_token(last) and _is_token(text)) or has_secret(text)


def is_secret_argument(option: str, text: str) -> bool:
    """Whether the argument that follows `option` on a command line is a secret."""
    return option.startswith("-") and "=" not in option and is_secret((option,), text)


def names_secret(name: str) -> bool:
    """Whether a name says that whatever it names is a secret."""
    words = _words(name)
    if not _WORDS.isdisjoint(words):
        return True
    return any(one in _BEFORE_KEY and other in _KEYS for one, other in pairwise(words))


def names_token(name: str) -> bool:
    """Whether a name may be that of an access token, or of a tokenizer's special token."""
    return _words(name)[-1:] == ["token"]


def has_secret(text: str) -> bool:
    """Whether a text looks like a secret, or has a part that does, whatever its name."""
    if text.startswith(_ALWAYS) and len(text.split()) == 1:
        return True
    if any(prefix in text for prefix in _PREFIXES) and any(map(_looks_secret, text.translate(_BETWEEN).split())):
        return True
    return ("://" in text and _has_userinfo(text)) or ("=" in text and _assigns_secret(text))


def _is_token(text: str) -> bool:
    if len(text) < _LEAST_TOKEN or len(text.split()) != 1:
        return False
    return text[0] + text[-1] not in _BRACKETS


def _looks_secret(word: str) -> bool:
    if not word.startswith(_PREFIXES):
        return False
    prefix = next(prefix for prefix in _PREFIXES if word.startswith(prefix))
    return len(word) - len(prefix) >= _LEAST_TOKEN and _OF_WORDS.issuperset(word.replace(".", ""))


def _has_userinfo(text: str) -> bool:
    """Whether an address in the text has a password: scheme://user:password@host."""
    for rest in text.split("://")[1:]:
        user, at, _ = rest.partition("/")[0].rpartition("@")
        if at and user.partition(":")[2].strip() and len(user.split()) == 1:
            return True
    return False


def _assigns_secret(text: str) -> bool:
    """Whether the text has a `name=value` that is a secret, as command lines and reprs have."""
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return False
    parts = text.split("=")
    for before, after in pairwise(parts):
        names = before.translate(_BETWEEN).split(" ")
        value = after.lstrip("'\"").translate(_BETWEEN).split(" ")[0]
        if value and names[-1] and (names_secret(names[-1]) or (names_token(names[-1]) and _is_token(value))):
            return True
    return False


def _words(name: str) -> list[str]:
    """The words of a name in lower case: divided by what is no letter or digit, and by capitals in camelCase."""
    lower = name.lower()
    if not any(hint in lower for hint in _HINTS):
        return []
    words: list[str] = []
    word = ""
    for i, c in enumerate(name):
        if not c.isalnum():
            words.append(word)
            word = ""
            continue
        after = name[i + 1 : i + 2]
        if word and c.isupper() and (not word[-1].isupper() or after.islower()):
            words.append(word)
            word = ""
        word += c
    return [one.lower() for one in (*words, word) if one]
