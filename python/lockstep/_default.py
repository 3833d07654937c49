"""The functions of the package on a default connection, in memory, that the first call makes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._connection import Connection, Prepared, Verification, connect

if TYPE_CHECKING:
    from ._relation import Relation

_lock = threading.Lock()
_connection: Connection | None = None


def default_connection() -> Connection:
    """Returns the connection of ``lockstep.sql`` and the other functions of the package.

    It is a database in memory, which exists as long as the process.
    """
    global _connection
    with _lock:
        if _connection is None:
            _connection = connect()
        return _connection


def sql(query: str, parameters: Sequence[Any] = ()) -> Relation:
    """Makes a relation of a query, as ``Connection.sql``, on the default connection.

    >>> import lockstep
    >>> lockstep.sql("SELECT 1 AS one").fetchall()
    [(1,)]
    """
    return default_connection().sql(query, parameters)


def execute(sql: str, parameters: Sequence[Any] = ()) -> Relation:
    """Runs a script, as ``Connection.execute``, on the default connection."""
    return default_connection().execute(sql, parameters)


def append(table: Any, data: Any = None, **options: Any) -> int:
    """Appends rows to a table, as ``Connection.append``, on the default connection."""
    return default_connection().append(table, data, **options)


def request(target: str, rows: Any) -> Any:
    """Answers requests, as ``Connection.request``, on the default connection."""
    return default_connection().request(target, rows)


def prepare(target: str) -> Prepared:
    """Compiles a request, as ``Connection.prepare``, on the default connection."""
    return default_connection().prepare(target)


def verify(deployment: str, **options: Any) -> Verification:
    """Verifies a deployment, as ``Connection.verify``, on the default connection."""
    return default_connection().verify(deployment, **options)
