"""DB-API 2.0 connections, based on ``lockstep.Connection``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from .. import _connection
from .._relation import Relation
from . import _error
from ._cursor import Cursor
from ._error import InterfaceError, NotSupportedError, conversion
from ._shared import (
    FIRST_DATABASE,
    SharedDatabase,
    last_used_database,
    leave,
    open_shared,
    used_database,
)

UNCHANGED = frozenset({None, "USE", "SET"})
"""Values of ``message`` of statements that do not change stored data."""


def connect(
    target: str | os.PathLike[str] | _connection.Connection | None = None,
    *,
    database: str | None = None,
    host: str | None = None,
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    read_only: bool = False,
    max_memory: int | str | None = None,
    **options: Any,
) -> Connection:
    """Opens a connection to an in-memory database, a database directory or a server.

    - ``target``: ``None`` or ``":memory:"`` for a new in-memory database; the path of a database
      directory, as in ``lockstep.connect``; a ``lockstep.Connection``, which is used and not
      closed; or a URL ``lockstep://host:port`` for a server. All connections of a process to the
      same directory share the open database and its variables (``SET``); closing the last of them
      closes the database.
    - ``database``: current database, which must exist.
    - ``host``, ``port``: address of a server; requires ``user`` and ``password``, or ``token``.
    - ``read_only``, ``max_memory``, ``options``: as in ``lockstep.connect``, such as ``tls``.

    Returns a ``Connection``. Raises ``OperationalError`` if another process has opened the
    directory or the server cannot be reached, and ``InterfaceError`` if another connection of this
    process has opened the directory read-only.

    >>> from lockstep import dbapi
    >>> with dbapi.connect() as connection:
    ...     connection.execute("SELECT 1 + ?", [1]).fetchone()
    (2,)
    """
    with conversion():
        if host is not None:
            target = _url(host, port, user, password, token)
        shared = None
        if isinstance(target, _connection.Connection):
            opened = target
        elif target is None or target == ":memory:" or _is_url(target):
            if read_only:
                options["read_only"] = True
            if max_memory is not None:
                options["max_memory"] = max_memory
            opened = _connection.connect(target, **options)
        else:
            shared = open_shared(os.fsdecode(target), read_only, max_memory)
            opened = shared.database
    connection = Connection(opened, shared, owned=not isinstance(target, _connection.Connection))
    if database is not None:
        try:
            connection.execute(f"USE {_quoted(database)}")
        except BaseException:
            connection.close()
            raise
    return connection


class Connection:
    """Creates cursors, which run statements. As a context manager, it closes itself at the end.

    The exceptions of the module are attributes of the class, as PEP 249 recommends.

    >>> from lockstep import dbapi
    >>> with dbapi.connect() as connection:
    ...     try:
    ...         connection.execute("SELECT a FROM missing")
    ...     except connection.ProgrammingError as error:
    ...         print(error.sqlstate)
    42P01
    """

    Warning = _error.Warning
    Error = _error.Error
    InterfaceError = _error.InterfaceError
    DatabaseError = _error.DatabaseError
    DataError = _error.DataError
    OperationalError = _error.OperationalError
    IntegrityError = _error.IntegrityError
    InternalError = _error.InternalError
    ProgrammingError = _error.ProgrammingError
    NotSupportedError = _error.NotSupportedError

    def __init__(
        self,
        lockstep: _connection.Connection,
        shared: SharedDatabase | None = None,
        *,
        owned: bool = True,
    ) -> None:
        self._lockstep = lockstep
        self._shared = shared
        self._owned = owned
        self._is_open = True
        self._is_changed = False
        self._database = FIRST_DATABASE

    @property
    def lockstep(self) -> _connection.Connection:
        """Underlying ``lockstep.Connection``, for requests, data frames and other functions.

        Raises ``InterfaceError`` if the connection is closed.

        >>> from lockstep import dbapi
        >>> with dbapi.connect() as connection:
        ...     connection.lockstep.append("clicks", [{"user": "ann"}])
        1
        """
        self.check_open()
        return self._lockstep

    @property
    def database(self) -> str:
        """Current database, as selected by the statements of this connection.

        >>> from lockstep import dbapi
        >>> with dbapi.connect() as connection:
        ...     _ = connection.execute("CREATE DATABASE shop")
        ...     _ = connection.execute("USE shop")
        ...     connection.database
        'shop'
        """
        return self._database

    @property
    def autocommit(self) -> bool:
        """Whether each statement takes effect immediately; always ``True``.

        Setting it to ``False`` raises ``NotSupportedError``.

        >>> from lockstep import dbapi
        >>> dbapi.connect().autocommit
        True
        """
        return True

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        if not value:
            raise NotSupportedError("transactions are not supported", code="0A000")

    def cursor(self) -> Cursor:
        """Creates a cursor. Raises ``InterfaceError`` if the connection is closed.

        >>> from lockstep import dbapi
        >>> with dbapi.connect() as connection, connection.cursor() as cursor:
        ...     cursor.execute("SELECT 1 AS one").fetchall()
        [(1,)]
        """
        self.check_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Creates a cursor, runs a statement with it and returns the cursor.

        The parameters and errors are as in ``Cursor.execute``.

        >>> from lockstep import dbapi
        >>> dbapi.connect().execute("SELECT 1 AS one").fetchall()
        [(1,)]
        """
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Does nothing: each statement has already taken effect.

        Raises ``InterfaceError`` if the connection is closed.

        >>> from lockstep import dbapi
        >>> dbapi.connect().commit()
        """
        self.check_open()
        self._is_changed = False

    def rollback(self) -> None:
        """Raises ``NotSupportedError`` if data was changed since the last ``commit``.

        >>> from lockstep import dbapi
        >>> connection = dbapi.connect()
        >>> _ = connection.execute("CREATE TABLE t (a INT)")
        >>> try:
        ...     connection.rollback()
        ... except dbapi.NotSupportedError as error:
        ...     print(error.message)
        changes cannot be rolled back
        """
        self.check_open()
        if self._is_changed:
            raise NotSupportedError(
                "changes cannot be rolled back",
                code="0A000",
                detail="Each statement takes effect immediately, completely or not at all.",
            )

    def close(self) -> None:
        """Closes the connection. Written data is kept. Closing a closed connection does nothing.

        >>> from lockstep import dbapi
        >>> connection = dbapi.connect()
        >>> connection.close()
        >>> connection
        <lockstep.dbapi connection, closed>
        """
        if not self._is_open:
            return
        self._is_open = False
        with conversion():
            if self._shared is not None:
                leave(self._shared)
            elif self._owned:
                self._lockstep.close()

    def check_open(self) -> None:
        """Raises ``InterfaceError`` if the connection is closed.

        >>> from lockstep import dbapi
        >>> dbapi.connect().check_open()
        """
        if not self._is_open:
            raise InterfaceError("the connection is closed", code="08003")

    def run(self, operation: str, parameters: Sequence[Any]) -> Relation:
        """Runs statements and returns the result of the last statement, a ``lockstep.Relation``.

        For use by cursors.

        >>> from lockstep import dbapi
        >>> dbapi.connect().run("SELECT ? AS one", [1]).fetchall()
        [(1,)]
        """
        with self.calling(operation):
            relation = self._lockstep.execute(operation, parameters)
        self._is_changed |= relation.message not in UNCHANGED
        return relation

    def append(self, table: str, rows: list[Any]) -> int:
        """Appends rows, all or none, and returns the number of rows; for use by cursors.

        - ``table``: name of a table, which must exist.
        - ``rows``: tuples or dicts.

        >>> from lockstep import dbapi
        >>> connection = dbapi.connect()
        >>> _ = connection.execute("CREATE TABLE t (a INT)")
        >>> connection.append("t", [(1,), (2,)])
        2
        """
        with self.calling():
            count = self._lockstep.append(table, rows, create=False)
        self._is_changed = True
        return count

    @contextlib.contextmanager
    def calling(self, operation: str = "") -> Iterator[None]:
        """Selects this connection's current database during a call; for use by cursors.

        - ``operation``: statement to run; USE in it changes the current database.

        >>> from lockstep import dbapi
        >>> connection = dbapi.connect()
        >>> with connection.calling():
        ...     connection.lockstep.sql("SELECT 1 AS one").fetchall()
        [(1,)]
        """
        self.check_open()
        with conversion():
            if self._shared is None:
                yield
                self._database = last_used_database(operation) or self._database
            elif (name := used_database(operation)) is not None:
                with self._shared.using(name):
                    yield
                self._database = name
            elif (name := last_used_database(operation)) is not None:
                with self._shared.selecting(self._database):
                    yield
                self._database = name
            else:
                with self._shared.using(self._database):
                    yield

    def __enter__(self) -> Connection:
        self.check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # An unreferenced connection must not keep its directory open. When the interpreter exits,
        # modules may already be unloaded.
        if getattr(self, "_shared", None) is not None and self._is_open:
            with contextlib.suppress(Exception):
                self.close()

    def __repr__(self) -> str:
        if not self._is_open:
            return "<lockstep.dbapi connection, closed>"
        return repr(self._lockstep).replace("lockstep connection", "lockstep.dbapi connection")


def _is_url(target: object) -> bool:
    return isinstance(target, str) and "://" in target


def _url(
    host: str, port: int | None, user: str | None, password: str | None, token: str | None
) -> str:
    """Returns the URL of a server."""
    login = ""
    if user is not None:
        login = quote(user, safe="")
        if password is not None:
            login += ":" + quote(password, safe="")
        login += "@"
    # An IPv6 address contains colons.
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    place = name if port is None else f"{name}:{port}"
    return f"lockstep://{login}{place}" + ("" if token is None else f"?token={quote(token)}")


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
