"""DB-API 2.0 exceptions, and the mapping of Lockstep errors to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import _error

Warning = _error.LockstepWarning
"""Warning about a statement that took effect. It is issued with ``warnings``, not raised."""


class Error(_error.Error):
    """Base class of all errors of this module; a ``lockstep.Error`` with all its fields.

    ``str(error)`` is the complete report, with a caret under the position in the statement.

    >>> import lockstep
    >>> from lockstep import dbapi
    >>> try:
    ...     dbapi.connect().execute("SELECT a FROM missing")
    ... except dbapi.Error as error:
    ...     isinstance(error, lockstep.Error), error.code, error.position
    (True, '42P01', 14)
    """

    @property
    def sqlstate(self) -> str:
        """SQLSTATE code of the error, by the name that other DB-API modules use.

        >>> from lockstep import dbapi
        >>> dbapi.Error("connection is closed", code="08003").sqlstate
        '08003'
        """
        return self.code


class InterfaceError(Error):
    """Reports incorrect use of the interface, such as of a closed connection or cursor.

    >>> from lockstep import dbapi
    >>> connection = dbapi.connect()
    >>> connection.close()
    >>> try:
    ...     connection.cursor()
    ... except dbapi.InterfaceError as error:
    ...     print(error.message)
    the connection is closed
    """


class DatabaseError(Error):
    """Base class of errors reported by the database.

    >>> from lockstep import dbapi
    >>> issubclass(dbapi.ProgrammingError, dbapi.DatabaseError)
    True
    """


class DataError(DatabaseError):
    """Reports a value that is out of range, or of the wrong type for a column.

    >>> from lockstep import dbapi
    >>> cursor = dbapi.connect().execute("CREATE TABLE t (a INT)")
    >>> try:
    ...     cursor.executemany("INSERT INTO t VALUES (?)", [("x",)])
    ... except dbapi.DataError as error:
    ...     print(error.message)
    row 1: column `a` is of type INT but the value is a Python `str`
    """


class OperationalError(DatabaseError):
    """Reports an operational error: limits, timeouts, disks, connections, passwords.

    >>> from lockstep import dbapi
    >>> try:
    ...     dbapi.connect(host="127.0.0.1", port=1)
    ... except dbapi.OperationalError as error:
    ...     print(error.code)
    08001
    """


class IntegrityError(DatabaseError):
    """Reports a constraint violation: NULL in a NOT NULL column.

    >>> from lockstep import dbapi
    >>> cursor = dbapi.connect().execute("CREATE TABLE t (a INT NOT NULL)")
    >>> try:
    ...     cursor.executemany("INSERT INTO t VALUES (?)", [(None,)])
    ... except dbapi.IntegrityError as error:
    ...     print(error.code)
    23502
    """


class InternalError(DatabaseError):
    """Reports an internal error: a bug in Lockstep, which should be reported.

    >>> from lockstep import dbapi
    >>> issubclass(dbapi.InternalError, dbapi.DatabaseError)
    True
    """


class ProgrammingError(DatabaseError):
    """Reports an invalid statement: its syntax, names, privileges or number of parameters.

    >>> from lockstep import dbapi
    >>> try:
    ...     dbapi.connect().execute("SELECT ? AS one", [])
    ... except dbapi.ProgrammingError as error:
    ...     print(error.message)
    0 parameters supplied, but the statement requires 1
    """


class NotSupportedError(DatabaseError):
    """Reports a feature that Lockstep does not support.

    >>> from lockstep import dbapi
    >>> connection = dbapi.connect()
    >>> try:
    ...     connection.autocommit = False
    ... except dbapi.NotSupportedError as error:
    ...     print(error.message)
    transactions are not supported
    """


CLASSES: dict[str, type[DatabaseError]] = {
    "08": OperationalError,
    "0A": NotSupportedError,
    "21": ProgrammingError,
    "22": DataError,
    "23": IntegrityError,
    "25": OperationalError,
    "28": OperationalError,
    "40": OperationalError,
    "53": OperationalError,
    "54": OperationalError,
    "55": OperationalError,
    "57": OperationalError,
    "58": OperationalError,
    "XX": InternalError,
}
"""Exception for each SQLSTATE class; for other classes, ``ProgrammingError``."""

OF_CODES: dict[str, type[Error]] = {
    "08003": InterfaceError,
    # A wrong number of parameters, or an invalid value of an option.
    "22023": ProgrammingError,
}
"""Exceptions for codes that differ from their class."""


def class_of(error: _error.Error) -> type[Error]:
    """Returns the exception class for a Lockstep error."""
    if error.code in OF_CODES:
        return OF_CODES[error.code]
    if error.code == "42804" and error.kind == "fix data":
        # A value in a row has the wrong type, rather than an expression of the statement.
        return DataError
    return CLASSES.get(error.code[:2], ProgrammingError)


def converted(error: _error.Error) -> Error:
    """Returns an error of this module with the fields of a Lockstep error."""
    if isinstance(error, Error):
        return error
    return class_of(error)(
        error.message,
        code=error.code,
        kind=error.kind,
        hint=error.hint,
        detail=error.detail,
        position=error.position,
        rendered=str(error),
    )


@contextlib.contextmanager
def conversion() -> Iterator[None]:
    """Converts raised Lockstep errors to errors of this module."""
    try:
        yield
    except _error.Error as error:
        raise converted(error) from None
