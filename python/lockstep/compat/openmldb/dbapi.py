"""DB-API module of OpenMLDB's Python package: ``connect``, connections and cursors.

Extends ``lockstep.dbapi`` by the additions of OpenMLDB's package: rows as dicts, request mode for a
query with a dict, ``batch_row_request``, a ``callproc`` that returns the cursor, lists of tables.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ... import _connection, dbapi
from ...dbapi import (
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
from ...dbapi._shared import SharedDatabase
from ._cluster import open_cluster
from ._insert import placeholders_of

apilevel = "2.0"
"""Version of the interface."""
paramstyle = "qmark"
"""Form of parameters: ``WHERE user = ?``."""
threadsafety = 2
"""Threads can share the module and connections."""

SELECT = re.compile(r"\s*SELECT\b", re.IGNORECASE)
INSERT = re.compile(r"\s*INSERT\b", re.IGNORECASE)

WITHOUT_DATABASE = re.compile(r"\s*(CREATE\s+DATABASE|DROP\s+DATABASE|SHOW|USE|SET)\b", re.I)
"""Statements that run even if the current database does not exist."""

TABLES = "SELECT name FROM lockstep.tables WHERE database_name = ? ORDER BY name"
ALL_TABLES = "SELECT name FROM lockstep.tables ORDER BY database_name, name"

SCHEMA_NAMES = {
    "BOOL": "bool",
    "SMALLINT": "int16",
    "INT": "int32",
    "BIGINT": "int64",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
"""Type names in ``get_resultset_schema``."""


class Type:
    """Types in ``cursor.description``."""

    Bool = "BOOL"
    Int16 = "SMALLINT"
    Int32 = "INT"
    Int64 = "BIGINT"
    Float = "FLOAT"
    Double = "DOUBLE"
    String = "STRING"
    Date = "DATE"
    Timestamp = "TIMESTAMP"


class CursorClosedException(InterfaceError):
    """Reports use of a closed cursor."""


class ConnectionClosedException(InterfaceError):
    """Reports use of a closed connection."""


def connect(
    database: str | None = None,
    zk: str | None = None,
    zkPath: str | int | None = None,
    host: str | None = None,
    port: int | str | None = None,
    user: str | None = None,
    password: str | None = None,
    **options: Any,
) -> Connection:
    """Opens a connection to the database to which a cluster is mapped.

    The mapping is defined by ``map_cluster`` or the environment. ``database`` is the current
    database, which may be created later. OpenMLDB's client options, such as ``requestTimeout``,
    ``zkLogLevel`` and ``maxSqlCacheSize``, are accepted but ignored. Raises ``OperationalError`` if
    the cluster is not mapped or the database cannot be opened.
    """
    if isinstance(zkPath, int):
        # Host and port were passed in the positions of zk and zkPath.
        host, port, zk, zkPath = zk, zkPath, None, None
    opened, shared = open_cluster(zk, zkPath, host, port, user, password)
    return Connection(opened, shared, database)


class Connection(dbapi.Connection):
    """Connection to a cluster."""

    def __init__(
        self,
        lockstep: _connection.Connection,
        shared: SharedDatabase | None,
        database: str | None,
    ) -> None:
        super().__init__(lockstep, shared)
        self._wanted = database or None

    def cursor(self) -> Cursor:
        """Creates a cursor."""
        self.check_open()
        return Cursor(self)

    def rollback(self) -> None:
        """Does nothing: each statement has already taken effect."""
        self.check_open()

    def check_open(self) -> None:
        """Raises ``ConnectionClosedException`` if the connection is closed."""
        if not self._is_open:
            raise ConnectionClosedException("the connection is closed", code="08003")

    def want(self, database: str | None) -> None:
        """Selects a database when the next statement requires one."""
        if database and database != self._database:
            self._wanted = database

    @contextlib.contextmanager
    def calling(self, operation: str = "") -> Iterator[None]:
        """Runs a call in the current database, which must exist if the call requires it."""
        if self._wanted is not None and not WITHOUT_DATABASE.match(operation):
            quoted = self._wanted.replace("`", "``")
            use = f"USE `{quoted}`"
            with super().calling(use):
                self._lockstep.execute(use)
            self._wanted = None
        before = self._database
        with super().calling(operation):
            yield
        if self._database != before:
            self._wanted = None


class Answers:
    """Results of request rows, in the form in which a cursor fetches rows of a query."""

    rows_affected = None

    def __init__(self, prepared: _connection.Prepared, rows: Iterable[Any]) -> None:
        self.columns = [name for name, _ in prepared.output]
        self.types = [data_type for _, data_type in prepared.output]
        answers = [prepared(row) for row in rows]
        # A request row that WHERE rejects has no result.
        kept = [answer for answer in answers if answer is not None]
        self._rows = [tuple(answer[name] for name in self.columns) for answer in kept]
        self._fetched = 0

    def __len__(self) -> int:
        return len(self._rows)

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        """Returns the next ``size`` rows, or fewer at the end."""
        start, self._fetched = self._fetched, min(len(self), self._fetched + max(size, 0))
        return self._rows[start : self._fetched]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows not yet fetched."""
        return self.fetchmany(len(self))


