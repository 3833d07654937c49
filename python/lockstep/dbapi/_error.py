"""The exceptions of DB-API 2.0, and which of them an error of Lockstep becomes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import _error

Warning = _error.LockstepWarning
"""A warning about a statement that took effect. It is warned, not raised."""


class Error(_error.Error):
    """The base of all errors of this module; it is a ``lockstep.Error`` with all its fields.

    ``str(error)`` is the whole report, with a caret under the position in the statement.
    """

    @property
    def sqlstate(self) -> str:
        """The code of the error, as PEP 249's other modules call it."""
        return self.code


class InterfaceError(Error):
    """An error of how the interface is used: a closed connection or cursor."""


class DatabaseError(Error):
    """The base of the errors of the database."""


class DataError(DatabaseError):
    """An error of a value: out of range, or of a type that the column does not take."""


class OperationalError(DatabaseError):
    """An error that the program did not cause: limits, timeouts, disks, connections, passwords."""


class IntegrityError(DatabaseError):
    """A constraint: NULL in a column that is NOT NULL."""


class InternalError(DatabaseError):
    """A defect of Lockstep."""


class ProgrammingError(DatabaseError):
    """An error of the statement: its syntax, names, privileges or number of parameters."""


class NotSupportedError(DatabaseError):
    """What Lockstep does not have."""


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
