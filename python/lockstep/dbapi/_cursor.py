"""DB-API 2.0 cursors, which run statements and fetch rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._relation import Relation
from ._error import InterfaceError, ProgrammingError
from ._insert import insert_of

if TYPE_CHECKING:
    from ._connection import Connection

Column = tuple[str, str, None, None, None, None, None]
"""Column name and SQL type; the other items of PEP 249 are ``None``."""

ROW_TYPES = frozenset({tuple, list})
"""Types of most rows; ``isinstance`` with an abstract class is slow."""

UNDEFINED_OBJECT = "42704"
"""Code for a deployment or a procedure that does not exist."""

PROCEDURE_COLUMNS = re.compile(r"\s*CREATE\s+PROCEDURE[^(]*\(([^)]*)\)", re.IGNORECASE)
"""Columns of the request row in the definition of a procedure."""

COLUMN_NAME = re.compile(r"\s*(?:CONST\s+)?`?(\w+)", re.IGNORECASE)
"""Name of a column in such a definition."""


class Cursor:
    """Runs statements on a connection and fetches rows. Threads must not share a cursor.

    As a context manager, a cursor closes itself at the end of the block; as an iterator, it returns
    the rows not yet fetched.

    >>> from lockstep import dbapi
    >>> list(dbapi.connect().cursor().execute("SELECT 1 AS one"))
    [(1,)]
    """

    arraysize = 1
    """Default number of rows that ``fetchmany`` returns."""
    lastrowid: None = None
    """Always ``None``, because rows have no identifiers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._relation: Relation | None = None
        self._description: list[Column] | None = None
        self._row_count = -1
        self._fetched = 0
        self._is_open = True

    @property
    def connection(self) -> Connection:
        """Connection that created the cursor.

        >>> from lockstep import dbapi
        >>> connection = dbapi.connect()
        >>> connection.cursor().connection is connection
        True
        """
        return self._connection

    @property
    def description(self) -> list[Column] | None:
        """Columns of the rows; ``None`` if the last statement returned no rows.

        ``description[i][1]`` is the SQL type, such as ``'BIGINT'``, and equals the type object of
        its group, such as ``dbapi.NUMBER``.

        >>> from lockstep import dbapi
        >>> cursor = dbapi.connect().execute("SELECT 1 AS one")
        >>> cursor.description
        [('one', 'INT', None, None, None, None, None)]
        >>> cursor.description[0][1] == dbapi.NUMBER
        True
        """
        return self._description

    @property
    def rowcount(self) -> int:
        """Number of rows returned or written by the last statement; -1 if unknown.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").rowcount
        1
        """
        return self._row_count

    @property
    def rownumber(self) -> int | None:
        """0-based index of the next row; ``None`` if the last statement returned no rows.

        >>> from lockstep import dbapi
        >>> cursor = dbapi.connect().execute("SELECT 1 AS one")
        >>> cursor.rownumber, cursor.fetchone(), cursor.rownumber
        (0, (1,), 1)
        """
        return None if self._relation is None else self._fetched

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Runs a statement, with a value for each ``?``, and returns this cursor.

        - ``operation``: statement. Without parameters, it can be a script of several statements;
          the rows are the result of the last statement.
        - ``parameters``: sequence of values.

        Raises ``ProgrammingError`` for an invalid statement, ``DataError`` and ``IntegrityError``
        for invalid values, ``OperationalError`` for limits, timeouts, disks and servers.

        >>> from lockstep import dbapi
        >>> dbapi.connect().cursor().execute("SELECT ? AS one", [1]).fetchall()
        [(1,)]
        """
        self._check_open()
        self._reset()
        values = positional(parameters)
        self._take(self._connection.run(operation, values))
        return self

    def executemany(self, operation: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Runs a statement once for each sequence of values.

        - ``operation``: statement. ``INSERT INTO t [(columns)] VALUES (?, …)`` appends all rows in
          one step, all or none. Any other statement runs once for each sequence; if a run fails,
          the previous runs remain in effect.
        - ``parameters``: iterable of sequences of values.

        Discards rows that the statement returns. Raises the errors of ``execute``.

        >>> from lockstep import dbapi
        >>> cursor = dbapi.connect().cursor()
        >>> _ = cursor.execute("CREATE TABLE t (a INT, b STRING)")
        >>> cursor.executemany("INSERT INTO t VALUES (?, ?)", [(1, "x"), (2, "y")])
        >>> cursor.rowcount
        2
        """
        self._check_open()
        self._reset()
        rows = [positional(row) for row in parameters]
        insert = insert_of(operation)
        if insert is not None:
            self._row_count = self._connection.append(insert.table, insert.rows(rows))
            return
        counts = [self._connection.run(operation, row).rows_affected for row in rows]
        self._row_count = -1 if None in counts else sum(count or 0 for count in counts)

    def callproc(self, procname: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Calls a deployment or a procedure with one request row; the result is fetched as rows.

        - ``procname``: name of the deployment or procedure.
        - ``parameters``: values of the request row in column order, or a mapping from column names
          to values. A mapping must have the columns on which the result depends; other keys are
          ignored.

        Returns ``parameters``, as PEP 249 specifies. Raises ``ProgrammingError`` if ``procname``
        does not exist or the row lacks a value.

        >>> from lockstep import dbapi
        >>> cursor = dbapi.connect().cursor()
        >>> _ = cursor.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
        >>> _ = cursor.execute("DEPLOY twice AS SELECT price * 2 AS p FROM clicks")
        >>> _ = cursor.callproc("twice", {"price": 2.5})
        >>> cursor.fetchall()
        [(5.0,)]
        """
        self._check_open()
        self._reset()
        values = parameters
        if isinstance(parameters, Mapping):
            columns, required = self._request_columns(procname)
            missing = [f"`{name}`" for name in required if name not in parameters]
            if missing:
                raise ProgrammingError(
                    f"missing value in the request row of `{procname}` for {', '.join(missing)}",
                    code="22023",
                    hint="Pass None for NULL.",
                )
            values = [parameters.get(name) for name in columns]
        values = positional(values)
        name = _quoted(procname)
        places = ", ".join("?" * len(values))
        self._take(self._connection.run(f"CALL {name}({places})", values))
        return parameters

    def fetchone(self) -> tuple[Any, ...] | None:
        """Returns the next row; ``None`` after the last row.

        Raises ``ProgrammingError`` if the last statement returned no rows.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").fetchone()
        (1,)
        """
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Returns the next ``size`` rows, or fewer at the end; ``size`` defaults to ``arraysize``.

        Raises ``ProgrammingError`` if the last statement returned no rows.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").fetchmany(10)
        [(1,)]
        """
        rows = self._rows().fetchmany(self.arraysize if size is None else size)
        self._fetched += len(rows)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows not yet fetched.

        Raises ``ProgrammingError`` if the last statement returned no rows.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").fetchall()
        [(1,)]
        """
        rows = self._rows().fetchall()
        self._fetched += len(rows)
        return rows

    def nextset(self) -> None:
        """Returns ``None``: only the last statement of a script returns rows.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").nextset()
        """
        self._check_open()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing, as PEP 249 allows.

        >>> from lockstep import dbapi
        >>> dbapi.connect().cursor().setinputsizes([10])
        """

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing, as PEP 249 allows.

        >>> from lockstep import dbapi
        >>> dbapi.connect().cursor().setoutputsize(10)
        """

    def close(self) -> None:
        """Closes the cursor and frees its rows. Closing a closed cursor does nothing.

        >>> from lockstep import dbapi
        >>> dbapi.connect().cursor().close()
        """
        # Keeps the number of rows, which SQLAlchemy reads later.
        self._relation = None
        self._is_open = False

    def __enter__(self) -> Cursor:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def _request_columns(self, procname: str) -> tuple[list[str], list[str]]:
        """Returns the columns, and the required columns, of a request row of ``procname``."""
        try:
            with self._connection.calling():
                prepared = self._connection.lockstep.prepare(procname.replace("`", ""))
            return [name for name, _ in prepared.input], prepared.required
        except ProgrammingError as error:
            if error.code != UNDEFINED_OBJECT:
                raise
        show = f"SHOW CREATE PROCEDURE {_quoted(procname)}"
        ((_, _, definition),) = self._connection.run(show, ()).fetchall()
        found = PROCEDURE_COLUMNS.match(definition)
        columns = found[1].split(",") if found is not None else []
        names = [COLUMN_NAME.match(column)[1] for column in columns]
        return names, names

    def _check_open(self) -> None:
        if not self._is_open:
            raise InterfaceError("the cursor is closed", code="24000")
        self._connection.check_open()

    def _reset(self) -> None:
        self._relation = None
        self._description = None
        self._row_count = -1
        self._fetched = 0

    def _take(self, relation: Relation) -> None:
        columns = zip(relation.columns, relation.types, strict=True)
        description: list[Column] = [(*column, None, None, None, None, None) for column in columns]
        if description:
            self._relation = relation
            self._description = description
            self._row_count = len(relation)
        elif relation.rows_affected is not None:
            self._row_count = relation.rows_affected

    def _rows(self) -> Relation:
        self._check_open()
        if self._relation is None:
            raise ProgrammingError(
                "no rows to fetch",
                code="24000",
                hint="Execute a query first.",
            )
        return self._relation


def _quoted(name: str) -> str:
    """Returns ``name`` or ``database.name`` quoted with backticks."""
    return ".".join(f"`{part.strip('`')}`" for part in name.split("."))


def positional(parameters: Any) -> Sequence[Any]:
    """Returns parameters as a sequence; raises ``ProgrammingError`` if they are not iterable."""
    if type(parameters) in ROW_TYPES:
        return parameters
    if parameters is None:
        return ()
    if isinstance(parameters, (str, bytes, Mapping)) or not isinstance(parameters, Iterable):
        raise ProgrammingError(
            f"parameters must be a sequence of values, not a Python `{_type(parameters)}`",
            code="22023",
            hint="Pass a tuple or a list with a value for each `?`.",
        )
    return parameters if isinstance(parameters, Sequence) else list(parameters)


def _type(value: object) -> str:
    return type(value).__name__
