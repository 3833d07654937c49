"""The ``lockstep`` program: the shell, and the demonstrations of this package."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the program with the arguments of the process and returns its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["demo"]:
        from .demo import main as demo

        return demo(arguments[1:])
    from ._lockstep import main_with

    # The shell is native code: otherwise, Ctrl-C would have no effect until it returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return main_with(arguments)


if __name__ == "__main__":
    sys.exit(main())
