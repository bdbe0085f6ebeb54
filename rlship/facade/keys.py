"""The key by which the real client logs in: the user's own, or zeros while nothing talks to a server."""

from __future__ import annotations

import functools
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_KEY = "WANDB_API_KEY"
_DUMMY = "0" * 40  # some frameworks do not log without a key
# What reads from W&B, or starts what does.
_READERS = ("sweep", "agent", "controller", "restore")


class Keys:
    """What the client `module` of this process may find as a key."""

    def __init__(self, module: Any, own: Callable[[Any], Any]) -> None:
        """`own(path)` is what the API's `run` gives for a run of this process, else None."""
        self._module = module
        self._own = own
        self._watched: set[type] = set()

    def give_dummy(self) -> None:
        """Let the job find a key, if it has none: some frameworks look for one before they log."""
        files = (os.environ.get("NETRC") or "~/.netrc", "~/_netrc")
        if os.environ.get(_KEY) or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
            return
        if not any(os.path.exists(os.path.expanduser(one)) for one in files):
            os.environ[_KEY] = _DUMMY

    def drop_dummy(self) -> None:
        """Let the real client find the user's key or none. It is about to run, and it would send the zeros."""
        if os.environ.get(_KEY) == _DUMMY:
            del os.environ[_KEY]
        try:
            # It may have read the zeros before.
            settings = self._module.sdk.wandb_setup.singleton().settings
            if settings.api_key == _DUMMY:
                settings.api_key = None
            session = self._auth().session_credentials(host=settings.base_url)
            if getattr(session, "api_key", None) == _DUMMY:
                self._auth().unauthenticate_session()
        except Exception:  # noqa: BLE001 - another version of the client keeps them elsewhere, or nowhere
            return

    def login(self, key: Any = None, relogin: Any = None, host: Any = None, *_: Any, **options: Any) -> bool:
        """What the client's `login` returns, without a server. A key is that of the real client from now on."""
        if getattr(self._module, "run", None) is not None:
            return False  # after `init` it has no effect
        settings = self._settings()
        if getattr(settings, "_noop", False) or getattr(settings, "_offline", False):
            return False
        if key:
            self._take(str(key), str(host) if host else None, settings)
        elif options.get("prompt") is False and os.environ.get(_KEY) == _DUMMY:
            return False
        return True

    def watch(self) -> None:
        """Drop the dummy key before any call by which a job reads from W&B itself."""
        members = vars(self._module)
        self._watch_class(members.get("Api"))
        if callable(lazily := members.get("__getattr__")):  # the client imports its public API on first use

            @functools.wraps(lazily)
            def found(name: str) -> Any:
                value = lazily(name)
                if name == "Api":
                    self._watch_class(value)
                return value

            self._module.__getattr__ = found
        for name in _READERS:
            real = getattr(self._module, name, None)
            if callable(real):
                setattr(self._module, name, self._reading(real))

    def _watch_class(self, kind: Any) -> None:
        if isinstance(kind, type) and kind not in self._watched:
            self._watched.add(kind)
            kind.__init__ = self._reading(kind.__init__)  # type: ignore[misc]
            if callable(getattr(kind, "run", None)):
                kind.run = self._own_first(kind.run)  # type: ignore[attr-defined]

    def _reading(self, real: Any) -> Any:
        @functools.wraps(real)
        def call(*args: Any, **options: Any) -> Any:
            self.drop_dummy()
            return real(*args, **options)

        return call

    def _own_first(self, real: Any) -> Any:
        @functools.wraps(real)
        def run(api: Any, path: Any = "", *args: Any, **options: Any) -> Any:
            found = self._own(path)
            return real(api, path, *args, **options) if found is None else found

        return run

    def _take(self, key: str, host: str | None, settings: Any) -> None:
        # Processes that this one starts find it here, as they would in the netrc file that the client writes.
        if not os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
            os.environ[_KEY] = key
        if host:
            os.environ["WANDB_BASE_URL"] = host
        try:
            auth = self._auth()
            found = auth.AuthApiKey(host=auth.HostUrl(host or settings.base_url), api_key=key)
            auth.use_explicit_auth(found, source="wandb.login()")
        except Exception:  # noqa: BLE001 - the client says what is wrong with the key once it needs one
            return

    def _settings(self) -> Any:
        try:
            # Not the public `setup`, which would start the client's service.
            return self._module.sdk.wandb_setup.singleton().settings
        except Exception:  # noqa: BLE001 - another version of the client has them elsewhere
            return None

    def _auth(self) -> Any:
        return self._module.sdk.lib.wbauth
