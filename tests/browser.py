"""A real headless browser for tests: Debian's Chromium, driven through its DevTools pipe with no package at all.

Clicks and keys go through the browser's own input handling, as a user's would; every request and every message of the
console is recorded.
"""

import base64
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
)
KEYS = {"Enter": (13, "\r"), " ": (32, " "), "Tab": (9, ""), "ArrowRight": (39, ""), "ArrowDown": (40, "")}
SECONDS = 60.0


def binary() -> str | None:
    """Chromium's path, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. ``console`` and ``requests`` fill as things happen."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._id = 0
        self._session: str | None = None
        self._events: list[str] = []
        self.console: list[str] = []
        self.requests: list[str] = []
        [target] = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Load a file and wait until it has loaded."""
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + SECONDS
        while "Page.loadEventFired" not in self._events:
            self._next(deadline)

    def size(self, width: int, height: int = 900) -> None:
        """The width and height of the window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, kind: str = "", **features: str) -> None:
        """Emulate a medium (``print``) and features, as ``prefers_color_scheme="dark"``."""
        given = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=given)

    def js(self, expression: str) -> Any:
        """The value of an expression on the page, after any promise."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise AssertionError(done["exceptionDetails"]["exception"].get("description", "an exception"))
        return done["result"].get("value")

    def click(self, selector: str) -> None:
        """Scroll to the first element and click in its middle with the mouse."""
        place = self.js(
            f"(() => {{const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'center', inline: 'center'}); const box = one.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key on whatever has the focus."""
        code, text = KEYS[key]
        told = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **told)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def type(self, text: str) -> None:
        """Type text into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def choose(self, selector: str, label: str) -> None:
        """Choose an option of a select by its text."""
        chosen = self.js(
            f"(() => {{const one = document.querySelector({json.dumps(selector)});"
            f"const option = [...one.options].find((o) => o.text === {json.dumps(label)});"
            "if (!option) return false; one.value = option.value;"
            "one.dispatchEvent(new Event('change', {bubbles: true})); return true})()"
        )
        assert chosen, f"{selector} offers no {label}"

    def texts(self, selector: str) -> list[str]:
        """What the elements show, hidden ones left out."""
        found: list[str] = self.js(
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            ".filter((one) => one.checkVisibility()).map((one) => one.innerText.trim())"
        )
        return found

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One DevTools command and its result."""
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, told = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.console.append(f"{told['type']}: {told['args']}")
        elif method == "Runtime.exceptionThrown":
            self.console.append(f"exception: {told['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.console.append(f"{told['entry']['level']}: {told['entry']['text']}")


@contextmanager
def browser() -> Iterator[Page]:
    """Start Chromium with an empty profile; ended, with all its processes, on leaving.

    Without Chromium the test is skipped; under ``$NEEDS_BROWSER``, as .ci/run sets it, it fails.
    """
    path = binary()
    if path is None:
        missing = pytest.fail if "NEEDS_BROWSER" in os.environ else pytest.skip
        missing("NO BROWSER (Debian: apt-get install chromium); pages were NOT checked")
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        # both ends stand above 10, so that making 3 and 4 of them in the child cannot overwrite either
        theirs_in, ours_out = (_high(end) for end in os.pipe())
        ours_in, theirs_out = (_high(end) for end in os.pipe())
        actions = [
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, theirs_in, 3),
            (os.POSIX_SPAWN_DUP2, theirs_out, 4),
        ]
        arguments = [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = os.posix_spawn(path, arguments, {**os.environ, "HOME": profile}, file_actions=actions, setpgroup=0)
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Page(ours_out, ours_in)
        finally:
            os.close(ours_out)
            os.close(ours_in)
            _end(process)


def _high(descriptor: int) -> int:
    copy: int = fcntl(descriptor, F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copy


def _end(process: int) -> None:
    """Chromium ends by itself when its pipe closes; its whole process group is killed if it does not."""
    for _ in range(50):
        if os.waitpid(process, os.WNOHANG)[0]:
            return
        time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
