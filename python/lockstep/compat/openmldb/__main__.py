"""Runs a program written for OpenMLDB's Python package without changing it."""

from __future__ import annotations

import runpy
import sys

from lockstep.compat import openmldb


def main() -> int:
    """Runs the program named by the first argument with the other arguments; returns 0, or 2."""
    if len(sys.argv) < 2:
        print("usage: python -m lockstep.compat.openmldb program.py [argument …]", file=sys.stderr)
        return 2
    openmldb.install()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
