"""Connections: statements, rows and requests."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _lockstep
from ._arrow import is_table, library_of, require, to_arrow, to_pandas
from ._error import Error, LockstepWarning
from ._frames import finder
from ._progress import reporter, watched
from ._relation import Relation
from ._rows import is_path, is_series, rows_of

Row = Mapping[str, Any]


# A statement other than a query that gives rows, after comments.
_GIVES_ROWS = re.compile(
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

    - ``target``: nothing or ``":memory:"`` is a new database in memory, which exists as long as
      the connection. ``lockstep://user:password@host:port/database`` is a server that
      ``lockstep serve`` runs: the port is that of Flight SQL, 7433 where there is none, and all
      but the host may be left out; a token stands for user and password as ``?token=…``. Any other
      target is the path of a directory, which is created when there is none: what was acknowledged
      is there when it is opened again, whatever ended the process. One process at a time has a
      directory open.
    - ``read_only``: whether every change is refused. For a directory that exists.
    - ``max_memory``: the most that the tables may hold, in bytes or as text such as ``'2GB'``;
      above it, writes are refused. A directory keeps it, as it does every global variable.
    - ``progress``: called about every half second while a directory is read, with an
      ``OpenProgress``. An exception that it raises ends the opening and leaves in the directory
      what it holds. Without it, a line on standard error says how far opening is when it takes
      more than two seconds, if that is a terminal.
    - ``tls``: whether the connection to a server is encrypted, with a certificate that the system's
      authorities vouch for.
    - ``ca``: a PEM file with the authorities that vouch for the certificate of the server.

    Returns a ``Connection`` with a session of its own, so that USE and SET last. It has the same
    methods with the same answers, wherever the database is.

    Raises ``Error`` with the code 55006 where another process has opened the directory, 08001 where
    no server answers, 28P01 for a wrong password, and 22023 for arguments that do not go together.
    A ``LockstepWarning`` says what was cut from the end of a log.

    Cost: a database in memory opens within milliseconds; a directory is read, and its size says how
    long that takes (``Connection.opened``).

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
            "`tls` and `ca` are for the address of a server",
            code="22023",
            hint="It begins with lockstep://.",
        )
    path = _path(target)
    if path is None and read_only:
        raise Error(
            "a database in memory cannot be opened to be read only",
            code="22023",
            hint="Name the directory of a database.",
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
"""The most attempts of a request, each of which failed because its deployment was replaced."""

_SCHEME = "lockstep://"


def _connect_to_server(
    address: str,
    read_only: bool,
    max_memory: int | str | None,
    progress: Callable[[OpenProgress], object] | None,
    tls: bool | None,
    ca: str | os.PathLike[str] | None,
) -> Connection:
    """Connects to a server, for which some arguments have no meaning."""
    given = {"read_only": read_only, "max_memory": max_memory, "progress": progress}
    for name, value in given.items():
        if value:
            raise Error(
                f"`{name}` is not for a server",
                code="22023",
                hint="`lockstep serve` has settings for it.",
            )
    path = None if ca is None else os.fspath(os.path.abspath(os.fsdecode(ca)))
    return Connection(_lockstep.Session.connect(address, tls, path))


def _open(
    path: str | None, read_only: bool, progress: Callable[[OpenProgress], object] | None
) -> _lockstep.Session:
    """Opens a database and says how far that is."""
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
    """Returns the absolute path of a directory; ``None`` for a database in memory."""
    if target is None or target == ":memory:":
        return None
    name = os.fsdecode(target)
    if not name:
        raise Error(
            "the path of the database is empty",
            code="22023",
            hint="Call lockstep.connect() for a database in memory, or name a directory.",
        )
    # Absolute: the process may change its directory while the database is open.
    return os.path.abspath(name)


@dataclass(frozen=True)
class OpenProgress:
    """Says how far opening a directory is; ``connect`` calls its ``progress`` with it.

    ``str(progress)`` is a line for a reader.

    >>> import lockstep
    >>> progress = lockstep.OpenProgress(rows=2_000_000, seconds=4.0, seconds_left=2.0)
    >>> print(progress)
    2000000 rows in 4.0 s, 500000 rows/s, about 2 s left
    """

    rows: int
    """The number of rows that were read so far."""
    seconds: float
    """The time since it began."""
    seconds_left: float | None
    """How long it will go on, if the rest is read as fast: an estimate from the sizes of files."""

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {self.seconds_left:.0f} s left"
        per_second = self.rows / self.seconds if self.seconds > 0 else 0
        return f"{self.rows} rows in {self.seconds:.1f} s, {per_second:.0f} rows/s{left}"


class _ProgressLine:
    """Writes how far opening is to standard error, on one line, when it takes long."""

    SHOWN_S = 2.0

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_shown = False

    def __call__(self, progress: OpenProgress) -> None:
        if progress.seconds >= self.SHOWN_S:
            self._is_shown = True
            # Clears what a longer text has left.
            sys.stderr.write(f"\ropening {self._path}: {progress}\x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        if self._is_shown:
            sys.stderr.write("\n")


@dataclass(frozen=True)
class Opened:
    """Says what opening a directory has done: the value of ``Connection.opened``.

    >>> import lockstep
    >>> with lockstep.connect("features.lockstep") as db:
    ...     db.opened.rows
    0
    """

    rows: int
    """The number of rows that were read."""
    seconds: float
    """How long it took."""
    cut_bytes: int
    """The bytes that were cut from the end of the log: a write that the end of the process had
    interrupted, and that was not acknowledged at the level ``disk``."""
    cut_file: str | None
    """The file whose end was cut."""

    def cut_text(self) -> str:
        """Returns a line that says what was cut; for an opening with ``cut_bytes`` above 0.

        >>> import lockstep
        >>> opened = lockstep.Opened(rows=7, seconds=0.1, cut_bytes=12, cut_file="f/log/1")
        >>> opened.cut_text()
        '12 bytes were cut from the end of f/log/1: a write that was not finished when the ...'
        """
        return (
            f"{self.cut_bytes} bytes were cut from the end of {self.cut_file}: a write that was "
            "not finished when the database was last open"
        )


@dataclass(frozen=True)
class DeploymentColumn:
    """Describes a column of a deployment's requests or answers.

    >>> import lockstep
    >>> db = lockstep.connect()
    >>> created = db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
    >>> deployed = db.execute("DEPLOY price AS SELECT price * 2 AS p FROM clicks")
    >>> db.deployment("price").inputs[0]
    DeploymentColumn(name='user', type='STRING', required=False)
    """

    name: str
    """Its name."""
    type: str
    """Its type in SQL."""
    required: bool
    """Whether a request row needs it: whether the answer depends on it. A column of an answer is
    always there."""


@dataclass(frozen=True)
class Deployment:
    """Describes a deployment, as ``Connection.deployment`` returns it.

    >>> import lockstep
    >>> db = lockstep.connect()
    >>> created = db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
    >>> deployed = db.execute("DEPLOY price AS SELECT price * 2 AS p FROM clicks")
    >>> found = db.deployment("price")
    >>> found.sql, [(column.name, column.type) for column in found.outputs]
    ('SELECT price * 2 AS p FROM clicks', [('p', 'DOUBLE')])
    """

    name: str
    """Its name."""
    database: str
    """Its database."""
    sql: str
    """The query as it was written."""
    inputs: list[DeploymentColumn]
    """The columns of a request row, in the order of the table."""
    outputs: list[DeploymentColumn]
    """The columns of an answer."""
    compatibility: str
    """The value of ``compatibility`` when it was deployed."""
    time_zone: str
    """The value of ``time_zone`` when it was deployed."""


@dataclass(frozen=True)
class Difference:
    """Describes a value on which request mode and batch mode do not agree.

    ``Verification.differences`` has the first of them. A difference is a defect of Lockstep.

    >>> import lockstep
    >>> lockstep.Difference(row=3, column="spent", batch="32.5", request="32.0")
    Difference(row=3, column='spent', batch='32.5', request='32.0')
    """

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
    """Describes what ``Connection.verify`` found.

    It is true when values were compared and none differs.

    >>> import lockstep
    >>> db = lockstep.connect()
    >>> _ = db.append("clicks", [{"user": "ann", "price": 2.5}])
    >>> deployed = db.execute("DEPLOY price AS SELECT user, price * 2 AS p FROM clicks")
    >>> db.verify("price")
    <verification: 1 requests, 2 values, 0 differ>
    """

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
        """Whether values were compared and none differs, as ``bool(verification)``.

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
    """Runs statements and requests in a session: a current database, settings, prepared requests.

    ``lockstep.connect`` makes it. May be shared between threads; the interpreter is released while
    the engine works. As a context manager it closes itself at the end, as it does when the
    interpreter ends.

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
        """What opening the directory has done; ``None`` for a database in memory or on a server.

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
        """Ends the database: everything that was acknowledged is on the disk afterwards, and the
        directory may be opened again, by any process.

        On a server it ends the session, and nothing else.

        Calls that run meanwhile on other threads succeed or fail as a whole; every later one
        raises ``Error`` with the code 08003. Closing twice does nothing.

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
        """Runs a script of one or more statements and returns the outcome of the last one.

        - ``sql``: the statements, with a semicolon between them. Those before a failing one have
          taken effect; the failing one has not.
        - ``parameters``: a value for each ``?``, in order: ``bool``, ``int``, ``float``, ``str``,
          ``datetime``, ``date``, or ``None`` for NULL. With parameters the text is one statement.

        Returns a ``Relation`` that has run: rows, or ``message`` and ``rows_affected``.

        Raises ``Error`` with the position in the text: 42601 for wrong syntax, 42P01 and 42703 for
        tables and columns that do not exist, 22023 for a wrong number of values, 57014 after
        ``statement_timeout``, 53200 above ``max_memory``. Statements that took effect may warn,
        with a ``LockstepWarning``.

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
        """Makes a lazy relation of one query.

        - ``query``: the query. ``SHOW``, ``DESC``, ``EXPLAIN`` and other statements that give rows
          are taken as well, and run at once. In a database of this process, a name that no table
          has may be that of a variable of the caller: a pandas or polars data frame, a pyarrow
          table, a numpy array (``column0``, … or its fields), or a relation. Its rows are read
          where they are.
        - ``parameters``: a value for each ``?``, as ``execute`` takes them.

        Returns a ``Relation`` whose ``columns`` and ``types`` are known. It runs when its rows are
        first fetched.

        Raises ``Error`` at once for a wrong name or type, with the position in the text and the
        codes of ``execute``; an error of the values, such as a division by zero, raises when it
        runs.

        >>> import lockstep, pyarrow
        >>> db = lockstep.connect()
        >>> clicks = pyarrow.table({"user": ["ann", "bob"], "price": [2.5, 4.0]})
        >>> db.sql("SELECT user FROM clicks WHERE price > ?", [3]).fetchall()
        [('bob',)]
        """
        return self._sql(query, parameters, finder())

    def _sql(self, query: str, parameters: Sequence[Any], find: Callable[[str], Any]) -> Relation:
        if _GIVES_ROWS.match(query):
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
    ) -> int:
        """Appends rows to a table, all or none, and returns their number.

        - ``table``: the name of a table, or ``database.table``. Or a mapping from the names of
          tables to their rows: all rows of all tables are appended or none, also after a crash, and
          a query over several of the tables sees them in each or in none. The tables of a mapping
          must exist.
        - ``data``: a pandas or polars data frame, a pyarrow table or anything else with the Arrow
          stream interface; rows, each a dict, a named tuple, a dataclass or a tuple; one such row
          (a tuple in a list), or a Series; or the path of a file, whose extension says its format.
          Columns are matched by name (tuples and lists by position), and a column that is left out
          takes its default.
        - ``create``: whether a table that does not exist is created with the columns of the data.
          Tuples have no names, so they need a table.
        - ``replace``: whether a new table with the columns and the rows of the data takes the place
          of the table, at once and also across a crash; one that a deployment reads is not
          replaced.
        - ``durability``: what the call waits for where the database is a directory: ``"disk"`` (the
          rows survive the machine), ``"os"`` (they survive the process), ``"memory"`` (they are on
          the disk within a second). Without it, the table's option or the session's variable of
          this name says it, which is ``"disk"`` unless set.

        Naive times are UTC, times with a zone are converted to UTC, and both are truncated to the
        millisecond. Columns of times and dates take ISO 8601 text as well, in the session's time
        zone. ``None``, ``NaT`` and ``NA`` are NULL; NaN is NaN, unless the session says
        ``SET nan_as_null = true``, and in a column that is not of floats it is NULL.

        Rows that had expired before they arrived, by the table's retention, are counted like the
        others, and no query sees them: a ``LockstepWarning`` says how many they are.

        Raises ``Error``: 42P01 where there is no table and none may be created, 42703 for a column
        that the table does not have, 42804 for a value of a wrong type, 23502 for NULL in a column
        that is NOT NULL, 53200 above ``max_memory``. Nothing was appended then.

        Cost: columns (data frames, Arrow) are several times as fast as rows of Python objects, and
        with ``durability="disk"`` each call waits for the disk once: append many rows in a call.

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
        if isinstance(table, Mapping):
            if replace:
                raise Error(
                    "append replaces one table at a time",
                    code="0A000",
                    hint="Call append(table, data, replace=True) for each.",
                )
            if data is not None:
                raise Error(
                    "rows are given twice: in the mapping, and as `data`",
                    code="22023",
                    hint="Call append(table, data), or append({table: data, other: rows}).",
                )
            rows = [(name, self._rows_for(name, rows)) for name, rows in table.items()]
            with watched("append"):
                appended = self._session.append_tables(rows, durability)
        elif is_path(data):
            return self._append_file(table, os.fspath(data), creates, durability)
        elif is_table(data) and not is_series(data):
            known = (lambda: None) if replace else lambda: self._session.columns_of_table(table)
            arrow = to_arrow(data, self._types_for(data, known))
            with watched(f"append {table}"):
                appended = self._session.append(table, arrow, creates, durability)
        else:
            rows = rows_of(data)
            with watched(f"append {table}"):
                appended = self._session.append_rows(table, rows, creates, durability)
        for text in appended.warnings:
            warnings.warn(text, LockstepWarning, stacklevel=2)
        return appended.rows_affected or 0

    def request(self, target: str, rows: Any) -> Any:
        """Answers request rows in request mode.

        - ``target``: the name of a deployment, or a query.
        - ``rows``: a dict, a named tuple, a Series, or a tuple of all columns in the order of the
          table; a list of such rows; or a table, as ``append`` takes it. A row needs the columns
          that the answer depends on (``Deployment.inputs``, ``required``), and no others. Values
          are taken as by ``append``.

        Returns a dict for a row, and a list of dicts for a list, where the answer to a row that a
        WHERE drops is ``None``. A table gives a table of the same library, without those rows.
        Request rows are not stored and do not see each other.

        Raises ``Error``: 42704 for a deployment that does not exist, 42703 for a row that lacks a
        column, 42804 for a value of a wrong type.

        Cost: some microseconds for a row of a deployment. A query is compiled when it is first
        seen, within milliseconds; ``prepare`` does that once.

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
        """Answers a row, again where the deployment is replaced before the answer is complete."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                return (prepared or self._session.prepare(target))(row)
            except Error as error:
                if error.code != "55000":
                    raise
                prepared = None
        return self._session.prepare(target)(row)

    def deployment(self, name: str) -> Deployment:
        """Describes a deployment: its query, and the columns of its requests and answers.

        - ``name``: the name of the deployment, or ``database.name``.

        Returns a ``Deployment``. Raises ``Error`` with the code 42704 where there is none.

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
        """Compiles a deployment or a query once, to answer many request rows one by one.

        - ``target``: the name of a deployment, or a query.

        Returns a ``Prepared``, to be called with a row. It belongs to the present definition: once
        the deployment or a table of the query is dropped, even if it is created again, a call
        raises ``Error`` with the code 55000.

        Raises ``Error``: 42704 for a deployment that does not exist, and for a query the codes of
        ``sql``.

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
        """Makes a lazy relation of the training set of a deployment.

        - ``main_table``: the table whose rows are the requests: ``None`` for the deployment's own.
          As known it may be another table with the columns that an answer depends on.
        - ``deployment``: the name of a deployment.
        - ``as_known``: whether each row sees only what had *arrived* before it, in every table:
          what a request at that moment was answered. Otherwise each row sees all rows up to its
          event time, as the query of the deployment does in batch mode.

        Returns a ``Relation``: a row for each row of the main table that the query keeps, in order
        of arrival. A ``LockstepWarning`` names tables of which rows that were known may be gone, by
        retention or DELETE.

        Raises ``Error``: 42704 where there is no such deployment, 42P01 where there is no such
        table, 42703 and 42804 for a main table without a column that an answer depends on.

        Cost: that of the query in batch mode; as known, of a request for each row.

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
        changes.

        - ``deployment``: the name of a deployment.
        - ``sample``: how many rows are replayed, spread over the table. All of them when it is not
          given; 256 of a deployment with GROUP BY, UNION, DISTINCT, ORDER BY or LIMIT, where each
          costs a run of the query in batch mode.
        - ``progress``: called with the fraction that is done, from 0 to 1, from any thread. What it
          raises ends the work.

        Returns a ``Verification``, which is true when values were compared and none differs. Raises
        ``Error`` with the code 42704 where there is no such deployment.

        Cost: that of the query in batch mode, and of a request for each row that is replayed.

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

    def _append_file(self, table: str, path: str, creates: str, durability: str | None) -> int:
        """Appends the rows of a file; its columns of text are read as the types of the table."""
        if durability is not None:
            raise Error(
                "the rows of a file are appended with the durability of the table or the session",
                code="0A000",
                hint=f"Call db.execute(\"SET durability = '{durability}'\") before.",
            )
        name = ".".join("`" + part + "`" for part in table.split("."))
        path = os.fsdecode(path)
        # A word alone would be the name of a table.
        path = path if "/" in path else "./" + path
        text = "'" + path.replace("\\", "\\\\").replace("'", "''") + "'"
        if creates == "replacement":
            done = self.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM {text}")
        elif creates == "missing" and self._session.columns_of_table(table) is None:
            done = self.execute(f"CREATE TABLE {name} AS SELECT * FROM {text}")
        else:
            done = self.execute(f"LOAD DATA INFILE {text} INTO TABLE {name} OPTIONS(mode='append')")
        return done.rows_affected or 0

    def _rows_for(self, table: str, data: Any) -> Any:
        """Returns rows for a table as the native half takes them."""
        if not is_table(data) or is_series(data):
            return rows_of(data)
        return to_arrow(data, self._types_for(data, lambda: self._session.columns_of_table(table)))

    def _types_for(
        self, data: Any, columns: Callable[[], list[tuple[str, str]] | None]
    ) -> dict[str, str]:
        """Returns the types of the columns that data is for, where they are needed: for pandas."""
        return dict(columns() or ()) if library_of(data) == "pandas" else {}

    def _request_table(self, target: str, rows: Any) -> Any:
        library = library_of(rows)
        types = self._types_for(rows, lambda: self._session.prepare(target).input)
        output = self._session.request(target, to_arrow(rows, types))
        if library == "polars":
            return require("polars", "to answer with a data frame").DataFrame(output.arrow())
        require("pyarrow", "to answer with a table")
        return to_pandas(output.pyarrow()) if library == "pandas" else output.pyarrow()

    def __repr__(self) -> str:
        try:
            self._session.check_open()
        except Error:
            return "<lockstep connection, closed>"
        return f"<lockstep connection, {self._path or 'in memory'}>"


