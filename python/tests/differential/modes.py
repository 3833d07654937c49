"""The two modes, and the results that differ between them by definition.

Each is run against DuckDB. What the compatibility mode does otherwise (docs/compatibility.md) is
either said to DuckDB in other words, or not drawn in that mode. Everything else is the same text.
"""

from __future__ import annotations

STANDARD, OPENMLDB = "standard", "openmldb"
MODES = [STANDARD, OPENMLDB]

DIFFERENCES = {
    "integer arithmetic, an integer to a narrower one": "wraps: the macros ``fit…``",
    "DOUBLE to integer, out of range": "is an end of the type: the macros ``cut…``",
    "text of a DOUBLE": "has six digits: ``printf('%g')``",
    "text of a TIMESTAMP": "has no milliseconds: the macro ``time_text``",
    "char_length, substring, left, right, locate, reverse, LIKE, upper, lower": (
        "go by bytes: all texts are ASCII"
    ),
    "sum of integers": "has the type of its argument and wraps",
    "sum_where, avg_where": "pass over 0: one more condition of FILTER",
    "distinct_count": "counts NULL as 0 or '': ``coalesce``; of a DATE it is not drawn",
    "median of integers": "adds in the type of its argument: not drawn",
    "GROUP BY a FLOAT or DOUBLE": "is refused: drawn in neither mode",
    "a text compared with another type": "differs: drawn in neither mode",
    "INT and BIGINT with FLOAT, floats inside texts, topn_frequency, lists beyond 4096 bytes": (
        "differ: drawn in neither mode"
    ),
}


def set_mode(mode: str) -> str:
    """Returns the statement that sets it in Lockstep."""
    return f"SET compatibility = '{mode}'"
