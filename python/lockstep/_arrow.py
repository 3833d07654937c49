"""Converts data of other libraries to Arrow, and results to objects of these libraries.

A library is imported only to convert an object from or to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._error import Error

if TYPE_CHECKING:
    import pyarrow


def library_of(data: object) -> str:
    """Returns the top-level package of an object's class."""
    return type(data).__module__.partition(".")[0]


def is_table(data: object) -> bool:
    """Returns whether an object has columns rather than rows."""
    return (
        library_of(data) in ("pandas", "polars")
        or hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__arrow_c_array__")
    )


def to_arrow(data: Any, types: Mapping[str, str] | None = None) -> Any:
    """Returns an object with the Arrow stream interface for a table of any library.

    ``types`` are the SQL types of the target columns, if known.
    """
    library = library_of(data)
    if library == "pandas":
        return _from_pandas(data, types or {})
    if library == "polars":
        return _from_polars(data)
    return data


def _from_polars(data: Any) -> Any:
    frame = data.collect() if hasattr(data, "collect") else data
    polars = require("polars", "to read a polars data frame")
    for name, dtype in frame.schema.items() if isinstance(frame, polars.DataFrame) else ():
        # Arrow has no 128-bit integers, and the bytes of an Object are an address.
        if str(dtype) in ("Int128", "UInt128", "Object"):
            raise Error(
                f"cannot convert column `{name}` of polars type {dtype}",
                code="42804",
                kind="fix data",
                hint="Cast the column to a type such as Int64, Float64 or String, or omit it.",
            )
    if isinstance(frame, polars.DataFrame) and polars.Null in frame.dtypes:
        # For a column of type Null, polars exports a buffer, which the Arrow format forbids.
        require("pyarrow", "to read a column that contains only None")
        return frame.to_arrow()
    return frame


def _from_pandas(frame: Any, types: Mapping[str, str]) -> Any:
    pyarrow = require("pyarrow", "to read a pandas data frame")
    try:
        # A missing value becomes NULL; the index is not a column.
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    except (ValueError, TypeError, pyarrow.ArrowException) as error:
        raise Error(
            f"could not convert the data frame to Arrow: {_first_line(error)}",
            code="42804",
            kind="fix data",
            hint="Use unique column names and values of one type per column.",
        ) from error
    for position, name in enumerate(table.column_names):
        # In a column of numpy floats, NaN is both the missing value and a value. It stays NaN, so
        # that the session's nan_as_null applies; columns of other types have no NaN.
        dtype = frame.dtypes.iloc[position]
        if (
            table.column(position).null_count
            and type(dtype).__module__.partition(".")[0] == "numpy"
            and dtype.kind == "f"
            and types.get(name, "DOUBLE") in ("FLOAT", "DOUBLE")
        ):
            floats = pyarrow.array(frame.iloc[:, position].to_numpy(), from_pandas=False)
            table = table.set_column(position, name, floats)
    return table


def column_of(pyarrow: Any, name: str, values: Any) -> Any:
    """Returns values, such as a numpy array, as an Arrow column."""
    try:
        return pyarrow.array(values)
    except (ValueError, TypeError, pyarrow.ArrowException) as error:
        raise Error(
            f"could not convert column `{name}` to Arrow: {_first_line(error)}",
            code="42804",
            kind="fix data",
            hint="Use values of one type, in the byte order of the machine.",
        ) from error


def _first_line(error: Exception) -> str:
    texts = [str(argument) for argument in error.args] or [str(error)]
    return "; ".join(text.splitlines()[0] for text in texts if text)


def to_pandas(table: Any) -> Any:
    """Converts a pyarrow table to a data frame.

    Numeric and BOOL columns with NULL get pandas' nullable types: otherwise, integers would become
    floats and lose digits, and NULL would become NaN in float columns.
    """
    pandas = require("pandas", "to create a data frame")
    pyarrow = require("pyarrow", "to create a data frame")
    nullable = {
        pyarrow.int16(): pandas.Int16Dtype(),
        pyarrow.int32(): pandas.Int32Dtype(),
        pyarrow.int64(): pandas.Int64Dtype(),
        pyarrow.float32(): pandas.Float32Dtype(),
        pyarrow.float64(): pandas.Float64Dtype(),
        pyarrow.bool_(): pandas.BooleanDtype(),
    }
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        mapper = nullable.get if column.null_count else None
        columns[name] = column.to_pandas(types_mapper=mapper)
    return pandas.DataFrame(columns, columns=table.column_names)


def require(library: str, purpose: str) -> Any:
    """Imports an optional library. Raises ``Error`` with the code 58P01 if it is not installed."""
    import importlib

    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise Error(
            f"{library} is required {purpose}",
            code="58P01",
            hint=f"Run `pip install {library}`.",
        ) from error


def to_numpy(column: pyarrow.ChunkedArray) -> Any:
    """Returns a column as a numpy array: masked if it has NULL and is an integer or BOOL column."""
    numpy = require("numpy", "to create numpy arrays")
    pyarrow = require("pyarrow", "to create numpy arrays")
    array = column.combine_chunks()
    types = pyarrow.types
    is_number = types.is_integer(array.type) or types.is_boolean(array.type)
    if types.is_timestamp(array.type):
        array = array.cast(pyarrow.timestamp("ms"))
    if array.null_count == 0 or not (is_number or types.is_floating(array.type)):
        values = array.to_numpy(zero_copy_only=False)
        is_masked = array.null_count > 0
    else:
        is_masked = is_number
        filled = array.fill_null(0 if is_number else float("nan"))
        values = (filled.cast(array.type)).to_numpy(zero_copy_only=False)
    if not is_masked:
        return values
    return numpy.ma.masked_array(values, mask=array.is_null().to_numpy(zero_copy_only=False))
