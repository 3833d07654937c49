"""Shows the progress of calls that take more than two seconds, in a line on standard error.

Shown only if standard error is a terminal or the program is a notebook, and the environment
variable LOCKSTEP_PROGRESS is not ``off``. In a terminal, the line is removed when the call ends.
One thread, started by the first call, draws the progress of all calls.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO

from ._lockstep import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

SHOWN_S = 2.0
"""Minimum duration in seconds of a call whose progress is shown."""

_PERIOD_S = 0.2
_BAR_WIDTH = 10
_LINE_WIDTH = 79
"""Maximum width of the line, in characters, so that terminals do not wrap it."""

_TEXT_WIDTH = 24
_WORDS = 3


def watched(what: str) -> AbstractContextManager[Work | None]:
    """Returns a context manager that shows the progress of the calls inside it.

    - ``what``: start of the line. Only the first three words are shown, which never contain a
      password.

    The value of the context is ``None`` if progress is not shown. Otherwise, costs a few
    microseconds.
    """
    return Work(what) if _is_seen() else nullcontext()


def reporter(work: Work | None) -> Callable[[float], object] | None:
    """Returns the progress callback of a call, whose argument is the fraction done, 0 to 1."""
    return None if work is None else work.report


def _is_seen() -> bool:
    stream = _stream()
    if os.environ.get("LOCKSTEP_PROGRESS") == "off" or stream is None:
        return False
    return stream.isatty() or _is_notebook()


def _stream() -> TextIO | None:
    return sys.stderr


def _is_notebook() -> bool:
    # Not `ipykernel`, which programs that execute notebooks import as well.
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Work:
    """Call whose progress may be shown."""

    def __init__(self, what: str) -> None:
        words = " ".join(what.split(maxsplit=_WORDS)[:_WORDS])
        self.what = words if len(words) <= _TEXT_WIDTH else words[: _TEXT_WIDTH - 1] + "…"
        self.began_s = self.step_began_s = time.monotonic()
        self.fraction: float | None = None
        self.step = ""
        self._progress = Progress()

    def report(self, fraction: float) -> None:
        """Records the fraction done."""
        self.fraction = fraction

    def look(self, now_s: float) -> None:
        """Records the current step of the engine and its fraction done."""
        found = self._progress.get()
        if found is None:
            return
        step, fraction = found
        if step != self.step:
            self.step, self.step_began_s = step, now_s
        self.fraction = fraction

    def __enter__(self) -> Work:
        self._progress.enter()
        _watcher.begin(self)
        return self

    def __exit__(self, *_: object) -> None:
        Progress.leave()
        _watcher.end(self)

    def line(self, now_s: float) -> str:
        """Returns the progress line."""
        taken = f"{now_s - self.began_s:.0f} s"
        if self.fraction is None:
            return f"{self.what}: {taken}"
        done = min(max(self.fraction, 0.0), 1.0)
        filled = round(done * _BAR_WIDTH)
        bar = "█" * filled + "░" * (_BAR_WIDTH - filled)
        step_s = now_s - self.step_began_s
        is_known = 0.01 < done < 1 and step_s >= _PERIOD_S
        left = f", about {step_s / done - step_s:.0f} s left" if is_known else ""
        step = f"{self.step} " if self.step else ""
        return f"{self.what}: {step}{done:4.0%} {bar} {taken}{left}"[:_LINE_WIDTH]


class _Watcher:
    """Drawing thread and the calls in progress, oldest first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._works: list[Work] = []
        self._thread: threading.Thread | None = None
        self._drawing: _TerminalLine | _NotebookLine | None = None
        self._drawn: Work | None = None

    def begin(self, work: Work) -> None:
        with self._changed:
            self._works.append(work)
            # The thread does not exist after a fork.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._draw, daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self, work: Work) -> None:
        with self._changed:
            self._works.remove(work)
            work.look(time.monotonic())
            if self._drawn is work and self._drawing is not None:
                self._drawing.end(work.line(time.monotonic()))
                self._drawing = self._drawn = None

    def _draw(self) -> None:
        with self._changed:
            while True:
                if not self._works:
                    self._changed.wait()
                    continue
                work, now_s = self._works[0], time.monotonic()
                work.look(now_s)
                if now_s - work.began_s >= SHOWN_S:
                    if self._drawing is None:
                        self._drawing = _NotebookLine() if _is_notebook() else _TerminalLine()
                    self._drawn = work
                    self._drawing.show(work.line(now_s))
                self._changed.wait(_PERIOD_S)


class _TerminalLine:
    """Terminal line, which is overwritten."""

    def show(self, text: str) -> None:
        self._write(f"\r{text}\x1b[K")

    def end(self, _: str) -> None:
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        stream = _stream()
        if stream is None:
            return
        # The stream may have been closed.
        with suppress(OSError, ValueError):
            stream.write(text)
            stream.flush()


class _NotebookLine:
    """Output of a notebook cell, which is replaced; the last text remains."""

    def __init__(self) -> None:
        self._handle = None

    def show(self, text: str) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)

    def end(self, text: str) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": text}, raw=True)


_watcher = _Watcher()
