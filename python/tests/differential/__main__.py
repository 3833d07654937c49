"""``python -m differential``: the nightly form."""

from __future__ import annotations

import argparse
import sys
import time

from .session import Session


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-tables", type=int, default=200, help="queries before new tables")
    parser.add_argument("--mismatches", type=int, default=10, help="stop after so many")
    arguments = parser.parse_args()
    start = time.monotonic()
    session = Session(arguments.seed, arguments.per_tables)
    for report in session.run(arguments.queries):
        print(report, end="\n\n", flush=True)
        if session.mismatches >= arguments.mismatches:
            break
    print(session.summary(), f"{time.monotonic() - start:.0f} s", sep="\n")
    return 1 if session.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
