"""The constructs of queries, and how many queries each was drawn in.

A construct is either noted by the generator where it draws it, or found in the text of the query.
The functions are those of the rules, so that a new rule is a new construct.
"""

from __future__ import annotations

import re
from collections import Counter

from .expressions import AGGREGATES, CALLS, OPERATORS
from .modes import MODES

# Sections as in the grammar of the dialect; a pattern, or None for a construct that the generator
# records.
LISTED: list[tuple[str, str, str | None]] = [
    ("SELECT", "projection", None),
    ("SELECT", "sub-query", None),
    ("SELECT", "CTE", r"WITH c AS"),
    ("SELECT", "CTE over a CTE", r"WITH b AS"),
    ("SELECT", "DISTINCT", r"SELECT DISTINCT"),
    ("SELECT", "WHERE", r" WHERE "),
    ("SELECT", "ORDER BY", r" ORDER BY (id|ts)( DESC)?( LIMIT \d+)?$"),
    ("SELECT", "LIMIT", r"LIMIT [1-9]"),
    ("SELECT", "LIMIT 0", r"LIMIT 0"),
    ("SELECT", "UNION ALL", r" UNION ALL "),
    ("SELECT", "union all in a sub-query", None),
    ("SELECT", "group of union", None),
    ("GROUP BY", "GROUP BY", r" GROUP BY "),
    ("GROUP BY", "HAVING", r" HAVING "),
    ("GROUP BY", "whole table", None),
    ("WINDOW", "window", r" WINDOW "),
    ("WINDOW", "two windows", r"\bw1 AS"),
    ("WINDOW", "window in a sub-query", None),
    ("WINDOW", "window over a LAST JOIN", None),
    ("WINDOW", "ROWS", r"ROWS BETWEEN"),
    ("WINDOW", "ROWS_RANGE", r"ROWS_RANGE BETWEEN"),
    ("WINDOW", "ROWS_RANGE in plain numbers", r"ROWS_RANGE BETWEEN \d+ PRECEDING"),
    ("WINDOW", "frame without an end", r"BETWEEN UNBOUNDED"),
    ("WINDOW", "frame that begins beyond all rows", r"BETWEEN (1000|5000[smhd]) "),
    ("WINDOW", "frame that ends before the current row", r"AND \d+[smhd]? PRECEDING"),
    ("WINDOW", "OPEN PRECEDING", r"OPEN PRECEDING"),
    ("WINDOW", "FOLLOWING", r"AND \d+[smhd]? FOLLOWING"),
    ("WINDOW", "UNBOUNDED FOLLOWING", r"UNBOUNDED FOLLOWING"),
    ("WINDOW", "frame that begins after the current row", r"BETWEEN \d+[smhd]? FOLLOWING"),
    ("WINDOW", "MAXSIZE", r" MAXSIZE "),
    ("WINDOW", "EXCLUDE CURRENT_ROW", r"EXCLUDE CURRENT_ROW"),
    ("WINDOW", "EXCLUDE CURRENT_TIME", r"EXCLUDE CURRENT_TIME"),
    ("WINDOW", "INSTANCE_NOT_IN_WINDOW", r"INSTANCE_NOT_IN_WINDOW"),
    ("WINDOW", "window UNION", r"\(UNION "),
    ("calls", "first_value", r"\bfirst_value\("),
    ("calls", "last_value", r"\blast_value\("),
    ("calls", "lag", r"\blag\("),
    ("JOIN", "LAST JOIN", r" LAST JOIN "),
    ("JOIN", "LAST JOIN of two", r"LAST JOIN.*AS r .*LAST JOIN.*AS s "),
    ("JOIN", "LAST JOIN without ORDER BY", r"AS r ON "),
    ("JOIN", "LAST JOIN up to a time", r"AND [rs]\.ts <=? m\.ts"),
    ("JOIN", "LAST JOIN with another condition", None),
    ("JOIN", "last join in a sub-query", None),
    ("JOIN", "sub-query on the right", None),
    ("JOIN", "LEFT JOIN", r" LEFT JOIN "),
    *(
        ("values", name, pattern)
        for name, pattern in {
            "+": r" \+ ",
            "-": r" - ",
            "*": r" \* ",
            "/": r" / ",
            "DIV": r" DIV ",
            "%": r" % ",
            "&": r" & ",
            "|": r" \| ",
            "^": r" \^ ",
            "~": r"\(~ ",
            "sign": r"\(- ",
            "||": r" \|\| ",
            "=": r" = ",
            "<>": r" <> ",
            "<": r" < ",
            "<=": r" <= ",
            ">": r" > ",
            ">=": r" >= ",
            "BETWEEN": r"[^T] BETWEEN \S+ AND ",
            "NOT BETWEEN": r" NOT BETWEEN ",
            "IN": r"[^T] IN \(",
            "NOT IN": r" NOT IN \(",
            "IS NULL": r" IS NULL",
            "IS NOT NULL": r" IS NOT NULL",
            "AND": r" AND ",
            "OR": r" OR ",
            "NOT": r"\(NOT ",
            "XOR": r" XOR ",
            "LIKE": r"[^T] LIKE ",
            "NOT LIKE": r" NOT LIKE ",
            "ESCAPE": r" ESCAPE ",
            "ILIKE": r" ILIKE ",
            "RLIKE": r" RLIKE ",
            "CASE": r"CASE WHEN ",
            "CASE of a value": r"CASE (?!WHEN)",
            "NULL": r"CAST\(NULL AS",
            "element of an ARRAY": r"\]\[",
            "element of a MAP": r"map\('a'",
        }.items()
    ),
    *(
        ("values", f"CAST to {name}", rf" AS {name}\)")
        for name in ("SMALLINT", "INT", "BIGINT", "DOUBLE", "STRING", "BOOL", "TIMESTAMP", "DATE")
    ),
]

