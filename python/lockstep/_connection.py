"""Connections: statements, rows and requests."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _lockstep
from ._arrow import is_table, library_of, require, to_arrow, to_pandas
from ._error import Error, LockstepWarning
from ._frames import finder
from ._progress import reporter, watched
from ._relation import Relation, batches_of
from ._rows import is_path, is_series, rows_of

if TYPE_CHECKING:
    import pyarrow

Row = Mapping[str, Any]


# A statement other than a query that returns rows, after comments.
_RETURNS_ROWS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:show|desc|describe|explain|estimate|call|verify)\b",
    re.IGNORECASE | re.DOTALL,
)

# The semicolon of a statement, with the comments after it.
_END = re.compile(r";(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*$", re.DOTALL)


def connect(
    target: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    max_memory: int | str | None = None,
    progress: Callable[[OpenProgress], object] | None = None,
    tls: bool | None = None,
    ca: str | os.PathLike[str] | None = None,
) -> Connection:
    """Opens a database: in memory, in a directory, or on a server.

    - ``target``: ``None`` or ``":memory:"`` for a new in-memory database, which exists as long as
      the connection; ``lockstep://user:password@host:port/database`` for a server started with
      ``lockstep serve``; otherwise the path of a database directory. In the address of a server,
      all parts except the host are optional: the port is the Flight SQL port (default 7433), and
      ``?token=…`` replaces user and password. A directory that does not exist is created.
      Acknowledged writes survive the process, however it ends (see ``durability`` of ``append``).
      Only one process at a time can open a directory.
    - ``read_only``: whether to reject every change. The directory must exist.
    - ``max_memory``: maximum memory of all tables, in bytes or as a string such as ``'2GB'``;
      writes that would exceed it are rejected. The value is stored in the directory, as every
      global variable is.
    - ``progress``: function called with an ``OpenProgress`` about every 0.5 s while a directory is
      read. If it raises an exception, opening is cancelled and the directory is not changed.
      Without ``progress``, a line on standard error shows the progress if opening takes more than
      2 s and standard error is a terminal.
    - ``tls``: whether to encrypt the connection to a server and verify the server's certificate,
      by default against the certificate authorities of the system.
    - ``ca``: PEM file of the certificate authorities that the server's certificate is verified
      against.

    Returns a ``Connection`` with its own session: USE and SET stay in effect. Its methods and their
    results are the same for all kinds of databases.

    Raises ``Error``: 55006 if another process has opened the directory, 08001 if the server cannot
    be reached, 28P01 for a wrong password, 22023 for conflicting arguments. Issues a
    ``LockstepWarning`` if an incomplete write was removed from the end of the log.

    Cost: an in-memory database opens within milliseconds. Of a directory, the log since the last
    checkpoint is read (see ``Connection.opened``); rows of the checkpoint are read from its files
    until a thread has put them into memory.

    >>> import lockstep
    >>> with lockstep.connect("features.lockstep") as db:
    ...     db.append("clicks", [{"user": "ann", "price": 2.5}])
    1
    >>> with lockstep.connect("features.lockstep", read_only=True) as db:
    ...     db.sql("SELECT user, price FROM clicks").fetchall()
    [('ann', 2.5)]
    """
    name = None if target is None else os.fsdecode(target)
    if name is not None and name.startswith(_SCHEME):
        return _connect_to_server(name, read_only, max_memory, progress, tls, ca)
    if tls is not None or ca is not None:
        raise Error(
            "`tls` and `ca` require a server address",
            code="22023",
            hint="Use an address that starts with lockstep://.",
        )
    path = _path(target)
    if path is None and read_only:
        raise Error(
            "an in-memory database cannot be opened read-only",
            code="22023",
            hint="Pass the path of a database directory.",
        )
    connection = Connection(_open(path, read_only, progress), path)
    try:
        if connection.opened is not None and connection.opened.cut_bytes:
            warnings.warn(connection.opened.cut_text(), LockstepWarning, stacklevel=2)
        if max_memory is not None:
            text = str(max_memory).replace("'", "")
            connection.execute(f"SET GLOBAL max_memory = '{text}'")
    except BaseException:
        connection.close()
        raise
    return connection


_ATTEMPTS_MAX = 100
"""Maximum attempts of a request whose deployment is replaced while it runs."""

_SCHEME = "lockstep://"


def _connect_to_server(
    address: str,
    read_only: bool,
    max_memory: int | str | None,
    progress: Callable[[OpenProgress], object] | None,
    tls: bool | None,
    ca: str | os.PathLike[str] | None,
) -> Connection:
    """Connects to a server. Raises ``Error`` for arguments that apply only to a directory."""
    given = {"read_only": read_only, "max_memory": max_memory, "progress": progress}
    for name, value in given.items():
        if value:
            raise Error(
                f"`{name}` does not apply to a server",
                code="22023",
                hint="Use the settings of `lockstep serve` instead.",
            )
    path = None if ca is None else os.fspath(os.path.abspath(os.fsdecode(ca)))
    return Connection(_lockstep.Session.connect(address, tls, path))


def _open(
    path: str | None, read_only: bool, progress: Callable[[OpenProgress], object] | None
) -> _lockstep.Session:
    """Opens a database and reports the progress."""
    if path is None:
        return _lockstep.Session()
    line = None
    if progress is None and sys.stderr is not None and sys.stderr.isatty():
        progress = line = _ProgressLine(path)
    if progress is None:
        return _lockstep.Session(path, read_only)
    listen = progress

    def tell(rows: int, milliseconds: int, left: int | None) -> None:
        seconds_left = None if left is None else left / 1_000
        listen(OpenProgress(rows, milliseconds / 1_000, seconds_left))

    try:
        return _lockstep.Session(path, read_only, tell)
    finally:
        if line is not None:
            line.end()


def _path(target: str | os.PathLike[str] | None) -> str | None:
    """Returns the absolute path of a directory; ``None`` for an in-memory database."""
    if target is None or target == ":memory:":
        return None
    name = os.fsdecode(target)
    if not name:
        raise Error(
            "database path must not be empty",
            code="22023",
            hint="Call lockstep.connect() for an in-memory database, or pass a directory.",
        )
    # Absolute: the process may change its working directory while the database is open.
    return os.path.abspath(name)


@dataclass(frozen=True)
class OpenProgress:
    """Describes the progress of opening a directory; the argument of ``progress`` of ``connect``.

    ``str(progress)`` is a one-line description.

    >>> import lockstep
    >>> progress = lockstep.OpenProgress(rows=2_000_000, seconds=4.0, seconds_left=2.0)
    >>> print(progress)
    2000000 rows in 4.0 s, 500000 rows/s, about 2 s left
    """

    rows: int
    """Number of rows read so far."""
    seconds: float
    """Elapsed time in seconds."""
    seconds_left: float | None
    """Estimated remaining time in seconds, from the file sizes; ``None`` if unknown."""

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {self.seconds_left:.0f} s left"
        per_second = self.rows / self.seconds if self.seconds > 0 else 0
        return f"{self.rows} rows in {self.seconds:.1f} s, {per_second:.0f} rows/s{left}"


class _ProgressLine:
    """Writes the progress of a slow opening to one line of standard error."""

    SHOWN_S = 2.0

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_shown = False

    def __call__(self, progress: OpenProgress) -> None:
        if progress.seconds >= self.SHOWN_S:
            self._is_shown = True
            # Clears the rest of a longer line.
            sys.stderr.write(f"\ropening {self._path}: {progress}\x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        if self._is_shown:
            sys.stderr.write("\n")


@dataclass(frozen=True)
class Opened:
    """Describes the result of opening a directory: the value of ``Connection.opened``.

    >>> import lockstep
    >>> with lockstep.connect("features.lockstep") as db:
    ...     db.opened.rows
    0
    """

    rows: int
    """Number of rows read."""
    seconds: float
    """Time that opening took, in seconds."""
    cut_bytes: int
    """Number of bytes removed from the end of the log: an incomplete write, in progress when the
    process ended and not acknowledged at the level ``disk``."""
    cut_file: str | None
    """Log file from which the bytes were removed; ``None`` if there are none."""

    def cut_text(self) -> str:
        """Describes the removed bytes in one line. Requires ``cut_bytes`` above 0.

        >>> import lockstep
        >>> opened = lockstep.Opened(rows=7, seconds=0.1, cut_bytes=12, cut_file="f/log/1")
        >>> opened.cut_text()
        'removed 12 bytes of an incomplete write from the end of f/log/1; the write was in ...'
        """
        return (
            f"removed {self.cut_bytes} bytes of an incomplete write from the end of "
            f"{self.cut_file}; the write was in progress when the database was last open"
        )


@dataclass(frozen=True)
class DeploymentColumn:
    """Describes an input or output column of a deployment.

    >>> import lockstep
    >>> db = lockstep.connect()
    >>> created = db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
    >>> deployed = db.execute("DEPLOY price AS SELECT price * 2 AS p FROM clicks")
    >>> db.deployment("price").inputs[0]
    DeploymentColumn(name='user', type='STRING', required=False)
    """

    name: str
    """Name of the column."""
    type: str
    """SQL type of the column."""
    required: bool
    """Whether a request row must have the column, because the result depends on it. Always ``True``
    for an output column."""


@dataclass(frozen=True)
class Deployment:
    """Describes a deployment; the result of ``Connection.deployment``.

    >>> import lockstep
    >>> db = lockstep.connect()
    >>> created = db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
    >>> deployed = db.execute("DEPLOY price AS SELECT price * 2 AS p FROM clicks")
    >>> found = db.deployment("price")
    >>> found.sql, [(column.name, column.type) for column in found.outputs]
    ('SELECT price * 2 AS p FROM clicks', [('p', 'DOUBLE')])
    """

    name: str
    """Name of the deployment."""
    database: str
    """Name of its database."""
    sql: str
    """Text of the query, as written."""
    inputs: list[DeploymentColumn]
    """Columns of a request row, in the order of the table."""
    outputs: list[DeploymentColumn]
    """Columns of a result."""
    compatibility: str
    """Value of the variable ``compatibility`` at the time of deployment."""
    time_zone: str
    """Value of the variable ``time_zone`` at the time of deployment."""


@dataclass(frozen=True)
class Difference:
    """Describes a value that differs between request mode and batch mode.

    ``Verification.differences`` lists the first differences. A difference is a bug in Lockstep.

    >>> import lockstep
    >>> lockstep.Difference(row=3, column="spent", batch="32.5", request="32.0")
    Difference(row=3, column='spent', batch='32.5', request='32.0')
    """

    row: int
    """Index of the stored row in order of arrival, starting at 0."""
    column: str
    """Name of the output column."""
    batch: str
    """Value in batch mode."""
    request: str
    """Value in request mode."""


@dataclass(frozen=True, repr=False)
class Verification:
    """Describes the result of ``Connection.verify``.

    It is true if values were compared and none of them differ.

    >>> import lockstep
    >>> db = lockstep.connect()
    >>> _ = db.append("clicks", [{"user": "ann", "price": 2.5}])
    >>> deployed = db.execute("DEPLOY price AS SELECT user, price * 2 AS p FROM clicks")
    >>> db.verify("price")
    <verification: 1 requests, 2 values, 0 differ>
    """

    requests: int
    """Number of requests replayed."""
    values: int
    """Number of values compared, bit by bit."""
    differing: int
    """Number of values that differ."""
    differences: list[Difference]
    """First differences."""
    rows_per_second: float
    """Rows verified per second, including the time of batch mode."""

    @property
    def ok(self) -> bool:
        """Whether values were compared and none of them differ; same as ``bool(verification)``.

        >>> import lockstep
        >>> found = lockstep.Verification(
        ...     requests=1, values=2, differing=0, differences=[], rows_per_second=1.0
        ... )
        >>> found.ok
        True
        """
        return self.values > 0 and self.differing == 0

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        if self.values == 0:
            return f"<verification: no values compared ({self.requests} requests)>"
        found = f"{self.requests} requests, {self.values} values, {self.differing} differ"
        if not self.differences:
            return f"<verification: {found}>"
        first = self.differences[0]
        return (
            f"<verification: {found}; first difference: row {first.row}, column `{first.column}`, "
            f"batch {first.batch}, request {first.request}>"
        )


class Connection:
    """Runs statements and requests in a session: a current database, settings, prepared requests.

    Created by ``lockstep.connect``. Threads can share a connection: the interpreter lock is
    released while the engine works. As a context manager, a connection closes itself at the end of
    the block. Open databases are closed when the interpreter exits.

    >>> import lockstep
    >>> with lockstep.connect() as db:
    ...     db.sql("SELECT 1 + 1 AS two").fetchall()
    [(2,)]
    """

    def __init__(self, session: _lockstep.Session, path: str | None = None) -> None:
        self._session = session
        self._path = path
        if path is not None:
            _open_directories.add(self)

    @property
    def opened(self) -> Opened | None:
        """Result of opening the directory; ``None`` for a database in memory or on a server.

        >>> import lockstep
        >>> with lockstep.connect("features.lockstep") as db:
        ...     db.opened.cut_bytes
        0
        """
        found = self._session.opened()
        if found is None:
            return None
        cut_file = found["cut_file"]
        return Opened(
            rows=found["rows"],
            seconds=found["milliseconds"] / 1_000,
            cut_bytes=found["cut_bytes"],
            cut_file=None if cut_file is None else os.fspath(cut_file),
        )

    def close(self) -> None:
        """Closes the database: all acknowledged writes are then on disk, and any process can open
        the directory.

        For a server, only ends the session.

        Calls in progress on other threads succeed or fail as a whole; later calls raise ``Error``
        with the code 08003. Closing a closed connection does nothing.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> db.close()
        >>> db
        <lockstep connection, closed>
        """
        self._session.close()
        _open_directories.discard(self)

    def __enter__(self) -> Connection:
        self._session.check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Relation:
        """Runs a script of one or more statements and returns the result of the last statement.

        - ``sql``: statements, separated by semicolons. If a statement fails, it has no effect, but
          the statements before it remain in effect.
        - ``parameters``: a value for each ``?``, in order: ``bool``, ``int``, ``float``, ``str``,
          ``datetime``, ``date``, or ``None`` for NULL. With parameters, ``sql`` must be a single
          statement.

        Returns a ``Relation`` that has run: rows, or ``message`` and ``rows_affected``.

        Raises ``Error`` with the position in the text: 42601 for invalid syntax, 42P01 and 42703
        for tables and columns that do not exist, 22023 for a wrong number of parameters, 57014
        after ``statement_timeout``, 53200 above ``max_memory``. Statements that take effect may
        issue a ``LockstepWarning``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)").message
        'CREATE TABLE'
        >>> db.execute("INSERT INTO clicks VALUES (?, ?), ('bob', 4.0)", ["ann", 2.5]).rows_affected
        2
        """
        with watched(sql):
            return Relation(output=self._session.execute(sql, list(parameters)))

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> Relation:
        """Returns a lazy relation for one query.

        - ``query``: the query. ``SHOW``, ``DESC``, ``EXPLAIN`` and other statements that return
          rows are accepted as well, and run immediately. Unless the database is on a server, a name
          that is not a table can be a variable of the caller: a pandas or polars data frame, a
          pyarrow table, a numpy array (with columns ``column0``, … or its fields), or a relation.
          Its rows are read in place.
        - ``parameters``: a value for each ``?``, as in ``execute``.

        Returns a ``Relation`` whose ``columns`` and ``types`` are known. The query runs when rows
        are first fetched.

        Raises ``Error`` immediately for an invalid name or type, with the position in the text and
        the codes of ``execute``. Errors that depend on values are raised when the query runs.

        >>> import lockstep, pyarrow
        >>> db = lockstep.connect()
        >>> clicks = pyarrow.table({"user": ["ann", "bob"], "price": [2.5, 4.0]})
        >>> db.sql("SELECT user FROM clicks WHERE price > ?", [3]).fetchall()
        [('bob',)]
        """
        return self._sql(query, parameters, finder())

    def _sql(self, query: str, parameters: Sequence[Any], find: Callable[[str], Any]) -> Relation:
        if _RETURNS_ROWS.match(query):
            return self.execute(query, parameters)

        def around(before: str, after: str) -> Relation:
            # A comment may end the query.
            inner = _END.sub("", query)
            return self._sql(f"{before}{inner}\n{after}", parameters, find)

        return Relation(query=self._session.query(query, list(parameters), find), around=around)

    def append(
        self,
        table: str | Mapping[str, Any],
        data: Any = None,
        *,
        create: bool = True,
        replace: bool = False,
        durability: Literal["disk", "os", "memory"] | None = None,
        storage_mode: Literal["memory", "disk"] | None = None,
    ) -> int:
        """Appends rows to a table, all or none, and returns the number of rows.

        - ``table``: name of a table, or ``database.table``; or a mapping from table names to rows.
          With a mapping, the rows of all tables are appended atomically, also if the process
          crashes: a query over several of the tables sees the rows of all of them or none. All
          tables of a mapping must exist.
        - ``data``: a pandas or polars data frame, a pyarrow table or another object with the Arrow
          stream interface; rows, each a dict, a named tuple, a dataclass or a tuple; a single row
          (a tuple must be in a list) or a Series; or the path of a file, whose extension selects
          its format. Columns are matched by name (tuples and lists by position), and omitted
          columns get their default.
        - ``create``: whether to create a table that does not exist, with the columns of the data.
          Tuples require an existing table, because they have no column names.
        - ``replace``: whether to replace the table atomically, also if the process crashes, by a
          new table with the columns and rows of the data. A table that a deployment reads cannot be
          replaced.
        - ``durability``: which failure the rows must survive before the call returns, if the
          database is a directory: ``"disk"`` (failure of the machine), ``"os"`` (failure of the
          process) or ``"memory"`` (none; rows reach the disk within a second). The default is the
          table's option or else the session's variable ``durability``, which is initially
          ``"disk"``.
        - ``storage_mode``: storage of a table that the call creates: ``"memory"``, the default, or
          ``"disk"``, for a table that may become larger than memory. A table that exists does not
          move; ``ALTER TABLE … SET OPTIONS(storage_mode = …)`` moves it.

        Naive times are in UTC, times with a time zone are converted to UTC, and both are truncated
        to milliseconds. TIMESTAMP and DATE columns also accept ISO 8601 strings, in the session's
        time zone. ``None``, ``NaT`` and ``NA`` are NULL. NaN is stored as NaN, or as NULL after
        ``SET nan_as_null = true``; in a column that is not FLOAT or DOUBLE, NaN is always NULL.

        Rows that have already expired by the table's retention are included in the returned number,
        but queries do not see them; a ``LockstepWarning`` reports how many.

        Raises ``Error``: 42P01 if the table does not exist and cannot be created, 42703 for a
        column that the table does not have, 42804 for a value of the wrong type, 22003 for a value
        out of range, 23502 for NULL in a NOT NULL column, 53200 above ``max_memory``. No rows are
        appended in these cases.

        Cost: columnar data (data frames, Arrow) is several times faster than rows of Python
        objects. With ``durability="disk"`` each call waits for the disk once, so append many rows
        per call.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> db.append("clicks", [{"user": "ann", "price": 2.5}, {"user": "bob", "price": 4.0}])
        2
        >>> db.append("clicks", [("cid", None)])
        1
        >>> created = db.execute("CREATE TABLE orders (user STRING, amount INT)")
        >>> db.append({"clicks": [{"user": "dan"}], "orders": [("dan", 1), ("dan", 2)]})
        3
        """
        creates = "replacement" if replace else "missing" if create else "no"
        if storage_mode is not None and (creates == "no" or isinstance(table, Mapping)):
            raise Error(
                "`storage_mode` applies only to a table that the call creates",
                code="0A000",
                hint="Run ALTER TABLE t SET OPTIONS(storage_mode = 'disk') instead.",
            )
        options = (creates, durability, storage_mode)
        if isinstance(table, Mapping):
            if replace:
                raise Error(
                    "append can replace only one table at a time",
                    code="0A000",
                    hint="Call append(table, data, replace=True) for each table.",
                )
            if data is not None:
                raise Error(
                    "rows are specified twice: in the mapping and in `data`",
                    code="22023",
                    hint="Call append(table, data) or append({table: data, other: rows}).",
                )
            rows = [(name, self._rows_for(name, rows)) for name, rows in table.items()]
            with watched("append"):
                appended = self._session.append_tables(rows, durability)
        elif is_path(data):
            return self._append_file(table, os.fspath(data), creates, durability, storage_mode)
        elif is_table(data) and not is_series(data):
            known = (lambda: None) if replace else lambda: self._session.columns_of_table(table)
            arrow = to_arrow(data, self._types_for(data, known))
            with watched(f"append {table}"):
                appended = self._session.append(table, arrow, options)
        else:
            rows = rows_of(data)
            with watched(f"append {table}"):
                appended = self._session.append_rows(table, rows, options)
        for text in appended.warnings:
            warnings.warn(text, LockstepWarning, stacklevel=2)
        return appended.rows_affected or 0

    def request(self, target: str, rows: Any) -> Any:
        """Computes the results for request rows in request mode.

        - ``target``: name of a deployment, or a query.
        - ``rows``: a dict, a named tuple, a Series, or a tuple of all columns in the order of the
          table; a list of such rows; or a data frame or Arrow table, as in ``append``. A row must
          have the columns on which the result depends (``required`` in ``Deployment.inputs``);
          other columns are optional. Values are converted as in ``append``.

        Returns a dict for a single row, and a list of dicts for a list; the result is ``None`` for
        a row that WHERE rejects. For a data frame or table, returns an object of the same library,
        without the rejected rows. Request rows are not stored and do not see each other.

        Raises ``Error``: 42704 if the deployment does not exist, 42703 for a row without a required
        column, 42804 for a value of the wrong type.

        Cost: a few microseconds per row of a deployment. A query is compiled on first use, which
        takes milliseconds; use ``prepare`` to compile it once.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("clicks", [{"user": "ann", "price": 20.0, "ts": 1_000}])
        >>> deployed = db.execute('''
        ...     DEPLOY spent AS SELECT user, sum(price) OVER w AS spent FROM clicks
        ...     WINDOW w AS (PARTITION BY user ORDER BY ts
        ...                  ROWS_RANGE BETWEEN 5m PRECEDING AND CURRENT ROW)
        ... ''')
        >>> db.request("spent", {"user": "ann", "price": 30.0, "ts": 90_000})
        {'user': 'ann', 'spent': 50.0}
        >>> rows = [{"user": user, "price": 1.0, "ts": 2_000} for user in ("ann", "bob")]
        >>> db.request("spent", rows)
        [{'user': 'ann', 'spent': 21.0}, {'user': 'bob', 'spent': 1.0}]
        """
        if type(rows) is dict or type(rows) is tuple:
            return self._answer(target, rows)
        if is_table(rows) and not is_series(rows):
            return self._request_table(target, rows)
        is_many = isinstance(rows, Iterable) and not isinstance(rows, (str, bytes))
        if not is_many or is_series(rows) or isinstance(rows, (Mapping, tuple)):
            return self._answer(target, rows)
        prepared = self._session.prepare(target)
        return [self._answer(target, row, prepared) for row in rows]

    def _answer(self, target: str, row: Any, prepared: Any = None) -> Any:
        """Answers a row; retries if the deployment is replaced before the result is complete."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                return (prepared or self._session.prepare(target))(row)
            except Error as error:
                if error.code != "55000":
                    raise
                prepared = None
        return self._session.prepare(target)(row)

    def deployment(self, name: str) -> Deployment:
        """Returns the description of a deployment: its query, input and output columns.

        - ``name``: name of the deployment, or ``database.name``.

        Returns a ``Deployment``. Raises ``Error`` with the code 42704 if the deployment does not
        exist.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> created = db.execute("CREATE TABLE clicks (user STRING, price DOUBLE, label INT)")
        >>> deployed = db.execute("DEPLOY price AS SELECT user, price * 2 AS p FROM clicks")
        >>> [column.name for column in db.deployment("price").inputs if column.required]
        ['user', 'price']
        """
        found = self._session.deployment(name)
        inputs = [DeploymentColumn(*column) for column in found.pop("inputs")]
        outputs = [DeploymentColumn(*column) for column in found.pop("outputs")]
        return Deployment(**found, inputs=inputs, outputs=outputs)

    def prepare(self, target: str) -> Prepared:
        """Compiles a deployment or a query once, for many single-row requests.

        - ``target``: name of a deployment, or a query.

        Returns a ``Prepared``, which is called with a request row. It uses the current definition:
        after the deployment or a table of the query is dropped, even if it is created again, a call
        raises ``Error`` with the code 55000.

        Raises ``Error``: 42704 if the deployment does not exist; for a query, the codes of ``sql``.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> created = db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
        >>> answer = db.prepare("SELECT user, price * 2 AS p FROM clicks")
        >>> answer({"user": "ann", "price": 2.5})
        {'user': 'ann', 'p': 5.0}
        """
        return self._session.prepare(target)

    def training_set(
        self, main_table: str | None, deployment: str, *, as_known: bool = False
    ) -> Relation:
        """Returns a lazy relation for the training set of a deployment.

        - ``main_table``: table whose rows are the request rows; ``None`` for the request table of
          the deployment. With ``as_known``, another table with the required columns is allowed.
        - ``deployment``: name of a deployment.
        - ``as_known``: if true, each row sees only the rows that had *arrived* before it, in every
          table: the values that a request at that time returned. Otherwise each row sees all rows
          up to its event time, as in batch mode.

        Returns a ``Relation`` with one row for each row of the main table that the query keeps, in
        order of arrival. A ``LockstepWarning`` names each table from which known rows may have been
        removed, by retention or DELETE.

        Raises ``Error``: 42704 if the deployment does not exist, 42P01 if the table does not exist,
        42703 and 42804 if the main table lacks a required column or the column has another type.

        Cost: the query in batch mode; with ``as_known``, one request per row.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("clicks", [{"user": "ann", "price": 2.0, "ts": 2_000}])
        >>> _ = db.append("clicks", [{"user": "ann", "price": 5.0, "ts": 1_000}])
        >>> deployed = db.execute('''
        ...     DEPLOY spent AS SELECT ts, sum(price) OVER w AS spent FROM clicks
        ...     WINDOW w AS (PARTITION BY user ORDER BY ts
        ...                  ROWS_RANGE BETWEEN 5m PRECEDING AND CURRENT ROW)
        ... ''')
        >>> known = db.training_set(None, "spent", as_known=True)
        >>> [spent for _, spent in known], [spent for _, spent in db.training_set(None, "spent")]
        ([2.0, 5.0], [7.0, 5.0])
        """
        return Relation(query=self._session.training_set(deployment, main_table, as_known))

    def subscribe(
        self, name: str, *, start: Literal["latest", "earliest"] = "latest"
    ) -> Iterator[pyarrow.RecordBatch]:
        """Returns an iterator over the rows of a stream, or of a table, as they are appended.

        - ``name``: name of the stream or table.
        - ``start``: ``"latest"`` for the rows that are appended from now on; ``"earliest"`` to
          begin with the rows that are stored.

        Each item is a ``pyarrow.RecordBatch`` of the rows that were appended since the last one.
        The iterator waits for rows, and has no end; interrupt it, or stop iterating.

        Raises ``Error``: 42P01 if there is no such stream or table; 42501 if the user lacks SELECT
        on it; 53200 if rows of more than 64 MB were removed before they were read.

        Cost: copies each row once; removed rows are held until they are read.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("clicks", [{"user": "ann", "ts": 1_000}, {"user": "bob", "ts": 2_000}])
        >>> rows = db.subscribe("clicks", start="earliest")
        >>> next(rows).num_rows
        2
        >>> _ = db.append("clicks", [{"user": "ann", "ts": 3_000}])
        >>> next(rows)["user"].to_pylist()
        ['ann']
        """
        pyarrow = require("pyarrow", "to create Arrow batches")
        return batches_of(self._session.subscribe(name, start), pyarrow)

    def verify(
        self,
        deployment: str,
        *,
        sample: int | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> Verification:
        """Replays stored rows as requests and compares the results with batch mode, bit by bit.

        Each row of the request table is sent to the deployed program, at its own position among the
        stored rows. Both modes read the same snapshot of the tables, and no stored data changes.

        - ``deployment``: name of a deployment.
        - ``sample``: number of rows to replay, spread over the table. The default is all rows, or
          256 rows for a deployment with GROUP BY, UNION, DISTINCT, ORDER BY or LIMIT, because each
          of its requests runs the query in batch mode.
        - ``progress``: function called with the fraction done, from 0 to 1, on any thread. If it
          raises an exception, verification is cancelled and raises the exception.

        Returns a ``Verification``, which is true if values were compared and none of them differ.
        Raises ``Error`` with the code 42704 if the deployment does not exist.

        Cost: the query in batch mode, plus one request per replayed row.

        >>> import lockstep
        >>> db = lockstep.connect()
        >>> _ = db.append("clicks", [{"user": "ann", "price": 2.5}, {"user": "bob", "price": 4.0}])
        >>> deployed = db.execute("DEPLOY price AS SELECT user, price * 2 AS p FROM clicks")
        >>> db.verify("price").ok
        True
        """
        with contextlib.nullcontext() if progress else watched(f"verify {deployment}") as work:
            found = self._session.verify(deployment, sample, progress or reporter(work))
        differences = [Difference(*difference) for difference in found.pop("differences")]
        return Verification(**found, differences=differences)

    def _append_file(
        self,
        table: str,
        path: str,
        creates: str,
        durability: str | None,
        storage_mode: str | None,
    ) -> int:
        """Appends the rows of a file; strings are converted to the column types of the table."""
        if durability is not None:
            raise Error(
                "`durability` does not apply to the rows of a file",
                code="0A000",
                hint=f"Call db.execute(\"SET durability = '{durability}'\") first.",
            )
        name = ".".join("`" + part + "`" for part in table.split("."))
        path = os.fsdecode(path)
        # A single word would be a table name.
        path = path if "/" in path else "./" + path
        text = _quoted(path)
        options = ""
        if storage_mode is not None:
            options = f" OPTIONS(storage_mode = {_quoted(storage_mode)})"
        if creates == "replacement":
            done = self.execute(f"CREATE OR REPLACE TABLE {name}{options} AS SELECT * FROM {text}")
        elif creates == "missing" and self._session.columns_of_table(table) is None:
            done = self.execute(f"CREATE TABLE {name}{options} AS SELECT * FROM {text}")
        else:
            done = self.execute(f"LOAD DATA INFILE {text} INTO TABLE {name} OPTIONS(mode='append')")
        return done.rows_affected or 0

    def _rows_for(self, table: str, data: Any) -> Any:
        """Returns rows for a table in the form that the native module accepts."""
        if not is_table(data) or is_series(data):
            return rows_of(data)
        return to_arrow(data, self._types_for(data, lambda: self._session.columns_of_table(table)))

    def _types_for(
        self, data: Any, columns: Callable[[], list[tuple[str, str]] | None]
    ) -> dict[str, str]:
        """Returns the types of the target columns, which only pandas data requires."""
        return dict(columns() or ()) if library_of(data) == "pandas" else {}

    def _request_table(self, target: str, rows: Any) -> Any:
        library = library_of(rows)
        types = self._types_for(rows, lambda: self._session.prepare(target).input)
        output = self._session.request(target, to_arrow(rows, types))
        if library == "polars":
            return require("polars", "to return a data frame").DataFrame(output.arrow())
        require("pyarrow", "to return a table")
        return to_pandas(output.pyarrow()) if library == "pandas" else output.pyarrow()

    def __repr__(self) -> str:
        try:
            self._session.check_open()
        except Error:
            return "<lockstep connection, closed>"
        return f"<lockstep connection, {self._path or 'in memory'}>"


def _quoted(text: str) -> str:
    """Writes a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


_open_directories: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_directories() -> None:
    """Closes the open directories at exit. Other threads may still be running."""
    for connection in list(_open_directories):
        # No caller can handle an error, and acknowledged writes are in the log.
        with contextlib.suppress(Error):
            connection.close()


def _leave_directories() -> None:
    """Releases, in a forked process, the locks of the directories of its parent."""
    for connection in list(_open_directories):
        with contextlib.suppress(Error):
            connection._session.close()


atexit.register(_close_directories)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_directories)


Prepared = _lockstep.Prepared
# The class is native; its docstring appears with those of the other classes.
Prepared.__doc__ = """Computes the result of a request row; created by ``Connection.prepare``.

Call it with a request row: a dict, a named tuple, a Series, or a tuple of all columns in the order
of the table, with values as in ``append``. A call returns a dict, or ``None`` for a row that WHERE
rejects. ``input`` and ``output`` are the names and types of the columns, and ``required`` the names
of the columns that a row must have. Threads can share the object.

A call raises ``Error``: 42703 for a row without a required column, 42804 for a value of the wrong
type, 55000 after the deployment or a table of the query is dropped.

Cost: a few microseconds per call. The interpreter lock is released if a call takes longer.

>>> import lockstep
>>> db = lockstep.connect()
>>> created = db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
>>> answer = db.prepare("SELECT price * 2 AS p FROM clicks WHERE price > 1")
>>> answer({"price": 2.5}), answer({"price": 0.5})
({'p': 5.0}, None)
>>> answer.input, answer.required, answer.output
([('user', 'STRING'), ('price', 'DOUBLE')], ['price'], [('p', 'DOUBLE')])
"""
