"""PyTorch dataset of the rows of a relation."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pyarrow.ipc
import torch
import torch.utils.data

from ._error import Error
from ._shuffle import resized, shuffled
from ._tensor import arrays_of, parts

PART_ROWS = 4_096


class RowDataset(torch.utils.data.IterableDataset):
    """Yields batches of rows as tensors; see ``Relation.to_torch``.

    The rows are stored in a temporary file; each worker reads different parts of it. The file is
    removed when the dataset is destroyed in the process that created it.
    """

    def __init__(
        self,
        batches: Callable[[int], Iterator[Any]],
        *,
        rows: int,
        label: str | None,
        buffer: int,
        seed: int,
        shard: tuple[int, int],
    ) -> None:
        super().__init__()
        self._rows = rows
        self._label = label
        self._buffer = buffer
        self._seed = seed
        self._shard = shard
        self._epoch = 0
        folder = tempfile.mkdtemp(prefix="lockstep-torch-")
        self._remove = weakref.finalize(self, _remove, folder, os.getpid())
        self._path = os.path.join(folder, "rows.arrow")
        self._parts, self._row_count = _spool(batches(PART_ROWS), self._path)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_remove"]
        return state

    def set_epoch(self, epoch: int) -> None:
        """Selects the order of the next iteration, which depends on ``seed`` and ``epoch``."""
        self._epoch = epoch

    @property
    def row_count(self) -> int:
        """Number of rows in all shards."""
        return self._row_count

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        share, shares = self._shard
        own, of = share * workers + number, shares * workers
        batches = self._read(self._parts * own // of, self._parts * (own + 1) // of)
        if self._buffer:
            seed = f"{self._seed} {self._epoch} {own}"
            batches = shuffled(resized(batches, self._buffer), self._buffer, seed)
        for batch in resized(batches, self._rows):
            columns = {
                name: values if isinstance(values, list) else torch.from_numpy(values)
                for name, values in arrays_of(batch).items()
            }
            yield parts(columns, self._label)

    def _read(self, start: int, end: int) -> Iterator[Any]:
        if start == end:
            return
        with pyarrow.memory_map(self._path) as file:
            reader = pyarrow.ipc.open_file(file)
            for part in range(start, end):
                yield reader.get_batch(part)


def _spool(batches: Iterator[Any], path: str) -> tuple[int, int]:
    """Writes batches to a file. Returns the number of batches and the number of rows."""
    parts_written, rows, writer = 0, 0, None
    for batch in batches:
        if writer is None:
            writer = pyarrow.ipc.new_file(path, batch.schema)
        writer.write_batch(batch)
        parts_written += 1
        rows += batch.num_rows
    if writer is not None:
        writer.close()
    return parts_written, rows


def _remove(folder: str, process: int) -> None:
    # A forked worker has a copy of the object.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def check_shard(shard: tuple[int, int]) -> None:
    """Raises ``Error`` with the code 22023 for an invalid shard."""
    share, shares = shard
    if not 0 <= share < shares:
        raise Error(
            f"invalid value for `shard`: {shard} (expected (number, count), 0 <= number < count)",
            code="22023",
        )
