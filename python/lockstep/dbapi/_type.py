"""The type objects and constructors of DB-API 2.0."""

from __future__ import annotations

import datetime


class TypeObject:
    """A class of column types: equal to the name of each of them in ``cursor.description``."""

    def __init__(self, name: str, *types: str) -> None:
        self._name = name
        self._types = frozenset(types)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self._name == other._name
        return isinstance(other, str) and other in self._types

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"lockstep.dbapi.{self._name}"


STRING = TypeObject("STRING", "STRING")
"""Columns of text."""
BINARY = TypeObject("BINARY")
"""Columns of bytes, which Lockstep does not have."""
NUMBER = TypeObject("NUMBER", "BOOL", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
"""Columns of numbers, and of booleans."""
DATETIME = TypeObject("DATETIME", "TIMESTAMP", "DATE")
"""Columns of times and dates."""
ROWID = TypeObject("ROWID")
"""Row identifiers, which Lockstep does not have."""

Date = datetime.date
"""Makes a value for a column of type DATE."""
Time = datetime.time
"""Makes a time of day, for which there is no type of column."""
Timestamp = datetime.datetime
"""Makes a value for a column of type TIMESTAMP. Without a time zone it is UTC."""
Binary = bytes
"""Makes bytes, for which there is no type of column."""


def DateFromTicks(ticks: float) -> datetime.date:
    """Returns the day in UTC of a number of seconds since the epoch.

    >>> from lockstep import dbapi
    >>> dbapi.DateFromTicks(86_400)
    datetime.date(1970, 1, 2)
    """
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> datetime.time:
    """Returns the time of day in UTC of a number of seconds since the epoch.

    >>> from lockstep import dbapi
    >>> dbapi.TimeFromTicks(60)
    datetime.time(0, 1)
    """
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """Returns the time in UTC, without a time zone, of a number of seconds since the epoch.

    >>> from lockstep import dbapi
    >>> dbapi.TimestampFromTicks(86_400)
    datetime.datetime(1970, 1, 2, 0, 0)
    """
    return datetime.datetime.fromtimestamp(ticks, datetime.timezone.utc).replace(tzinfo=None)
