"""Types of columns: their names in SQL, and values that are written into statements."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from sqlalchemy import exc, types
from sqlalchemy.sql import compiler

SINGLE_PRECISION_BITS = 24
"""The bits of the mantissa of a FLOAT; a number that needs more is a DOUBLE."""


class Timestamp(types.DateTime):
    """A time, in UTC where it has no time zone."""

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """Returns the function that writes a value as a literal of SQL."""

        def process(value: Any) -> str:
            if value.tzinfo is not None:
                value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
            # In UTC, whatever the time zone of the session is.
            return f"CAST('{value.isoformat(timespec='milliseconds')}Z' AS TIMESTAMP)"

        return process


class Date(types.Date):
    """A day."""

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """Returns the function that writes a value as a literal of SQL."""
        return lambda value: f"CAST('{value.isoformat()}' AS DATE)"


COLSPECS: dict[Any, Any] = {
    types.DateTime: Timestamp,
    types.Date: Date,
}
"""The types whose values are written in another way than SQLAlchemy writes them."""


class TypeCompiler(compiler.GenericTypeCompiler):
    """Writes types as Lockstep calls them."""

    def visit_BOOLEAN(self, type_: Any, **kw: Any) -> str:
        """Writes BOOL."""
        return "BOOL"

    def visit_INTEGER(self, type_: Any, **kw: Any) -> str:
        """Writes INT, of 32 bits."""
        return "INT"

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        """Writes FLOAT for a precision that it has, otherwise DOUBLE, as Python's floats are."""
        precision = getattr(type_, "precision", None)
        return "DOUBLE" if precision is None or precision > SINGLE_PRECISION_BITS else "FLOAT"

    def visit_REAL(self, type_: Any, **kw: Any) -> str:
        """Writes FLOAT, of single precision."""
        return "FLOAT"

    def visit_DOUBLE(self, type_: Any, **kw: Any) -> str:
        """Writes DOUBLE."""
        return "DOUBLE"

    visit_DOUBLE_PRECISION = visit_DOUBLE
    # There are no decimals; SQLAlchemy warns that they are stored as floats.
    visit_NUMERIC = visit_DOUBLE
    visit_DECIMAL = visit_DOUBLE

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        """Writes STRING, of any length."""
        return "STRING"

    visit_CHAR = visit_VARCHAR
    visit_NCHAR = visit_VARCHAR
    visit_NVARCHAR = visit_VARCHAR
    visit_TEXT = visit_VARCHAR
    visit_CLOB = visit_VARCHAR

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        """Writes STRING."""
        return "STRING"

    visit_UUID = visit_uuid

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:
        """Writes TIMESTAMP, of milliseconds."""
        return "TIMESTAMP"

    visit_TIMESTAMP = visit_DATETIME

    def _missing(self, type_: Any, **kw: Any) -> str:
        raise exc.CompileError(f"there is no type of column for {type_!r}")

    visit_TIME = _missing
    visit_BLOB = _missing
    visit_BINARY = _missing
    visit_VARBINARY = _missing
    visit_JSON = _missing
    visit_large_binary = _missing


NAMES: dict[str, Any] = {
    "BOOL": types.BOOLEAN,
    "SMALLINT": types.SMALLINT,
    "INT": types.INTEGER,
    "BIGINT": types.BIGINT,
    "FLOAT": types.REAL,
    "DOUBLE": types.DOUBLE,
    "STRING": types.VARCHAR,
    "TIMESTAMP": types.TIMESTAMP,
    "DATE": types.DATE,
}
"""The types of SQLAlchemy for those of columns."""


def type_of(name: str) -> Any:
    """Returns the type of a reflected column; ``NullType`` for maps, which SQLAlchemy has not."""
    return NAMES.get(name, types.NullType)()
