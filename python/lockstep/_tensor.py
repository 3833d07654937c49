"""Converts columns of batches to arrays for models: numbers without NULL, strings and lists."""

from __future__ import annotations

from typing import Any

from ._arrow import require
from ._error import Error


def arrays_of(batch: Any) -> dict[str, Any]:
    """Returns the columns of a batch as numpy arrays; strings and lists as lists of objects.

    NULL in a float column is NaN. TIMESTAMP is milliseconds and DATE is days, as 64-bit integers.
    """
    return {name: _array(name, batch.column(at)) for at, name in enumerate(batch.schema.names)}


def _array(name: str, column: Any) -> Any:
    pyarrow = require("pyarrow", "to create tensors")
    types = pyarrow.types
    if types.is_timestamp(column.type):
        column = column.cast(pyarrow.timestamp("ms")).cast(pyarrow.int64())
    elif types.is_date(column.type):
        column = column.cast(pyarrow.int32()).cast(pyarrow.int64())
    is_float = types.is_floating(column.type)
    if column.null_count and not is_float:
        raise Error(
            f"column `{name}` contains NULL, which a tensor of {column.type} cannot represent",
            code="22004",
            kind="fix data",
            hint=f"Select ifnull({name}, 0), or cast the column to DOUBLE to get NaN for NULL.",
        )
    if is_float or types.is_integer(column.type) or types.is_boolean(column.type):
        # Copies, because Arrow memory is read-only.
        filled = column.fill_null(float("nan")) if column.null_count else column
        return filled.to_numpy(zero_copy_only=False).copy()
    return column.to_pylist()


def parts(columns: dict[str, Any], label: str | None) -> Any:
    """Returns all columns, or a pair of the features and the label if ``label`` is not ``None``."""
    if label is None:
        return columns
    return {name: values for name, values in columns.items() if name != label}, columns[label]


def check_label(label: str | None, names: list[str]) -> None:
    """Raises ``Error`` with the code 42703 if ``label`` is not a column."""
    if label is not None and label not in names:
        raise Error(f"the query has no column `{label}`", code="42703")
