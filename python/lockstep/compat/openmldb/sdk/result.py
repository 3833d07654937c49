"""Result sets of ``OpenMLDBSdk``, whose values are read by row and column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dbapi


class Schema:
    """Names and types of columns."""

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        self._columns = list(columns)

    def GetColumnCnt(self) -> int:
        """Returns the number of columns."""
        return len(self._columns)

    def GetColumnName(self, index: int) -> str:
        """Returns the name of a column by its 0-based index."""
        return self._columns[index][0]

    def GetColumnType(self, index: int) -> str:
        """Returns the type of a column, a value of ``dbapi.Type``."""
        return self._columns[index][1]


class ResultSet:
    """Rows of a query; call ``Next`` before each row."""

    def __init__(self, columns: Sequence[tuple[str, str]], rows: list[tuple[Any, ...]]) -> None:
        self._schema = Schema(columns)
        self._rows = rows
        self._current = -1

    @classmethod
    def of(cls, cursor: dbapi.Cursor, _: object = None) -> ResultSet:
        """Returns the rows of the last statement of a cursor."""
        if cursor.description is None:
            return cls([], [])
        return cls([column[:2] for column in cursor.description], cursor.fetchall())

    def Size(self) -> int:
        """Returns the number of rows."""
        return len(self._rows)

    def Next(self) -> bool:
        """Moves to the next row; returns whether one exists."""
        self._current = min(self._current + 1, len(self._rows))
        return self._current < len(self._rows)

    def Reset(self) -> bool:
        """Moves before the first row."""
        self._current = -1
        return True

    def GetSchema(self) -> Schema:
        """Returns the columns."""
        return self._schema

    def IsNULL(self, index: int) -> bool:
        """Returns whether a value of the current row is NULL."""
        return self._value(index) is None

    def _value(self, index: int) -> Any:
        return self._rows[self._current][index]

    GetBoolUnsafe = _value
    GetInt16Unsafe = _value
    GetInt32Unsafe = _value
    GetInt64Unsafe = _value
    GetFloatUnsafe = _value
    GetDoubleUnsafe = _value
    GetStringUnsafe = _value
    GetTimeUnsafe = _value

    def GetAsStringUnsafe(self, index: int) -> str:
        """Returns a value of the current row as a string."""
        value = self._value(index)
        return "NULL" if value is None else str(value)
