"""The shell: as a program, and in a pseudo-terminal as a user has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_S = 60
"""Much longer than anything here takes."""

PROGRAM = shlex.split(os.environ.get("LOCKSTEP_SHELL", "")) or [sys.executable, "-m", "lockstep"]
"""The shell of the package, or the program that ``LOCKSTEP_SHELL`` names."""

CONTROLS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\a]")
"""What moves the cursor or rings the bell, which is no part of the text."""


class ShellTerminal:
    """A shell in a pseudo-terminal."""

    def __init__(self, home: Path, *arguments: str, rows: int = 24, columns: int = 80, **env: str):
        self.text = ""
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.environ.update(HOME=str(home), TERM="xterm", **env)
            os.execvp(PROGRAM[0], [*PROGRAM, *arguments])
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def wait_for(self, text: str, meanwhile: Callable[[], None] = lambda: None) -> str:
        """Waits until the text was printed, and returns what was printed before it."""
        end = time.monotonic() + WAIT_S
        while text not in self.text:
            assert time.monotonic() < end, f"{text!r} is not in {self.text!r}"
            meanwhile()
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.text += os.read(self.terminal, 4096).decode(errors="replace")
                self.text = CONTROLS.sub("", self.text)
        before, self.text = self.text.split(text, 1)
        return before

    def run(self, line: str, output: str) -> str:
        """Types a line, and waits for this output and the next prompt."""
        self.type(f"{line}\r")
        before = self.wait_for(output)
        self.wait_for("lockstep> ")
        return before

    def exit_code(self) -> int:
        """Waits for the end of the process."""
        end = time.monotonic() + WAIT_S
        # What is not read may be what it waits for.
        while True:
            assert time.monotonic() < end, f"the shell goes on after {self.text!r}"
            if not select.select([self.terminal], [], [], 0.1)[0]:
                continue
            try:
                if not os.read(self.terminal, 4096):
                    break
            except OSError:
                break
        _, status = os.waitpid(self.process, 0)
        self.process = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        os.close(self.terminal)
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)


@contextmanager
def shell_terminal(
    home: Path, *arguments: str, rows: int = 24, columns: int = 80, **env: str
) -> Iterator[ShellTerminal]:
    """Starts a shell in a pseudo-terminal of this size, and waits for its prompt."""
    shell = ShellTerminal(home, *arguments, rows=rows, columns=columns, **env)
    try:
        shell.wait_for("lockstep> ")
        yield shell
    finally:
        shell.close()
