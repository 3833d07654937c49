"""Finds the data frames and tables that ``db.sql`` refers to by the names of variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ._arrow import column_of, is_table, library_of, require, to_arrow

_FOLDER = os.path.dirname(__file__) + os.sep


def finder() -> Callable[[str], Any]:
    """Returns a function that finds a table by name among the variables of the caller.

    The caller is the innermost function outside this package. Its local variables take precedence
    over the variables of its module.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
        frame = frame.f_back
    scopes = (frame.f_locals, frame.f_globals)

    def find(name: str) -> Any:
        for scope in scopes:
            if name in scope:
                return _as_table(scope[name])
        return None

    return find


def _as_table(value: Any) -> Any:
    """Returns an object with the Arrow stream interface; ``None`` if ``value`` is not a table."""
    if library_of(value) == "numpy":
        return _from_numpy(value)
    if is_table(value) and _has_columns(value):
        return to_arrow(value)
    return None


def _has_columns(value: Any) -> bool:
    # A pandas or polars Series, and other objects of these libraries, are not tables.
    name = type(value).__name__
    return library_of(value) not in ("pandas", "polars") or name in ("DataFrame", "LazyFrame")


def _from_numpy(array: Any) -> Any:
    """Returns an array as a table: its fields are the columns, or ``column0``, ``column1``, …"""
    if type(array).__name__ not in ("ndarray", "recarray") or array.ndim not in (1, 2):
        return None
    pyarrow = require("pyarrow", "to read a numpy array")
    if array.dtype.names is not None:
        columns = {name: array[name] for name in array.dtype.names}
    elif array.ndim == 1:
        columns = {"column0": array}
    else:
        columns = {f"column{number}": array[:, number] for number in range(array.shape[1])}
    return pyarrow.table({name: column_of(pyarrow, name, of) for name, of in columns.items()})
