"""Shuffles the rows of a stream in a buffer, reproducibly for a given seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._arrow import require

if TYPE_CHECKING:
    import pyarrow

SHUFFLE_ROWS = 65_536


def buffer_rows(shuffle: bool | int) -> int:
    """Returns the size of the shuffle buffer in rows; 0 for no shuffling."""
    return SHUFFLE_ROWS if shuffle is True else int(shuffle)


def shuffled(
    batches: Iterable[pyarrow.RecordBatch], buffer: int, seed: int
) -> Iterator[pyarrow.RecordBatch]:
    """Yields the rows of batches of ``buffer`` rows in random order.

    Each batch is shuffled together with up to ``buffer`` rows kept from earlier batches; the rows
    in excess of ``buffer`` are yielded and the others are kept. A row can be delayed by any
    distance, but advance by less than ``2 * buffer`` rows.
    """
    pyarrow = require("pyarrow", "to shuffle batches")
    draw = random.Random(seed)
    kept = None
    for batch in batches:
        rows = batch if kept is None else _joined(pyarrow, kept, batch)
        order = list(range(rows.num_rows))
        draw.shuffle(order)
        passed = rows.num_rows - buffer
        if passed <= 0:
            kept = rows
            continue
        yield rows.take(pyarrow.array(order[:passed]))
        kept = rows.take(pyarrow.array(order[passed:]))
    if kept is not None:
        order = list(range(kept.num_rows))
        draw.shuffle(order)
        yield kept.take(pyarrow.array(order))


def resized(batches: Iterable[pyarrow.RecordBatch], rows: int) -> Iterator[pyarrow.RecordBatch]:
    """Yields the rows in batches of ``rows`` rows; the last batch may have fewer."""
    pyarrow = require("pyarrow", "to create batches")
    kept = None
    for batch in batches:
        whole = batch if kept is None or kept.num_rows == 0 else _joined(pyarrow, kept, batch)
        at = 0
        while whole.num_rows - at >= rows:
            yield whole.slice(at, rows)
            at += rows
        kept = whole.slice(at)
    if kept is not None and kept.num_rows:
        yield kept


def _joined(pyarrow: Any, first: Any, second: Any) -> Any:
    table = pyarrow.Table.from_batches([first, second]).combine_chunks()
    return table.to_batches()[0]
