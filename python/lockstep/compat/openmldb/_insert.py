"""Finds the columns of the placeholders of an INSERT, for rows passed as dicts."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = r"(?:[A-Za-z_]\w*|`[^`]+`)"

HEAD = re.compile(
    rf"""\s* INSERT \s+ (?:OR \s+)? (?:IGNORE \s+)? INTO \s+
        (?P<table> {NAME} (?:\s*\.\s*{NAME})? ) \s*
        (?: \( \s* (?P<columns> {NAME} (?:\s*,\s*{NAME})* ) \s* \) \s* )?
        VALUES? \s* \(""",
    re.IGNORECASE | re.VERBOSE,
)

ITEM = re.compile(
    r"""(?P<text> '(?:\\.|''|[^'\\])*' | "(?:\\.|""|[^"\\])*" | `[^`]*` )
        | (?P<mark> [(),?] ) | (?P<other> [^'"`(),?]+ )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Placeholders:
    """Placeholders in the first row of an INSERT."""

    table: str
    """Table name, as written in the statement."""
    columns: list[str] | None
    """Column names; ``None`` if the statement has no column list."""
    places: list[int]
    """Position in the row of each placeholder, starting at 0."""

    def names(self, columns: list[str]) -> list[str]:
        """Returns the column of each placeholder; ``columns`` are the columns of the table."""
        named = self.columns or columns
        return [named[place] for place in self.places if place < len(named)]


def placeholders_of(sql: str) -> Placeholders | None:
    """Returns the placeholders of an INSERT; ``None`` for any other statement."""
    head = HEAD.match(sql)
    if head is None:
        return None
    places = []
    place, depth = 0, 0
    for item in ITEM.finditer(sql, head.end()):
        mark = item["mark"]
        if mark == "?":
            places.append(place)
        elif mark == "," and depth == 0:
            place += 1
        elif mark == "(":
            depth += 1
        elif mark == ")":
            if depth == 0:
                break
            depth -= 1
    columns = None
    if head["columns"] is not None:
        columns = [name.strip().strip("`") for name in head["columns"].split(",")]
    return Placeholders(head["table"], columns, places)
