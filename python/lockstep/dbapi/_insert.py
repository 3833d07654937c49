"""Recognises the INSERT whose rows can be appended in one step."""

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
    """``INSERT INTO table [(columns)] VALUES (?, …)``: a placeholder for each value, one row."""

    table: str
    """The table as ``append`` takes it: ``name`` or ``database.name``."""
    columns: tuple[str, ...] | None
    """The columns, where they are given."""
    width: int
    """The number of placeholders."""

    def rows(self, parameters: Sequence[Sequence[Any]]) -> list[Any]:
        """Returns the rows as ``append`` takes them."""
        for number, row in enumerate(parameters):
            if len(row) != self.width:
                raise ProgrammingError(
                    f"the statement has {self.width} `?`, and row {number} has {len(row)} values",
                    code="22023",
                )
        if self.columns is None:
            return [tuple(row) for row in parameters]
        return [dict(zip(self.columns, row, strict=True)) for row in parameters]


def insert_of(sql: str) -> Insert | None:
    """Returns the INSERT that a statement is; ``None`` for one of another form."""
    found = INSERT.fullmatch(sql)
    if found is None:
        return None
    table = ".".join(_name(part) for part in found["table"].split("."))
    columns = None
    if found["columns"] is not None:
        columns = tuple(_name(part) for part in found["columns"].split(","))
    width = found["values"].count("?")
    if columns is not None and (len(columns) != width or len(set(columns)) != width):
        # The database says what is wrong with the statement.
        return None
    return Insert(table, columns, width)


def _name(text: str) -> str:
    return text.strip().strip("`")
