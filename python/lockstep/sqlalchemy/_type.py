"""Column types: their names in SQL, and the literals of their values."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from sqlalchemy import exc, types
from sqlalchemy.sql import compiler

SINGLE_PRECISION_BITS = 24
"""Number of mantissa bits of a FLOAT; a higher precision requires DOUBLE."""


class Timestamp(types.DateTime):
    """TIMESTAMP value; in UTC if it has no time zone."""

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """Returns a function that formats a value as an SQL literal."""

        def process(value: Any) -> str:
            if value.tzinfo is not None:
                value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
            # In UTC, independent of the session's time zone.
            return f"CAST('{value.isoformat(timespec='milliseconds')}Z' AS TIMESTAMP)"

        return process


class Date(types.Date):
    """DATE value."""

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """Returns a function that formats a value as an SQL literal."""
        return lambda value: f"CAST('{value.isoformat()}' AS DATE)"


COLSPECS: dict[Any, Any] = {
    types.DateTime: Timestamp,
    types.Date: Date,
}
"""Types whose literals differ from SQLAlchemy's defaults."""


class TypeCompiler(compiler.GenericTypeCompiler):
    """Compiles types to Lockstep's type names."""

    def visit_BOOLEAN(self, type_: Any, **kw: Any) -> str:
        """Returns BOOL."""
        return "BOOL"

    def visit_INTEGER(self, type_: Any, **kw: Any) -> str:
        """Returns INT, a 32-bit integer."""
        return "INT"

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        """Returns FLOAT if its precision suffices, otherwise DOUBLE, as Python's ``float``."""
        precision = getattr(type_, "precision", None)
        return "DOUBLE" if precision is None or precision > SINGLE_PRECISION_BITS else "FLOAT"

    def visit_REAL(self, type_: Any, **kw: Any) -> str:
        """Returns FLOAT, which has single precision."""
        return "FLOAT"

    def visit_DOUBLE(self, type_: Any, **kw: Any) -> str:
        """Returns DOUBLE."""
        return "DOUBLE"

    visit_DOUBLE_PRECISION = visit_DOUBLE
    # Decimals are not supported; SQLAlchemy warns that they are stored as floats.
    visit_NUMERIC = visit_DOUBLE
    visit_DECIMAL = visit_DOUBLE

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        """Returns STRING, of any length."""
        return "STRING"

    visit_CHAR = visit_VARCHAR
    visit_NCHAR = visit_VARCHAR
    visit_NVARCHAR = visit_VARCHAR
    visit_TEXT = visit_VARCHAR
    visit_CLOB = visit_VARCHAR

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        """Returns STRING."""
        return "STRING"

    visit_UUID = visit_uuid

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:
        """Returns TIMESTAMP, which has millisecond precision."""
        return "TIMESTAMP"

    visit_TIMESTAMP = visit_DATETIME

    def _missing(self, type_: Any, **kw: Any) -> str:
        raise exc.CompileError(f"no column type for {type_!r}")

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
"""SQLAlchemy types by column type."""


def type_of(name: str) -> Any:
    """Returns the type of a reflected column; ``NullType`` for types SQLAlchemy does not have."""
    return NAMES.get(name, types.NullType)()
