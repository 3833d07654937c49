"""DB-API 2.0 (PEP 249), the standard interface of Python to databases.

    >>> from lockstep import dbapi
    >>> with dbapi.connect() as connection:
    ...     cursor = connection.cursor()
    ...     _ = cursor.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
    ...     cursor.executemany("INSERT INTO clicks VALUES (?, ?)", [("ann", 2.5), ("bob", 4.0)])
    ...     _ = cursor.execute("SELECT price FROM clicks WHERE user = ?", ["ann"])
    ...     cursor.fetchall()
    [(2.5,)]

Parameters are written ``?`` (``paramstyle`` is ``qmark``) and passed as a sequence. Each statement
takes effect immediately: transactions are not supported, ``commit`` does nothing, and ``rollback``
after a change raises ``NotSupportedError``. Threads can share connections, but not cursors.

Values: BOOL is ``bool``; SMALLINT, INT and BIGINT are ``int``; FLOAT and DOUBLE are ``float``;
STRING is ``str``; TIMESTAMP is a naive ``datetime`` in UTC; DATE is a ``date``; NULL is ``None``.
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
"""Version of the interface."""
threadsafety = 2
"""Threads can share the module and connections."""
paramstyle = "qmark"
"""Form of parameters: ``WHERE user = ?``."""

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