_open_directories: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_directories() -> None:
    """Closes what the program left open. Runs while other threads may still work."""
    for connection in list(_open_directories):
        # Nobody is there to handle an error, and what was acknowledged is in the log.
        with contextlib.suppress(Error):
            connection.close()


def _leave_directories() -> None:
    """Gives up, in a forked process, what would keep the directories of its parent locked."""
    for connection in list(_open_directories):
        with contextlib.suppress(Error):
            connection._session.close()


atexit.register(_close_directories)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_directories)


Prepared = _lockstep.Prepared
# Its class is native, and its description is shown with those of the other classes.
Prepared.__doc__ = """Answers one request row after another; ``Connection.prepare`` makes it.

A call takes a row: a dict, a named tuple, a Series, or a tuple of all columns in the order of the
table, with the values that ``append`` takes. It returns a dict, or ``None`` for a row that a WHERE
drops. May be shared between threads.

A call raises ``Error``: 42703 for a row that lacks a column, 42804 for a value of a wrong type,
55000 once the deployment or a table of the query was dropped.

Cost: some microseconds for a call. The interpreter is released where an answer takes longer.

>>> import lockstep
>>> db = lockstep.connect()
>>> created = db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
>>> answer = db.prepare("SELECT price * 2 AS p FROM clicks WHERE price > 1")
>>> answer({"price": 2.5}), answer({"price": 0.5})
({'p': 5.0}, None)
>>> answer.input, answer.required, answer.output
([('user', 'STRING'), ('price', 'DOUBLE')], ['price'], [('p', 'DOUBLE')])
"""
