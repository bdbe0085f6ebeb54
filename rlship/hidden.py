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
        *("apikey", "apikeys", "accesskey", "privatekey", "authorization", "bearer"),
    )
)
# What a word may end with, if nothing divides it: `dbpassword`, `mysecret`, `pgpassword`.
_ENDS = ("password", "passwd", "passphrase", "secret", "secretkey", "apikey")
_BEFORE_KEY = frozenset(("api", "access", "private", "auth", "signing", "encryption"))
_KEYS = frozenset(("key", "keys"))
# Whose key it is: `openai_key`. `prompt_key` and `reward_key` name columns.
_OWNERS = frozenset(
    (
        *("ssh", "gpg", "pgp", "rsa", "tls", "ssl", "master", "deploy", "openai", "gemini", "google"),
        *("mistral", "cohere", "groq", "deepseek", "openrouter", "replicate", "wandb", "hf", "huggingface", "comet"),
        *("neptune", "github", "gitlab", "aws", "azure", "gcp", "stripe", "tavily", "serper", "pinecone", "langsmith"),
    )
)
# Whose password it is: `db_pass`, `mysql_pwd`. `forward_pass` and `PWD` are of nothing secret.
_ACCOUNTS = frozenset(
    (
        *("db", "database", "sql", "mysql", "pg", "postgres", "mongo", "redis", "amqp", "rabbitmq", "smtp", "mail"),
        *("email", "ftp", "ssh", "http", "https", "proxy", "admin", "root", "user", "login", "auth", "ldap", "sudo"),
    )
)
_FORGES = frozenset(("github", "gh", "gitlab", "git", "azure", "ado", "devops"))
# A name without one of these is of nothing secret, and nearly all names are.
_HINTS = ("pass", "secret", "credential", "key", "token", "authorization", "bearer", "pwd", "pat")
_LEAST_TOKEN = 16  # characters
_BRACKETS = ("<>", "[]")  # around a special token of a tokenizer
_PREFIXES = (
    *("hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "nvapi-", "xoxb-", "xoxp-"),
    *("wandb_v1_", "dckr_pat_", "sk_live_", "rk_live_"),
    *("gsk_", "AKIA", "ASIA", "AIza", "eyJ", "pypi-AgE", "npm_"),
)
_WEBHOOK = "hooks.slack.com/services/"
_ALWAYS = _PREFIXES[:16]  # the others begin words of languages too
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
    if not option.startswith("-") or "=" in option:
        return False
    return is_secret((option,), text) or (option == "--key" and _is_token(text))


def names_secret(name: str) -> bool:
    """Whether a name says that whatever it names is a secret."""
    words = _words(name)
    if not _WORDS.isdisjoint(words):
        return True
    return any(map(_ends_secret, words)) or any(_pair_secret(one, other) for one, other in pairwise(words))


def _ends_secret(word: str) -> bool:
    return word.endswith(_ENDS)


def _pair_secret(one: str, other: str) -> bool:
    if other in _KEYS:
        return one in _BEFORE_KEY or one in _OWNERS
    if other in ("pass", "pwd"):
        return one in _ACCOUNTS
    return (other == "pat" and one in _FORGES) or (one == "pass" and other == "word")


def names_token(name: str) -> bool:
    """Whether a name may be that of an access token, or of a tokenizer's special token."""
    return _words(name)[-1:] == ["token"]


def has_secret(text: str) -> bool:
    """Whether a text looks like a secret, or has a part that does, whatever its name."""
    if text.startswith(_ALWAYS) and len(text.split()) == 1:
        return True
    if any(prefix in text for prefix in _PREFIXES) and any(map(_looks_secret, text.translate(_BETWEEN).split())):
        return True
    if ("://" in text and _has_userinfo(text)) or ("=" in text and _assigns_secret(text)):
        return True
    if "--" in text and _passes_secret(text):
        return True
    if _WEBHOOK in text or ("-----BEGIN" in text and "PRIVATE KEY-----" in text):
        return True
    return "bearer" in text.lower() and _authorizes(text)


def _authorizes(text: str) -> bool:
    """Whether the text has a header such as `Authorization: Bearer x`."""
    named = "authorization" in text.lower()
    words = text.translate(_BETWEEN).split()
    return any(one.lower() == "bearer" and (named or len(other) >= _LEAST_TOKEN) for one, other in pairwise(words))


def _is_token(text: str) -> bool:
    if len(text) < _LEAST_TOKEN or len(text.split()) != 1:
        return False
    return text[0] + text[-1] not in _BRACKETS


def _looks_secret(word: str) -> bool:
    if not word.startswith(_PREFIXES):
        return False
    prefix = next(prefix for prefix in _PREFIXES if word.startswith(prefix))
    if prefix == "npm_" and not word[4:].isalnum():  # `npm_config_…` is a setting
        return False
    return len(word) - len(prefix) >= _LEAST_TOKEN and _OF_WORDS.issuperset(word.replace(".", ""))


def _has_userinfo(text: str) -> bool:
    """Whether an address in the text has a password: scheme://user:password@host, or https://token@host."""
    for before, rest in pairwise(text.split("://")):
        user, at, _ = rest.partition("/")[0].rpartition("@")
        if not at or len(user.split()) != 1:
            continue
        if user.partition(":")[2].strip():
            return True
        # Of other schemes a long name stands there: abfss://container@account
        if before.endswith(("http", "https")) and len(user) >= _LEAST_TOKEN:
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


def _passes_secret(text: str) -> bool:
    """Whether the text has a `--name value` that is a secret, as a command line has. A sentence has only words."""
    return any(
        is_secret_argument(one, other) and (len(other) >= _LEAST_TOKEN or any(map(str.isdigit, other)))
        for one, other in pairwise(text.split())
        if one.startswith("--")
    )


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
