"""Runs the steps of a pass over the rows of a partition; executors of Spark import it.

Nothing here knows Spark: rows arrive and leave as Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow
import pyarrow.compute

from .. import _lockstep
from .._error import Error
from ._types import as_input, as_result, result_type

ROW = "__ls_row"
"""The column with the number of a row of the main table: its arrival."""

TAG = "__ls_tag"
"""The column that says which table a row is of."""

SEQUENCE = "__ls_seq"
"""The column with the arrival of a row, by which rows are sorted."""

MAIN = "__ls_main"
"""The main table in the texts of steps."""

Columns = tuple[tuple[str, str], ...]
"""Names and types."""


@dataclass(frozen=True)
class Input:
    """A table beside the main one that a step reads."""

    name: str
    """Its name in the text."""
    source: int
    """Its number among the tables of the pass."""


@dataclass(frozen=True)
class Step:
    """A query over the main rows: its columns are added to them, or it gives those to keep."""

    kind: Literal["widen", "filter"]
    sql: str
    reads: tuple[str, ...]
    """The columns of the main rows that it reads, beside their number."""
    inputs: tuple[Input, ...] = ()
    adds: Columns = ()


@dataclass(frozen=True)
class Pass:
    """What runs between two shuffles."""

    steps: tuple[Step, ...]
    sources: tuple[Columns, ...]
    """The columns of the main rows, and of each table beside them."""
    tables: tuple[str, ...]
    """The names of these tables."""
    keeps: Columns
    """The columns that leave it."""
    names: tuple[str, ...]
    """The names that they leave by."""
    settings: Mapping[str, str | int]
    is_keyed: bool
    """Whether rows are read together with others; otherwise each batch is by itself."""
    broadcast: Mapping[int, pyarrow.Table] = field(default_factory=dict)
    """Tables that every partition has whole, by their number."""


def run_pass(work: Pass, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yields the rows of a partition that has all rows of its keys, in order of arrival."""
    session = open_session(work.settings)
    if not work.is_keyed:
        for batch in batches:
            table = pyarrow.Table.from_batches([batch])
            yield from _run(session, work, {0: typed(table, work.sources[0])})
        return
    parts: dict[int, list[pyarrow.RecordBatch]] = {}
    last: dict[int, int] = {}
    for batch in batches:
        tags = batch.column(batch.schema.get_field_index(TAG))
        for tag in pyarrow.compute.unique(tags).to_pylist():
            rows = batch.filter(pyarrow.compute.equal(tags, tag))
            last[tag] = _checked(rows, last.get(tag), work.tables[tag])
            struct = rows.column(rows.schema.get_field_index(f"s{tag}"))
            names = [struct.type.field(at).name for at in range(struct.type.num_fields)]
            flat = pyarrow.RecordBatch.from_arrays(struct.flatten(), names=names)
            parts.setdefault(tag, []).append(flat)
    if 0 not in parts:
        return
    tables = {
        tag: typed(pyarrow.Table.from_batches(found), work.sources[tag])
        for tag, found in parts.items()
    }
    yield from _run(session, work, tables)


def _checked(rows: pyarrow.RecordBatch, last: int | None, table: str) -> int:
    """Returns the last arrival; raises for rows whose order is not known."""
    arrivals = rows.column(rows.schema.get_field_index(SEQUENCE))
    if arrivals.null_count:
        raise Error(
            f"a row of table `{table}` has no arrival",
            code="22004",
            kind="fix data",
            hint="Give the column in `arrival` a value in each row.",
        )
    rises = pyarrow.compute.all(pyarrow.compute.greater(arrivals[1:], arrivals[:-1])).as_py()
    if rises is False or (last is not None and arrivals[0].as_py() <= last):
        raise Error(
            f"two rows of table `{table}` have the same arrival",
            code="23505",
            kind="fix data",
            hint="Name a column in `arrival` that has no value twice.",
        )
    return arrivals[-1].as_py()


def open_session(settings: Mapping[str, str | int]) -> Any:
    """Opens a database in memory with these variables."""
    session = _lockstep.Session()
    for name, value in settings.items():
        session.execute(f"SET {name} = {value!r}", [])
    return session


def query(session: Any, sql: str, tables: Mapping[str, pyarrow.Table]) -> Any:
    """Makes the relation of a query over Arrow tables."""
    return session.query(sql, [], tables.get)


def empty(columns: Columns) -> pyarrow.Table:
    """Makes a table without rows."""
    return typed(
        pyarrow.table({name: pyarrow.nulls(0, result_type(of)) for name, of in columns}), columns
    )


def typed(table: pyarrow.Table, columns: Columns) -> pyarrow.Table:
    """Returns these columns of a table, with the types that a query reads."""
    arrays = [as_input(table.column(name), of) for name, of in columns]
    return pyarrow.table(arrays, names=[name for name, _ in columns])


def _run(
    session: Any, work: Pass, tables: dict[int, pyarrow.Table]
) -> Iterator[pyarrow.RecordBatch]:
    main = tables[0]
    for step in work.steps:
        rows = main.column(ROW) if step.kind == "widen" else _positions(main)
        named = {MAIN: main.select(step.reads).append_column(ROW, rows)}
        for one in step.inputs:
            table = work.broadcast.get(one.source, tables.get(one.source))
            named[one.name] = empty(work.sources[one.source]) if table is None else table
        result = query(session, step.sql, named).collect(None).pyarrow()
        if step.kind == "filter":
            main = main.take(_numbers(result))
            continue
        if not _numbers(result).equals(main.column(ROW).combine_chunks()):
            raise Error(
                "a step of a query on Spark has other rows than it was given",
                code="XX000",
                kind="report bug",
                detail=step.sql,
            )
        for at, (name, of) in enumerate(step.adds):
            main = main.append_column(name, as_input(result.column(at + 1), of))
    arrays = [as_result(main.column(name), of) for name, of in work.keeps]
    yield from pyarrow.table(arrays, names=list(work.names)).to_batches(max_chunksize=10_000)


def _positions(main: pyarrow.Table) -> pyarrow.Array:
    return pyarrow.array(range(main.num_rows), pyarrow.int64())


def _numbers(result: pyarrow.Table) -> pyarrow.Array:
    return result.column(0).combine_chunks()
