"""Column types of Lockstep, Arrow and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow

from .._error import Error

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_ARROW = {
    "BOOL": pyarrow.bool_(),
    "SMALLINT": pyarrow.int16(),
    "INT": pyarrow.int32(),
    "BIGINT": pyarrow.int64(),
    "FLOAT": pyarrow.float32(),
    "DOUBLE": pyarrow.float64(),
    "STRING": pyarrow.string(),
    "TIMESTAMP": pyarrow.timestamp("us"),
    "DATE": pyarrow.date32(),
}

_OF_SPARK = {
    "boolean": "BOOL",
    "tinyint": "SMALLINT",
    "smallint": "SMALLINT",
    "int": "INT",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
    "date": "DATE",
}


def of_spark(data_type: DataType) -> str | None:
    """Returns the Lockstep type of a Spark column; ``None`` if its type is not supported."""
    return _OF_SPARK.get(data_type.simpleString())


def to_spark(of: str) -> DataType:
    """Returns the Spark type of a Lockstep column."""
    from pyspark.sql import types

    simple = {
        "BOOL": types.BooleanType,
        "SMALLINT": types.ShortType,
        "INT": types.IntegerType,
        "BIGINT": types.LongType,
        "FLOAT": types.FloatType,
        "DOUBLE": types.DoubleType,
        "STRING": types.StringType,
        "TIMESTAMP": types.TimestampType,
        "DATE": types.DateType,
    }
    if of in simple:
        return simple[of]()
    outer, inner = arguments(of)
    if outer == "ARRAY":
        return types.ArrayType(to_spark(inner[0]))
    return types.MapType(to_spark(inner[0]), to_spark(inner[1]))


def to_arrow(of: str) -> pyarrow.DataType:
    """Returns the Arrow type of an input column of a query: times have no time zone."""
    if of in _ARROW:
        return _ARROW[of]
    outer, inner = arguments(of)
    if outer == "ARRAY":
        return pyarrow.list_(to_arrow(inner[0]))
    return pyarrow.map_(to_arrow(inner[0]), to_arrow(inner[1]))


def result_type(of: str) -> pyarrow.DataType:
    """Returns the Arrow type of a result column for Spark: times have a time zone."""
    if of == "TIMESTAMP":
        return pyarrow.timestamp("us", tz="UTC")
    if of in _ARROW:
        return _ARROW[of]
    outer, inner = arguments(of)
    if outer == "ARRAY":
        return pyarrow.list_(result_type(inner[0]))
    return pyarrow.map_(result_type(inner[0]), result_type(inner[1]))


def arguments(of: str) -> tuple[str, list[str]]:
    """Returns ``ARRAY`` or ``MAP``, and its element types."""
    outer, _, rest = of.partition("<")
    parts, depth, start = [], 0, 0
    inner = rest[:-1]
    for at, character in enumerate(inner):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(inner[start:at].strip())
            start = at + 1
    parts.append(inner[start:].strip())
    if outer not in ("ARRAY", "MAP"):
        raise Error(f"type {of} is not supported on Spark", code="0A000")
    return outer, parts


def as_input(column: pyarrow.ChunkedArray, of: str) -> pyarrow.ChunkedArray:
    """Converts a Spark column to an input column of a query, without changing its values."""
    if pyarrow.types.is_timestamp(column.type):
        # By way of integers, to keep the instant independent of the session's time zone.
        of_instant = pyarrow.timestamp(column.type.unit)
        return column.cast(pyarrow.int64()).cast(of_instant).cast(to_arrow(of))
    return column.cast(to_arrow(of))


def as_result(column: pyarrow.ChunkedArray, of: str) -> pyarrow.ChunkedArray:
    """Converts a result column of a query to a Spark column."""
    if of == "TIMESTAMP":
        return column.cast(pyarrow.timestamp("us")).cast(result_type(of))
    return column.cast(result_type(of))