# Names of the generator for constructs that have another name above.
NOTED = {
    "total": "whole table",
    "joined_window": "window over a LAST JOIN",
    "condition of a last join": "LAST JOIN with another condition",
}
CALL = re.compile(r"\b([a-z_0-9]+)`?\(")


def called(text: str) -> set[str]:
    """Returns the functions that a text calls."""
    return set(CALL.findall(text))


def rules() -> list[str]:
    """Returns the functions of all rules, of both modes."""
    tables = [OPERATORS, *CALLS.values()]
    by_type = [rule for table in tables for rules in table.values() for rule in rules]
    of_groups = [rule for mode in MODES for rule in AGGREGATES[mode]]
    return sorted({name for rule in by_type + of_groups for name in called(rule[2])})


class Constructs:
    """How many queries of each mode have each construct."""

    def __init__(self) -> None:
        functions = rules()
        self.functions = set(functions)
        self.patterns = {name: re.compile(pattern) for _, name, pattern in LISTED if pattern}
        self.sections = [(section, name) for section, name, _ in LISTED]
        listed = {name for _, name in self.sections}
        self.sections += [("function", name) for name in functions if name not in listed]
        self.counts: dict[str, Counter[str]] = {mode: Counter() for mode in MODES}

    def add(self, sql: str, noted: Counter[str], mode: str) -> None:
        """Counts one query."""
        found = {name for name, pattern in self.patterns.items() if pattern.search(sql)}
        found |= {NOTED.get(name, name) for name in noted}
        found |= called(sql) & self.functions
        self.counts[mode].update(found)

    def missing(self) -> list[str]:
        """Returns the constructs that were drawn in no mode."""
        return [name for _, name in self.sections if not any(c[name] for c in self.counts.values())]

    def __str__(self) -> str:
        heading = " ".join(f"{mode:>9}" for mode in MODES)
        lines = [f"{'':9} {'construct':40} {heading}"]
        for section, name in self.sections:
            counts = " ".join(f"{self.counts[mode][name]:9}" for mode in MODES)
            lines.append(f"{section:9} {name:40} {counts}")
        return "\n".join(lines)
