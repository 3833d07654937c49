"""Cursors of DB-API 2.0: statements and the rows that they return."""

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
"""The name of a column and its type as SQL writes it; the rest of PEP 249's items is ``None``."""

ROW_TYPES = frozenset({tuple, list})
"""The types that most rows have; the check for an abstract class is slow."""

UNDEFINED_OBJECT = "42704"
"""The code for a deployment or a procedure that does not exist."""

PROCEDURE_COLUMNS = re.compile(r"\s*CREATE\s+PROCEDURE[^(]*\(([^)]*)\)", re.IGNORECASE)
"""The columns of the request row in the definition of a procedure."""

COLUMN_NAME = re.compile(r"\s*(?:CONST\s+)?`?(\w+)", re.IGNORECASE)
"""The name in a column of such a definition."""


class Cursor:
    """Runs statements on a connection and fetches rows. It is for one thread at a time.

    As a context manager it closes itself at the end; as an iterator it returns the rows that were
    not fetched yet.

    >>> from lockstep import dbapi
    >>> list(dbapi.connect().cursor().execute("SELECT 1 AS one"))
    [(1,)]
    """

    arraysize = 1
    """The number of rows that ``fetchmany`` returns unless it is told."""
    lastrowid: None = None
    """Always ``None``: rows have no identifiers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._relation: Relation | None = None
        self._description: list[Column] | None = None
        self._row_count = -1
        self._fetched = 0
        self._is_open = True

    @property
    def connection(self) -> Connection:
        """The connection that made the cursor.

        >>> from lockstep import dbapi
        >>> connection = dbapi.connect()
        >>> connection.cursor().connection is connection
        True
        """
        return self._connection

    @property
    def description(self) -> list[Column] | None:
        """The columns of the rows; ``None`` where there are no rows to fetch.

        ``description[i][1]`` is the type, such as ``'BIGINT'``, and equals the type object that it
        belongs to, such as ``dbapi.NUMBER``.

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
        """The number of rows returned or written by the last statement; -1 where it is unknown.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").rowcount
        1
        """
        return self._row_count

    @property
    def rownumber(self) -> int | None:
        """The 0-based index of the next row; ``None`` where there are no rows to fetch.

        >>> from lockstep import dbapi
        >>> cursor = dbapi.connect().execute("SELECT 1 AS one")
        >>> cursor.rownumber, cursor.fetchone(), cursor.rownumber
        (0, (1,), 1)
        """
        return None if self._relation is None else self._fetched

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Runs a statement, with a value for each ``?``, and returns this cursor.

        - ``operation``: the statement. Without parameters it may be a script of several statements;
          the rows are those of the last.
        - ``parameters``: a sequence of values.

        Raises ``ProgrammingError`` for what is wrong in the statement, ``DataError`` and
        ``IntegrityError`` for values, ``OperationalError`` for limits, timeouts, disks and servers.

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

        - ``operation``: the statement. ``INSERT INTO t [(columns)] VALUES (?, …)`` appends all rows
          in one step, all or none. Any other statement runs once for each sequence: those before
          one that fails have taken effect.
        - ``parameters``: the sequences of values.

        Rows that the statement returns are discarded. Raises the errors of ``execute``.

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
        """Calls a deployment or a procedure with one request row; its answer is fetched as rows.

        - ``procname``: its name.
        - ``parameters``: the values of the request row in order, or a mapping from the names of its
          columns: those that the answer depends on; other keys are ignored.

        Returns ``parameters``, as PEP 249 has it. Raises ``ProgrammingError`` where there is none
        of this name, or the row lacks a value.

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
                    f"the request row of `{procname}` has no value for {', '.join(missing)}",
                    code="22023",
                    hint="Give None for NULL.",
                )
            values = [parameters.get(name) for name in columns]
        values = positional(values)
        name = _quoted(procname)
        places = ", ".join("?" * len(values))
        self._take(self._connection.run(f"CALL {name}({places})", values))
        return parameters

    def fetchone(self) -> tuple[Any, ...] | None:
        """Returns the next row; ``None`` after the last.

        Raises ``ProgrammingError`` where there are no rows to fetch.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").fetchone()
        (1,)
        """
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Returns the next rows: ``size`` of them, ``arraysize`` unless it is given.

        Raises ``ProgrammingError`` where there are no rows to fetch.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").fetchmany(10)
        [(1,)]
        """
        rows = self._rows().fetchmany(self.arraysize if size is None else size)
        self._fetched += len(rows)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows that were not fetched yet.

        Raises ``ProgrammingError`` where there are no rows to fetch.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").fetchall()
        [(1,)]
        """
        rows = self._rows().fetchall()
        self._fetched += len(rows)
        return rows

    def nextset(self) -> None:
        """Returns ``None``: a statement has one set of rows, and a script that of its last one.

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
        """Ends the cursor and frees its rows. Closing twice does nothing.

        >>> from lockstep import dbapi
        >>> dbapi.connect().cursor().close()
        """
        # The number of rows stays, since SQLAlchemy reads it later.
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
        """Returns the columns of the request row of a deployment or a procedure, and which of them
        are required."""
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
                "there are no rows to fetch",
                code="24000",
                hint="Execute a query first.",
            )
        return self._relation


def _quoted(name: str) -> str:
    """Returns ``name`` or ``database.name`` in back-quotes."""
    return ".".join(f"`{part.strip('`')}`" for part in name.split("."))


def positional(parameters: Any) -> Sequence[Any]:
    """Returns parameters that are a sequence; raises ``ProgrammingError`` for others."""
    if type(parameters) in ROW_TYPES:
        return parameters
    if parameters is None:
        return ()
    if isinstance(parameters, (str, bytes, Mapping)) or not isinstance(parameters, Iterable):
        raise ProgrammingError(
            f"parameters are a sequence with a value for each `?`, not a `{_type(parameters)}`",
            code="22023",
            hint="Give a tuple or a list.",
        )
    return parameters if isinstance(parameters, Sequence) else list(parameters)


def _type(value: object) -> str:
    return type(value).__name__
