"""A browser without a window, which opens pages as a reader does.

It speaks Chrome's DevTools protocol over two pipes: messages of JSON, each with a NUL behind it.
So it needs a Chromium on the path and no package.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

WAIT_S = 30
"""Much longer than anything here takes."""

FIRST_FREE_FD = 10
"""The pipes are opened from here on: the browser reads from 3 and writes to 4."""


def program() -> str | None:
    """Returns the path of a browser; ``LOCKSTEP_BROWSER`` may name it."""
    named = os.environ.get("LOCKSTEP_BROWSER")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """A browser and its only page."""

    def __init__(self, profile: Path) -> None:
        found = program()
        assert found is not None, "there is a browser"
        arguments = [
            found,
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--window-size=1200,900",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            # The pages are ours, and root has no sandbox.
            "--no-sandbox",
            # No other host is known: a page that needs one has an error.
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            "about:blank",
        ]
        (to_read, self._to), (self._from, to_write) = _pipe(), _pipe()
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        pipes = [(os.POSIX_SPAWN_DUP2, to_read, 3), (os.POSIX_SPAWN_DUP2, to_write, 4)]
        self._pid = os.posix_spawn(found, arguments, os.environ, file_actions=[*quiet, *pipes])
        os.close(to_read)
        os.close(to_write)
        self._received = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """What the browser has told of the page since it was opened."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + WAIT_S
        while True:
            answer = self._receive(end)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, url: str) -> None:
        """Opens a page and waits until it is loaded, with all that it names."""
        self.events.clear()
        failure = self.call("Page.navigate", url=url).get("errorText")
        assert failure is None, f"{url}: {failure}"
        end = time.monotonic() + WAIT_S
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive(end)

    def evaluate(self, script: str) -> Any:
        """Returns the value of an expression of JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + WAIT_S
        while not (value := self.evaluate(script)):
            assert time.monotonic() < end, f"{script} is {value!r}; {self.errors()}"
            time.sleep(0.05)
        return value

    def errors(self) -> list[str]:
        """Returns what the console of the page shows as errors since it was opened."""
        found = []
        for event in self.events:
            told = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                found.append(details.get("exception", details).get("description", str(details)))
            elif event["method"] == "Runtime.consoleAPICalled" and told["type"] == "error":
                found.append(str([value.get("value") for value in told["args"]]))
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        return found

    def screenshot(self) -> bytes:
        """Returns a picture of the window, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """Ends the browser."""
        self._session = None
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        os.close(self._to)
        os.close(self._from)
        end = time.monotonic() + WAIT_S
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(self._pid, signal.SIGKILL)
            time.sleep(0.05)

    def _receive(self, end: float) -> dict[str, Any]:
        """Returns the next message; one that is no answer is kept as an event."""
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser answers"
            part = os.read(self._from, 65_536)
            assert part, "the browser has not ended"
            self._received += part
        text, self._received = self._received.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


def _pipe() -> tuple[int, int]:
    """Makes a pipe whose ends do not have the numbers that the browser uses."""
    ends = []
    for fd in os.pipe():
        ends.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD))
        os.close(fd)
    return ends[0], ends[1]


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Runs a browser, with a profile of its own."""
    running = Browser(profile)
    try:
        yield running
    finally:
        running.close()
