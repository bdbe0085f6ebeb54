"""A headless Chromium that a test drives: it opens pages, presses keys, reads values back and takes pictures.

It speaks the browser's own protocol over two pipes, so that no port is open and no package is needed.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit import tools

PATIENCE_S = 60.0
WIDE, NARROW = (1600, 1000), (390, 844)
FLAGS = (
    "--headless",
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class PageError(AssertionError):
    """What the page threw, or did not do in time."""


class Browser:
    """One Chromium. Use it through `chromium`."""

    def __init__(self, home: Path) -> None:
        asked, self._asking = os.pipe()
        self._answers, answered = os.pipe()
        program = tools.needed("chromium", "chromium-browser", "google-chrome")
        command = [program, *FLAGS, f"--user-data-dir={home / 'profile'}", "about:blank"]
        self._log = (home / "chromium.log").open("wb")

        def pipes() -> None:
            # The browser reads commands from descriptor 3 and answers at 4.
            high = os.dup(answered)
            os.dup2(asked, 3)
            os.dup2(high, 4)

        self.process = subprocess.Popen(
            command,
            env={**os.environ, "HOME": str(home), "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(3, 4, asked, answered),
            preexec_fn=pipes,
            start_new_session=True,
        )
        os.close(asked)
        os.close(answered)
        self._numbers = itertools.count(1)
        self._rest = b""
        self.events: deque[dict[str, Any]] = deque(maxlen=100_000)

    def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that come before it are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._asking, data) :]
        until = time.monotonic() + 1.5 * PATIENCE_S  # a page that waits for something says so first
        while True:
            answer = self.next(until - time.monotonic())
            if answer is None:
                raise PageError(f"Chromium did not answer {method}")
            if answer.get("id") == number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error'].get('message')}")
                result: dict[str, Any] = answer["result"]
                return result

    def next(self, within_s: float) -> dict[str, Any] | None:
        """The next message of the browser; None if none came in time. Events are kept."""
        until = time.monotonic() + max(within_s, 0)
        while b"\0" not in self._rest:
            if not select.select([self._answers], [], [], max(until - time.monotonic(), 0))[0]:
                return None
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise PageError(f"Chromium ended: {self.process.poll()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def page(self, size: tuple[int, int] = WIDE, *, dark: bool = False) -> Page:
        """A new empty page."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.ask(f"{domain}.enable")
        page.resize(size)
        page.scheme("dark" if dark else "light")
        return page

    def end(self) -> None:
        """Close the browser and wait for it."""
        try:
            self.ask("Browser.close")
            self.process.wait(10)
        except (PageError, OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        os.close(self._asking)
        os.close(self._answers)
        self._log.close()


class Page:
    """One page of the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **parameters)

    def resize(self, size: tuple[int, int]) -> None:
        """Give the page a size, as a window of this size has it."""
        width, height = size
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        """Prefer the "light" or the "dark" scheme, as a person's system does."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url: str) -> None:
        """Open an address, and wait until it is loaded."""
        answer = self.ask("Page.navigate", url=url)
        if "errorText" in answer:
            raise PageError(f"{url}: {answer['errorText']}")
        self.wait("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives, as plain data; promises are awaited."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, expression: str, within_s: float = PATIENCE_S) -> Any:
        """What an expression gives once that is true. An expression that throws is not true yet."""
        # The page itself looks, at each of its frames: a test asks once and waits for the event.
        looking = f"""new Promise((done) => {{
            const until = performance.now() + {within_s * 1000};
            const look = () => {{
                let found; let why;
                try {{ found = ({expression}); }} catch (error) {{ why = error; }}
                if (found) done({{ found: found instanceof Node ? true : found }});
                else if (performance.now() > until) done({{ why: String(why ?? "it stayed " + found) }});
                else setTimeout(look, 20);
            }};
            look();
        }})"""
        answer = self.value(looking)
        if "found" not in answer:
            raise PageError(f"not within {within_s:g} s: {expression}: {answer['why']}; page: {self.text()[:2000]}")
        return answer["found"]

    def text(self, selector: str = "body") -> str:
        """The text of the first element that a selector finds, as a person sees it."""
        return str(self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Press the mouse in an element once it is there, at a share of its width and height."""
        self.wait(f"document.querySelector({json.dumps(selector)})")
        where = self.value(
            f"""(() => {{ const found = document.querySelector({json.dumps(selector)});
            found.scrollIntoView({{block: "center"}}); const box = found.getBoundingClientRect();
            return [box.left + box.width * {x}, box.top + box.height * {y}]; }})()"""
        )
        self.mouse("mouseMoved", *where)
        self.mouse("mousePressed", *where, button="left", clickCount=1)
        self.mouse("mouseReleased", *where, button="left", clickCount=1)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def press(self, key: str) -> None:
        """Press a key: a character, or a name such as "Tab" or "ArrowRight"."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def write(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.ask("Input.insertText", text=text)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of what is seen, or of the whole page, as PNG."""
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def said(self, method: str) -> Iterator[dict[str, Any]]:
        """The events of a name that this page has sent so far."""
        self.ask("Runtime.evaluate", expression="0")
        for event in list(self.browser.events):
            if event["method"] == method and event.get("sessionId") == self.session:
                yield event["params"]

    def faults(self) -> list[str]:
        """What the page threw, wrote to the console as an error, or was refused by its own policy."""
        thrown = [
            said["exceptionDetails"].get("exception", {}).get("description") or said["exceptionDetails"]["text"]
            for said in self.said("Runtime.exceptionThrown")
        ]
        logged = [said["entry"]["text"] for said in self.said("Log.entryAdded") if said["entry"]["level"] == "error"]
        return [*thrown, *logged]

    def requests(self) -> list[str]:
        """The addresses that this page asked for."""
        return [said["request"]["url"] for said in self.said("Network.requestWillBeSent")]


@contextmanager
def chromium(home: Path) -> Iterator[Browser]:
    """A browser that keeps its files in `home`, and ends with the block."""
    browser = Browser(home)
    try:
        yield browser
    finally:
        browser.end()
