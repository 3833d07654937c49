"""Compares two tables of features bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def compare_bits(
    offline: pa.Table, online: pa.Table, without: Sequence[str] = ()
) -> tuple[int, int]:
    """Returns the number of feature values, and the number of values that differ in any bit.

    The rows of both tables must be in the same order. ``without`` names columns that identify rows;
    they are not compared as features. Raises ``ValueError`` if the tables do not match.
    """
    if offline.schema.names != online.schema.names or len(offline) != len(online):
        raise ValueError("the tables must have the same columns and the same number of rows")
    compared = differing = 0
    for name in offline.column_names:
        if name in without:
            if not offline[name].equals(online[name]):
                raise ValueError(f"the rows must be in the same order of `{name}`")
            continue
        compared += len(offline)
        differing += int(np.count_nonzero(_bits(offline[name]) != _bits(online[name])))
    return compared, differing


def _bits(column: pa.ChunkedArray) -> np.ndarray:
    """Converts values to objects that are equal if and only if their bits are; NULL is None."""
    if pa.types.is_float64(column.type):
        missing = column.is_null().to_numpy()
        bits = column.fill_null(0.0).to_numpy().view(np.int64).astype(object)
        bits[missing] = None
        return bits
    return np.array(column.to_pylist(), dtype=object)
