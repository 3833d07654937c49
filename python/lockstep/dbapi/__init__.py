"""DB-API 2.0 (PEP 249): the interface of Python's database programs.

    >>> from lockstep import dbapi
    >>> with dbapi.connect() as connection:
    ...     cursor = connection.cursor()
    ...     _ = cursor.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
    ...     cursor.executemany("INSERT INTO clicks VALUES (?, ?)", [("ann", 2.5), ("bob", 4.0)])
    ...     _ = cursor.execute("SELECT price FROM clicks WHERE user = ?", ["ann"])
    ...     cursor.fetchall()
    [(2.5,)]

Parameters are ``?`` (``paramstyle`` is ``qmark``), given as a sequence. Each statement takes effect
at once: there are no transactions, ``commit`` does nothing, and ``rollback`` after a change raises
``NotSupportedError``. Threads may share connections, and each uses cursors of its own.

Values: BOOL is ``bool``; SMALLINT, INT and BIGINT are ``int``; FLOAT and DOUBLE ``float``; STRING
``str``; TIMESTAMP a naive ``datetime`` in UTC; DATE a ``date``; NULL ``None``.
"""

from __future__ import annotations

from ._connection import Connection, connect
from ._cursor import Cursor
from ._error import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from ._type import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
"""The version of the interface."""
threadsafety = 2
"""Threads may share the module and connections."""
paramstyle = "qmark"
"""The form of parameters: ``WHERE user = ?``."""

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