class Cursor(dbapi.Cursor):
    """Runs statements and fetches rows, as cursors of OpenMLDB's package do."""

    def execute(self, operation: str, parameters: Any = ()) -> Cursor | None:
        """Runs a statement and returns this cursor; ``None`` after an INSERT.

        ``parameters`` is a tuple with a value for each ``?``, or a dict: the values by column for
        an INSERT, or a request row for a query, which then runs in request mode.
        """
        if isinstance(parameters, str):
            parameters = (parameters,)
        if _is_rows(parameters) and len(parameters) == 1:
            parameters = parameters[0]
        if INSERT.match(operation):
            super().execute(operation, self._values(operation, parameters))
            return None
        if SELECT.match(operation):
            rows = parameters if _is_rows(parameters) else [parameters]
            if all(isinstance(row, Mapping) for row in rows):
                return self._request(operation, rows)
        super().execute(operation, local(parameters))
        return self

    def executemany(
        self, operation: str, parameters: Iterable[Any], batch_number: int = 200
    ) -> Cursor | None:
        """Runs an INSERT for each row, a tuple or a dict; other statements as ``execute`` does.

        ``batch_number`` is ignored: all rows are inserted in one step if every value of the
        statement is a placeholder.
        """
        rows = list(parameters)
        if not INSERT.match(operation) or not rows or "?" not in operation:
            return self.execute(operation, rows)
        super().executemany(operation, [self._values(operation, row) for row in rows])
        return None

    def callproc(self, procname: str, parameters: Any = ()) -> Cursor:
        """Calls a deployment or procedure with one request row, a dict or a tuple.

        Returns this cursor, with the result. Raises ``DatabaseError`` without a request row.
        """
        if not parameters:
            raise DatabaseError(
                "missing request row", code="22023", hint="Pass its values in `parameters`."
            )
        super().callproc(procname, local(parameters))
        return self

    def executeRequest(self, sql: str, parameter: Any) -> Cursor:
        """Runs a query in request mode for one request row."""
        return self._request(sql, [parameter])

    def batch_row_request(self, sql: str, commonCol: Sequence[str], parameters: Any) -> Cursor:
        """Runs a query in request mode for request rows, which are dicts or tuples.

        ``commonCol`` lists the columns with the same value in all rows; it is ignored.
        """
        return self._request(sql, parameters if _is_rows(parameters) else [parameters])

    def get_tables(self, db: str) -> list[str]:
        """Returns the names of the tables of a database."""
        return self._names(TABLES, (db,))

    def get_all_tables(self) -> list[str]:
        """Returns the names of the tables of all databases."""
        return self._names(ALL_TABLES)

    def get_databases(self) -> list[str]:
        """Returns the names of the databases."""
        return self._names("SHOW DATABASES")

    get_all_databases = get_databases

    def is_online_mode(self) -> bool:
        """Returns ``True``: statements always run in online mode, on a single store of rows."""
        return True

    def get_resultset_schema(self) -> list[dict[str, str]]:
        """Returns the columns as dicts with ``name`` and ``type``, such as ``int64``."""
        columns = self.description or []
        return [{"name": name, "type": SCHEMA_NAMES.get(of, of)} for name, of, *_ in columns]

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Returns the next ``size`` rows, or fewer at the end; defaults to ``arraysize``."""
        if size is not None and size < 0:
            raise DatabaseError(f"`size` must not be negative, found {size}", code="22023")
        return [self._shown(row) for row in super().fetchmany(size)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows not yet fetched."""
        return [self._shown(row) for row in super().fetchall()]

    def _check_open(self) -> None:
        if not self._is_open:
            raise CursorClosedException("the cursor is closed", code="24000")
        self._connection.check_open()

    def _request(self, sql: str, rows: Iterable[Any]) -> Cursor:
        self._check_open()
        self._reset()
        given = [local(row) for row in rows]
        with self._connection.calling(sql):
            prepared = self._connection.lockstep.prepare(sql.strip().rstrip(";"))
            answers = Answers(prepared, given)
        self._take(answers)
        return self

    def _names(self, sql: str, parameters: Sequence[Any] = ()) -> list[str]:
        self._check_open()
        with dbapi.Cursor(self._connection) as cursor:
            return [name for (name,) in cursor.execute(sql, parameters).fetchall()]

    def _values(self, operation: str, row: Any) -> Any:
        """Returns the values for the placeholders of an INSERT."""
        if not isinstance(row, Mapping):
            return local(row)
        found = placeholders_of(operation)
        if found is None:
            raise ProgrammingError("rows as dicts require an INSERT statement", code="22023")
        columns = found.columns or self._columns_of(found.table)
        names = found.names(columns)
        missing = [name for name in names if name not in row]
        if missing:
            raise ProgrammingError(f"missing value for column `{missing[0]}`", code="22023")
        return local([row[name] for name in names])

    def _columns_of(self, table: str) -> list[str]:
        with dbapi.Cursor(self._connection) as cursor:
            cursor.execute(f"SELECT * FROM {table} LIMIT 0")
            return [name for name, *_ in cursor.description or []]

    def _shown(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(shown(value) for value in row)


def _is_rows(parameters: Any) -> bool:
    """Returns whether ``parameters`` is a list of rows rather than a single row."""
    return (
        isinstance(parameters, (list, tuple))
        and len(parameters) > 0
        and isinstance(parameters[0], (Mapping, tuple))
    )


def shown(value: Any) -> Any:
    """Converts a value as OpenMLDB's package does: times to milliseconds, dates to strings."""
    if isinstance(value, datetime.datetime):
        since = value.replace(tzinfo=datetime.timezone.utc) - EPOCH
        return since // datetime.timedelta(milliseconds=1)
    return value.isoformat() if isinstance(value, datetime.date) else value


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def local(values: Any) -> Any:
    """Converts naive times, which are in local time, in a row or in parameters to UTC."""
    if isinstance(values, Mapping):
        return {name: _instant(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return tuple(_instant(value) for value in values)
    return values


def _instant(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc)
    return value


__all__ = [
    "Connection",
    "ConnectionClosedException",
    "Cursor",
    "CursorClosedException",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Type",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
