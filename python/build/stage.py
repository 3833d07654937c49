"""Runs one stage of a build, and reports what it does and how much time is left.

`python3 stage.py "wheel" "about 30 minutes on two cores" -- COMMAND…` prints a line when the
stage starts and ends. While a command of cargo compiles, it also prints the progress: on a
terminal in place, otherwise every 30 seconds. Warnings and errors of the command are passed on.
The exit code is the command's.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable

INTERVAL_S = 30.0
"""Time between two lines of progress if standard error is not a terminal."""

PROGRESS = re.compile(r"Building \[[=> ]*\] (\d+)/(\d+)")

# Shares of the crates that are compiled, and of the time that has passed then: the crates of the
# workspace and DataFusion's come last and take longest. Measured on an empty cache with two cores.
CURVE = [
    (0.0, 0.0),
    (0.17, 0.07),
    (0.34, 0.12),
    (0.45, 0.21),
    (0.62, 0.36),
    (0.69, 0.46),
    (0.77, 0.6),
    (0.92, 0.75),
    (0.97, 0.88),
    (1.0, 1.0),
]


def share_of_time(crates: float) -> float:
    """Returns the share of the time after which a share of the crates is compiled."""
    for (x0, y0), (x1, y1) in itertools.pairwise(CURVE):
        if crates <= x1:
            return y0 + (y1 - y0) * (crates - x0) / (x1 - x0)
    return 1.0


def duration(seconds: float) -> str:
    """Formats a duration, to the second below a minute and to the minute above."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


class Progress:
    """Progress of a build, from the numbers that cargo prints."""

    def __init__(self, now: float) -> None:
        self.begin = now
        self.done = 0
        self.total = 0
        self.first: float | None = None

    def read(self, text: str) -> None:
        """Reads the newest numbers of a text."""
        for done, total in PROGRESS.findall(text):
            self.done, self.total = int(done), int(total)
        if self.total and self.first is None:
            # Crates that were compiled before are counted at once.
            self.first = share_of_time(self.done / self.total)

    def line(self, now: float) -> str | None:
        """Returns the state; `None` before there is any."""
        if self.first is None:
            return None
        passed = now - self.begin
        text = f"{self.done} of {self.total} crates after {duration(passed)}"
        share = share_of_time(self.done / self.total)
        if share - self.first > 0.02:
            left = passed * (1 - share) / (share - self.first)
            text += f", about {duration(left)} left"
        return text


def run(name: str, command: list[str], show: Callable[[str, bool], None]) -> int:
    """Runs a command; `show` gets each line, and whether a later one replaces it."""
    environment = {
        **os.environ,
        "CARGO_TERM_PROGRESS_WHEN": "always",
        "CARGO_TERM_PROGRESS_WIDTH": "100",
    }
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    begin = time.monotonic()
    progress, shown, rest = Progress(begin), begin, ""
    while chunk := os.read(process.stderr.fileno(), 65536):
        text = rest + chunk.decode(errors="replace")
        progress.read(text)
        *lines, rest = re.split(r"[\r\n]", text)
        for line in lines:
            if line.strip() and not re.match(r"\s*(Compiling|Building|Fresh) ", line):
                show(line, False)
        now = time.monotonic()
        line = progress.line(now)
        if line and now - shown >= (1.0 if sys.stderr.isatty() else INTERVAL_S):
            shown = now
            show(f"[{name}] {line}", True)
    return process.wait()


def print_line(line: str, is_replaced: bool) -> None:
    """Prints a line to standard error; on a terminal, the next one may replace it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="" if is_replaced else "\n", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Runs the stage that the arguments describe, and returns its exit code."""
    split = arguments.index("--")
    name, expected = arguments[:split]
    print_line(f"[{name}] {expected}", False)
    begin = time.monotonic()
    code = run(name, arguments[split + 1 :], print_line)
    ended = "done" if code == 0 else f"failed with exit code {code}"
    print_line(f"[{name}] {ended} after {duration(time.monotonic() - begin)}", False)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
