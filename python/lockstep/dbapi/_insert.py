"""Recognizes INSERT statements whose rows can be appended in one step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._error import ProgrammingError

NAME = r"(?:[A-Za-z_]\w*|`[^`.]+`)"

INSERT = re.compile(
    rf"""\s* INSERT \s+ INTO \s+ (?P<table> {NAME} (?:\s*\.\s*{NAME})? ) \s*
        (?: \( \s* (?P<columns> {NAME} (?:\s*,\s*{NAME})* ) \s* \) \s* )?
        VALUES? \s* \( \s* (?P<values> \? (?:\s*,\s*\?)* ) \s* \) \s* ;? \s*""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True)
class Insert:
    """``INSERT INTO table [(columns)] VALUES (?, …)``: one row, whose values are all ``?``."""

    table: str
    """Table in the form for ``append``: ``name`` or ``database.name``."""
    columns: tuple[str, ...] | None
    """Column names; ``None`` if the statement has no column list."""
    width: int
    """Number of placeholders."""

    def rows(self, parameters: Sequence[Sequence[Any]]) -> list[Any]:
        """Returns the rows in the form for ``append``."""
        for number, row in enumerate(parameters):
            if len(row) != self.width:
                raise ProgrammingError(
                    f"row {number}: {len(row)} parameters supplied, "
                    f"but the statement requires {self.width}",
                    code="22023",
                )
        if self.columns is None:
            return [tuple(row) for row in parameters]
        return [dict(zip(self.columns, row, strict=True)) for row in parameters]


def insert_of(sql: str) -> Insert | None:
    """Returns a parsed INSERT statement; ``None`` for a statement of another form."""
    found = INSERT.fullmatch(sql)
    if found is None:
        return None
    table = ".".join(_name(part) for part in found["table"].split("."))
    columns = None
    if found["columns"] is not None:
        columns = tuple(_name(part) for part in found["columns"].split(","))
    width = found["values"].count("?")
    if columns is not None and (len(columns) != width or len(set(columns)) != width):
        # The database reports the error in the statement.
        return None
    return Insert(table, columns, width)


def _name(text: str) -> str:
    return text.strip().strip("`")
