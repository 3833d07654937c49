"""The program ``lockstep``: the shell, and the demonstrations that only this package has."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the program with the process's arguments and returns its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["demo"]:
        from .demo import main as demo

        return demo(arguments[1:])
    from ._lockstep import main_with

    # The shell is native code: without this, Ctrl-C would only be noticed when it returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return main_with(arguments)


if __name__ == "__main__":
    sys.exit(main())
