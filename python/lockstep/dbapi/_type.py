"""Type objects and constructors of DB-API 2.0."""

from __future__ import annotations

import datetime


class TypeObject:
    """Group of column types; equal to the name of each type in ``cursor.description``."""

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
"""STRING columns."""
BINARY = TypeObject("BINARY")
"""Binary columns, which Lockstep does not support."""
NUMBER = TypeObject("NUMBER", "BOOL", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
"""Columns of numeric types and BOOL."""
DATETIME = TypeObject("DATETIME", "TIMESTAMP", "DATE")
"""TIMESTAMP and DATE columns."""
ROWID = TypeObject("ROWID")
"""Row identifiers, which Lockstep does not support."""

Date = datetime.date
"""Creates a value for a DATE column."""
Time = datetime.time
"""Creates a time of day. No column type can store it."""
Timestamp = datetime.datetime
"""Creates a value for a TIMESTAMP column; in UTC if it has no time zone."""
Binary = bytes
"""Creates bytes. No column type can store them."""


def DateFromTicks(ticks: float) -> datetime.date:
    """Returns the date in UTC for a number of seconds since the epoch.

    >>> from lockstep import dbapi
    >>> dbapi.DateFromTicks(86_400)
    datetime.date(1970, 1, 2)
    """
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> datetime.time:
    """Returns the time of day in UTC for a number of seconds since the epoch.

    >>> from lockstep import dbapi
    >>> dbapi.TimeFromTicks(60)
    datetime.time(0, 1)
    """
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """Returns the naive time in UTC for a number of seconds since the epoch.

    >>> from lockstep import dbapi
    >>> dbapi.TimestampFromTicks(86_400)
    datetime.datetime(1970, 1, 2, 0, 0)
    """
    return datetime.datetime.fromtimestamp(ticks, datetime.timezone.utc).replace(tzinfo=None)
