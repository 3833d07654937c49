"""Connections: statements, rows and requests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _lockstep
from ._arrow import is_table, library_of, require, to_arrow, to_pandas
from ._error import Error, LockstepWarning
from ._relation import Relation

Row = Mapping[str, Any]


def connect(
    target: str | os.PathLike[str] | None = None, *, max_memory: int | str | None = None
) -> Connection:
    """Opens a database.

    Without a target it is a new one in memory, which exists as long as the connection. Directories
    and servers are not part of this version. ``max_memory`` is the most that its tables may hold,
    in bytes or as text such as ``'2GB'``; above it, writes are refused.
    """
    if target is None or target == ":memory:":
        connection = Connection(_lockstep.Session())
        if max_memory is not None:
            text = str(max_memory).replace("'", "")
            connection.execute(f"SET GLOBAL max_memory = '{text}'")
        return connection
    name = os.fspath(target)
    what = "servers" if name.startswith("lockstep://") else "databases on disk"
    raise Error(
        f"cannot open `{name}`: {what} are not part of this version",
        code="0A000",
        hint="Call lockstep.connect() for a database in memory.",
    )


@dataclass(frozen=True)
class Difference:
    """A value that request mode and batch mode do not agree on."""

    row: int
    """The stored row, in order of arrival, from 0."""
    column: str
    """The output column."""
    batch: str
    """The value in batch mode."""
    request: str
    """The value in request mode."""


@dataclass(frozen=True, repr=False)
class Verification:
    """The result of ``db.verify``. It is true when values were compared and none differs."""

    requests: int
    """The number of requests that were replayed."""
    values: int
    """The number of values that were compared, bit by bit."""
    differing: int
    """The number of values that differ."""
    differences: list[Difference]
    """The first differences."""
    rows_per_second: float
    """How many rows a second were verified, batch mode included."""

    @property
    def ok(self) -> bool:
        """Whether values were compared and none differs."""
        return self.values > 0 and self.differing == 0

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        if self.values == 0:
            return f"<verification: nothing was compared ({self.requests} requests)>"
        found = f"{self.requests} requests, {self.values} values, {self.differing} differ"
        if not self.differences:
            return f"<verification: {found}>"
        first = self.differences[0]
        return (
            f"<verification: {found}; the first: row {first.row}, column `{first.column}`, "
            f"batch {first.batch}, request {first.request}>"
        )


class Connection:
    """A session with a database: a current database, settings, statements, requests.

    May be shared between threads; the interpreter is released while the engine works.
    """

    def __init__(self, session: _lockstep.Session) -> None:
        self._session = session

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Relation:
        """Runs a script of one or more statements and returns the outcome of the last one.

        Statements before a failing one have taken effect; the failing one has not. With
        ``parameters`` it is one statement, with a value for each ``?``: ``bool``, ``int``,
        ``float``, ``str``, ``datetime``, ``date``, or ``None`` for NULL.
        """
        return Relation(output=self._session.execute(sql, list(parameters)))

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> Relation:
        """Makes a lazy relation of one query, with a value of ``parameters`` for each ``?``.

        The query is checked at once: a wrong name or type raises here. It runs when its rows are
        first fetched.
        """
        return Relation(query=self._session.query(query, list(parameters)))

    def append(self, table: str, data: Any, *, create: bool = True) -> int:
        """Appends rows to a table, all or none, and returns their number.

        ``data`` is a pandas or polars data frame, a pyarrow table or anything else with the Arrow
        stream interface, a list of dicts, or a list of tuples. Columns are matched by name (tuples
        by position), and a column that is left out takes its default. A table that does not exist
        is created with the columns of the data, unless ``create`` is false; tuples have no names,
        so they need a table.

        Naive times are UTC, times with a zone are converted to UTC, and both are truncated to the
        millisecond. Columns of times and dates take ISO 8601 text as well, in the
        session's time zone. ``None``, ``NaT`` and ``NA`` are NULL; NaN is NaN, unless the session
        says ``SET nan_as_null = true``, and in a column that is not of floats it is NULL.

        Rows that had expired before they arrived, by the table's retention, are counted like the
        others, and no query sees them: a ``LockstepWarning`` says how many they are.
        """
        if is_table(data):
            types = self._types_for(data, lambda: self._session.columns_of_table(table))
            appended = self._session.append(table, to_arrow(data, types), create)
        else:
            appended = self._session.append_rows(table, _rows(data), create)
        for text in appended.warnings:
            warnings.warn(text, LockstepWarning, stacklevel=2)
        return appended.rows_affected or 0

    def request(self, target: str, rows: Any) -> Any:
        """Answers request rows in request mode; ``target`` is a deployment or a query.

        A dict gives a dict. A list of dicts gives a list of dicts. A table gives a table of the
        same library, without the rows that a WHERE drops; in a list, and for a single row, the
        answer to such a row is ``None``. Request rows are not stored and do not see each other.
        Values are taken as by ``append``.
        """
        if type(rows) is dict or type(rows) is tuple:
            return self._session.prepare(target)(rows)
        if is_table(rows):
            return self._request_table(target, rows)
        prepared = self._session.prepare(target)
        if isinstance(rows, (Mapping, tuple)):
            return prepared(rows)
        return [prepared(row) for row in rows]

    def prepare(self, target: str) -> Prepared:
        """Compiles a deployment or a query once, to answer many request rows one by one.

        The result belongs to the present definition: once the deployment or a table of the query
        is dropped, even if it is created again, it raises an error with the code 55000.
        """
        return self._session.prepare(target)

    def verify(
        self,
        deployment: str,
        *,
        sample: int | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> Verification:
        """Replays stored rows as requests and compares with batch mode, bit by bit.

        Each row of the request table is a request to the deployed program, at its own position
        among the stored rows; both modes read one snapshot of the tables, and nothing stored
        changes. ``sample`` is how many rows are replayed, spread over the table; all of them when
        it is not given. ``progress`` is called with the fraction that is done, from 0 to 1.
        """
        found = self._session.verify(deployment, sample, progress)
        differences = [Difference(*difference) for difference in found.pop("differences")]
        return Verification(**found, differences=differences)

    def _types_for(
        self, data: Any, columns: Callable[[], list[tuple[str, str]] | None]
    ) -> dict[str, str]:
        """Returns the types of the columns that data is for, where they are needed: for pandas."""
        return dict(columns() or ()) if library_of(data) == "pandas" else {}

    def _request_table(self, target: str, rows: Any) -> Any:
        library = library_of(rows)
        if library == "pandas" and not hasattr(rows, "columns"):
            # A row of a data frame.
            return self._session.prepare(target)(rows.to_dict())
        types = self._types_for(rows, lambda: self._session.prepare(target).input)
        output = self._session.request(target, to_arrow(rows, types))
        if library == "polars":
            return require("polars", "to answer with a data frame").DataFrame(output.arrow())
        require("pyarrow", "to answer with a table")
        return to_pandas(output.pyarrow()) if library == "pandas" else output.pyarrow()

    def __repr__(self) -> str:
        return "<lockstep connection, in memory>"


Prepared = _lockstep.Prepared


def _rows(data: Any) -> list[Any]:
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, Mapping)):
        rows = list(data)
        if all(isinstance(row, dict) for row in rows):
            return rows
        if all(isinstance(row, Sequence) and not isinstance(row, (str, bytes)) for row in rows):
            return rows
    raise Error(
        f"cannot append a Python `{type(data).__name__}`",
        code="42804",
        kind="fix data",
        hint="Give a data frame, an Arrow table, a list of dicts or a list of tuples.",
    )
