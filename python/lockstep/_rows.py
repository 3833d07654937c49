"""Converts the row forms that ``append`` accepts to the forms that the native module accepts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._arrow import library_of
from ._error import Error


def is_path(data: object) -> bool:
    """Returns whether ``data`` is the path of a file."""
    return isinstance(data, (str, os.PathLike))


def is_series(data: object) -> bool:
    """Returns whether ``data`` is a pandas Series: one row of a data frame."""
    return library_of(data) == "pandas" and not hasattr(data, "columns")


def rows_of(data: Any) -> list[Any]:
    """Returns one or more rows as a list of dicts, or a list of tuples or lists."""
    if _has_names(data):
        return [_as_dict(data)]
    # A numpy array without dimensions is Iterable but cannot be iterated.
    is_list = isinstance(data, Iterable) and getattr(data, "ndim", 1) != 0
    if is_list and not isinstance(data, (str, bytes)):
        rows = [_as_dict(row) if _has_names(row) else row for row in data]
        if all(isinstance(row, dict) for row in rows):
            return rows
        # Checks the type first: isinstance with an abstract class is slow.
        if all(type(row) is tuple or type(row) is list or _is_sequence(row) for row in rows):
            return rows
    raise Error(
        f"cannot append a Python `{type(data).__name__}`",
        code="42804",
        kind="fix data",
        hint="Pass a data frame, an Arrow table, a dict, a list of dicts or tuples, or the path of "
        "a file.",
    )


def _has_names(row: object) -> bool:
    """Returns whether ``row`` is a single row with column names."""
    # Checks the type first: the other checks are slow.
    if type(row) in (dict, tuple, list):
        return type(row) is dict
    return (
        isinstance(row, Mapping)
        or (isinstance(row, tuple) and hasattr(row, "_asdict"))
        or (dataclasses.is_dataclass(row) and not isinstance(row, type))
        or is_series(row)
    )


def _as_dict(row: Any) -> dict[Any, Any]:
    if type(row) is dict:
        return row
    if isinstance(row, Mapping):
        return dict(row)
    if isinstance(row, tuple):
        return row._asdict()  # type: ignore[attr-defined]
    if is_series(row):
        return row.to_dict()
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}


def _is_sequence(row: object) -> bool:
    return isinstance(row, Sequence) and not isinstance(row, (str, bytes))
