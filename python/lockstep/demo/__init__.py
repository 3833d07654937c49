"""Demonstrations: ``lockstep demo NAME``."""

from __future__ import annotations

import sys

USAGE = """\
usage: lockstep demo flights

  flights   predicts arrival delays of flights: training set, model, and December as requests
"""


def main(arguments: list[str]) -> int:
    """Runs a demonstration and returns the exit code."""
    if arguments != ["flights"]:
        is_help = arguments in ([], ["--help"], ["-h"])
        print(USAGE, end="", file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    from .._error import Error

    try:
        from .flights import main as flights

        return flights()
    except Error as error:
        print(error, file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(
            f"error: package `{error.name}` is not installed\n"
            "hint: Run `pip install 'lockstep-db[demo]'`.",
            file=sys.stderr,
        )
        return 1
