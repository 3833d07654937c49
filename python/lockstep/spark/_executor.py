"""Runs the steps of a pass over the rows of a partition; imported by Spark executors.

Independent of Spark: input and output are Arrow batches.
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
"""Column with the number of a row of the main table: its arrival."""

TAG = "__ls_tag"
"""Column with the number of the table to which a row belongs."""

SEQUENCE = "__ls_seq"
"""Column with the arrival of a row, by which rows are sorted."""

MAIN = "__ls_main"
"""Name of the main table in the SQL of steps."""

Columns = tuple[tuple[str, str], ...]
"""Names and types."""


@dataclass(frozen=True)
class Input:
    """Table that a step reads in addition to the main table."""

    name: str
    """Name of the table in the SQL of the step."""
    source: int
    """Number of the table among the tables of the pass."""


@dataclass(frozen=True)
class Step:
    """Query over the main rows, which adds columns to them or selects rows to keep."""

    kind: Literal["widen", "filter"]
    sql: str
    reads: tuple[str, ...]
    """Columns of the main rows that the step reads, in addition to their number."""
    inputs: tuple[Input, ...] = ()
    adds: Columns = ()


@dataclass(frozen=True)
class Pass:
    """Work between two shuffles."""

    steps: tuple[Step, ...]
    sources: tuple[Columns, ...]
    """Columns of the main rows, and of each other table."""
    tables: tuple[str, ...]
    """Names of these tables."""
    keeps: Columns
    """Columns of the result of the pass."""
    names: tuple[str, ...]
    """Names of these columns in the result."""
    settings: Mapping[str, str | int]
    is_keyed: bool
    """Whether all rows of a partition are processed together, rather than batch by batch."""
    broadcast: Mapping[int, pyarrow.Table] = field(default_factory=dict)
    """Broadcast tables by number."""


def run_pass(work: Pass, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Processes a partition that has all rows of its keys, in order of arrival."""
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
    """Returns the last arrival; raises ``Error`` if arrivals are NULL or not increasing."""
    arrivals = rows.column(rows.schema.get_field_index(SEQUENCE))
    if arrivals.null_count:
        raise Error(
            f"the arrival of a row of table `{table}` is NULL",
            code="22004",
            kind="fix data",
            hint="Use a column without NULL in `arrival`.",
        )
    rises = pyarrow.compute.all(pyarrow.compute.greater(arrivals[1:], arrivals[:-1])).as_py()
    if rises is False or (last is not None and arrivals[0].as_py() <= last):
        raise Error(
            f"two rows of table `{table}` have the same arrival",
            code="23505",
            kind="fix data",
            hint="Use a column with unique values in `arrival`.",
        )
    return arrivals[-1].as_py()


def open_session(settings: Mapping[str, str | int]) -> Any:
    """Opens an in-memory database and sets these variables."""
    session = _lockstep.Session()
    for name, value in settings.items():
        session.execute(f"SET {name} = {value!r}", [])
    return session


def query(session: Any, sql: str, tables: Mapping[str, pyarrow.Table]) -> Any:
    """Returns the relation of a query over Arrow tables."""
    return session.query(sql, [], tables.get)


def empty(columns: Columns) -> pyarrow.Table:
    """Returns a table without rows."""
    return typed(
        pyarrow.table({name: pyarrow.nulls(0, result_type(of)) for name, of in columns}), columns
    )


def typed(table: pyarrow.Table, columns: Columns) -> pyarrow.Table:
    """Returns these columns of a table, converted to the input types of a query."""
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
                "the rows of a query step on Spark differ from its input rows",
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
