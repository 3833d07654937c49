"""The exceptions of DB-API 2.0, and which of them an error of Lockstep becomes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import _error

Warning = _error.LockstepWarning
"""A warning about a statement that took effect. It is warned, not raised."""


class Error(_error.Error):
    """Is the base of all errors of this module, and a ``lockstep.Error`` with all its fields.

    ``str(error)`` is the whole report, with a caret under the position in the statement.

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
        """The code of the error, as PEP 249's other modules call it.

        >>> from lockstep import dbapi
        >>> dbapi.Error("it is closed", code="08003").sqlstate
        '08003'
        """
        return self.code


class InterfaceError(Error):
    """Says that the interface is used wrongly: a closed connection or cursor.

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
    """Is the base of the errors of the database.

    >>> from lockstep import dbapi
    >>> issubclass(dbapi.ProgrammingError, dbapi.DatabaseError)
    True
    """


class DataError(DatabaseError):
    """Says that a value is out of range, or of a type that the column does not take.

    >>> from lockstep import dbapi
    >>> cursor = dbapi.connect().execute("CREATE TABLE t (a INT)")
    >>> try:
    ...     cursor.executemany("INSERT INTO t VALUES (?)", [("x",)])
    ... except dbapi.DataError as error:
    ...     print(error.message)
    row 1: column `a` is of type INT but the value is a Python `str`
    """


class OperationalError(DatabaseError):
    """Says what the program did not cause: limits, timeouts, disks, connections, passwords.

    >>> from lockstep import dbapi
    >>> try:
    ...     dbapi.connect(host="127.0.0.1", port=1)
    ... except dbapi.OperationalError as error:
    ...     print(error.code)
    08001
    """


class IntegrityError(DatabaseError):
    """Says that a constraint does not hold: NULL in a column that is NOT NULL.

    >>> from lockstep import dbapi
    >>> cursor = dbapi.connect().execute("CREATE TABLE t (a INT NOT NULL)")
    >>> try:
    ...     cursor.executemany("INSERT INTO t VALUES (?)", [(None,)])
    ... except dbapi.IntegrityError as error:
    ...     print(error.code)
    23502
    """


class InternalError(DatabaseError):
    """Says that there is a defect in Lockstep. The message asks for a report.

    >>> from lockstep import dbapi
    >>> issubclass(dbapi.InternalError, dbapi.DatabaseError)
    True
    """


class ProgrammingError(DatabaseError):
    """Says that the statement is wrong: its syntax, names, privileges or number of parameters.

    >>> from lockstep import dbapi
    >>> try:
    ...     dbapi.connect().execute("SELECT ? AS one", [])
    ... except dbapi.ProgrammingError as error:
    ...     print(error.message)
    the statement has 1 `?`, and 0 values were given
    """


class NotSupportedError(DatabaseError):
    """Says that Lockstep does not have what the program needs.

    >>> from lockstep import dbapi
    >>> connection = dbapi.connect()
    >>> try:
    ...     connection.autocommit = False
    ... except dbapi.NotSupportedError as error:
    ...     print(error.message)
    there are no transactions
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
"""The exception of each class of SQLSTATE. All others are errors of the statement."""

OF_CODES: dict[str, type[Error]] = {
    "08003": InterfaceError,
    # A wrong number of parameters, a value that an option does not take.
    "22023": ProgrammingError,
}
"""The codes that differ from their class."""


def class_of(error: _error.Error) -> type[Error]:
    """Returns the exception that an error of Lockstep becomes."""
    if error.code in OF_CODES:
        return OF_CODES[error.code]
    if error.code == "42804" and error.kind == "fix data":
        # A row has a value of a wrong type; otherwise the statement has.
        return DataError
    return CLASSES.get(error.code[:2], ProgrammingError)


def converted(error: _error.Error) -> Error:
    """Returns an error of this module with the fields of an error of Lockstep."""
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
    """Raises errors of Lockstep as errors of this module."""
    try:
        yield
    except _error.Error as error:
        raise converted(error) from None
