"""Training sets on Spark, computed from DataFrames with the same query as in a database.

Spark reads, shuffles, sorts, retries and writes; this package runs the query in the executors, over
Arrow data. The values are bit-identical to those of ``db.sql`` over the same rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._arrow import require
from .._error import Error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ._executor import Columns, Pass
    from ._stages import PlannedQuery

__all__ = ["training_set"]

BROADCAST_ROWS_MAX = 1_000_000

_HASH = "__ls_hash"


def training_set(
    spark: SparkSession,
    sql: str,
    tables: Mapping[str, DataFrame],
    *,
    arrival: Mapping[str, str] | None = None,
    broadcast: Iterable[str] = (),
    row_id: str | None = None,
    partitions: int | None = None,
    settings: Mapping[str, str | int] | None = None,
) -> DataFrame:
    '''Returns the result of a query over DataFrames as a lazy DataFrame.

    - ``spark``: Spark session, classic or Connect; version 3.5 or later.
    - ``sql``: one SELECT over tables with LAST JOIN, WHERE and windows.
    - ``tables``: DataFrame of each table in the query.
    - ``arrival``: for each table, its integer column that increases in the order in which rows
      arrived; values must be unique. Determines the order of rows with equal event times. By
      default, the order is ``monotonically_increasing_id`` of Spark: the order of the files, which
      changes after a shuffle, or if a task over a source without a defined order is retried.
    - ``broadcast``: right tables of LAST JOINs to send to every executor as a whole, rather than
      to shuffle by key; at most 1,000,000 rows each.
    - ``row_id``: name of an additional column with the arrival of each row of the leftmost table.
      The rows of a DataFrame have no order; sort by this column to get the order of ``db.sql``.
    - ``partitions``: number of shuffle partitions; default ``spark.sql.shuffle.partitions``. An
      executor holds all rows of a partition in memory.
    - ``settings``: variables of the query's session, such as ``{"time_zone": "Europe/Berlin"}``.

    This package must be installed on the executors, as any Python package. Rows are shuffled once
    for each key of windows and LAST JOINs for which no earlier shuffle can be used.

    Raises ``Error``: the errors of ``db.sql``; 0A000 for a part of the query that cannot be split
    into stages, with its position, and for a column whose type is not supported; 22023 for invalid
    arguments; 54000 for a table that is too large to broadcast; 58P01 if PySpark or pyarrow is not
    installed.

    >>> from lockstep.spark import training_set
    >>> clicks = spark.read.parquet("s3://bucket/clicks")  # doctest: +SKIP
    >>> features = training_set(
    ...     spark,
    ...     """SELECT user, sum(price) OVER w AS spent FROM clicks
    ...        WINDOW w AS (PARTITION BY user ORDER BY ts
    ...                     ROWS_RANGE BETWEEN 7d PRECEDING AND CURRENT ROW)""",
    ...     {"clicks": clicks},
    ...     arrival={"clicks": "id"},
    ... )  # doctest: +SKIP
    >>> features.write.parquet("s3://bucket/features")  # doctest: +SKIP
    '''
    require("pyspark", "to create a training set on Spark")
    require("pyarrow", "to create a training set on Spark")
    from ._stages import names_read, plan

    broadcast, arrival = frozenset(broadcast), dict(arrival or {})
    settings = dict(settings or {})
    _check(tables, arrival, broadcast, row_id)
    read = names_read(sql)
    known = {name: _columns(name, frame, *read) for name, frame in tables.items()}
    planned = plan(sql, known, broadcast, settings)
    count = partitions or int(spark.conf.get("spark.sql.shuffle.partitions"))
    run = _Run(planned, tables, arrival, settings, count)
    return run.frame(row_id)


def _check(
    tables: Mapping[str, DataFrame],
    arrival: Mapping[str, str],
    broadcast: frozenset[str],
    row_id: str | None,
) -> None:
    for what, names in (("arrival", arrival), ("broadcast", broadcast)):
        if unknown := sorted(set(names) - set(tables)):
            raise Error(
                f"table `{unknown[0]}` in `{what}` does not exist in `tables`", code="22023"
            )
    for table, column in arrival.items():
        of = dict(tables[table].dtypes).get(column)
        if of not in ("tinyint", "smallint", "int", "bigint"):
            raise Error(
                f"column `{column}` in `arrival` is not an integer column of table `{table}`",
                code="22023",
            )
    if row_id is not None and row_id.startswith("__ls_"):
        raise Error(f"name `{row_id}` in `row_id` is reserved", code="22023")


def _columns(name: str, frame: DataFrame, read: set[str], has_star: bool) -> Columns:
    """Returns the columns of a table that a query can read."""
    from ._types import of_spark

    found = []
    for field in frame.schema.fields:
        of = of_spark(field.dataType)
        if of is not None:
            found.append((field.name, of))
        elif has_star or field.name in read:
            raise Error(
                f"type {field.dataType.simpleString()} of column `{field.name}` of table `{name}` "
                "is not supported",
                code="0A000",
                hint="Cast the column, or drop it from the DataFrame.",
            )
    return tuple(found)


class _Run:
    """DataFrames of one query."""

    def __init__(
        self,
        planned: PlannedQuery,
        tables: Mapping[str, DataFrame],
        arrival: Mapping[str, str],
        settings: Mapping[str, str | int],
        partitions: int,
    ) -> None:
        from pyspark.sql import functions

        self._f = functions
        self._planned = planned
        self._tables = tables
        self._arrival = arrival
        self._settings = settings
        self._partitions = partitions

    def frame(self, row_id: str | None) -> DataFrame:
        """Returns the resulting DataFrame."""
        from ._executor import ROW

        planned = self._planned
        if row_id is not None and row_id in dict(planned.output):
            raise Error(f"column `{row_id}` in `row_id` already exists in the query", code="42701")
        names = [name for name, _ in planned.base_columns]
        main = self._tables[planned.base].select(
            self._sequence(planned.base).alias(ROW), *(self._column(name) for name in names)
        )
        for number in range(len(planned.passes)):
            main = self._pass(main, number, row_id)
        return main

    def _pass(self, main: DataFrame, number: int, row_id: str | None) -> DataFrame:
        from pyspark.sql.types import StructField, StructType

        from ._executor import ROW, SEQUENCE, run_pass
        from ._stages import assemble
        from ._types import to_spark

        key = self._planned.passes[number].key
        work, uses = assemble(self._planned, number, main.columns, row_id, self._settings)
        shuffled = [(0, main, self._column(ROW))]
        broadcast: dict[int, Any] = {}
        for at, use in enumerate(uses, start=1):
            own = [self._column(column).alias(name) for column, name, _ in use.columns]
            if use.has_row:
                own.append(self._f.lit(None).cast("bigint").alias(ROW))
            rows = self._tables[use.table]
            order = self._sequence(use.table).alias(SEQUENCE)
            if use.is_broadcast:
                found = rows.select(order, *own)
                broadcast[at] = _collected(use.table, found, work.sources[at])
                continue
            hashed = self._f.xxhash64(*(self._hash_of(use, name) for name in key or ()))
            frame = rows.select(order, hashed.alias(_HASH), *own)
            shuffled.append((at, frame, self._column(SEQUENCE)))
        work = dataclasses.replace(work, broadcast=broadcast)
        fields = [
            StructField(name, to_spark(of), True)
            for name, (_, of) in zip(work.names, work.keeps, strict=True)
        ]
        rows = main if key is None else self._shuffle(shuffled, work, key)
        return rows.mapInArrow(functools.partial(run_pass, work), StructType(fields))

    def _shuffle(
        self, frames: list[tuple[int, DataFrame, Column]], work: Pass, key: tuple[str, ...]
    ) -> DataFrame:
        """Shuffles the rows of all tables by key, and sorts them by table and arrival."""
        from ._executor import SEQUENCE, TAG

        f = self._f
        numbers = [number for number, *_ in frames]
        schemas = [
            "struct<" + ",".join(f"`{n}`:{_simple(of)}" for n, of in columns) + ">"
            for columns in work.sources
        ]
        parts = []
        for number, frame, order in frames:
            hashed = self._column(_HASH)
            if number == 0:
                types = self._planned.types
                hashed = f.xxhash64(*(self._hashable(self._column(k), types[k]) for k in key))
            structs = [
                f.struct(*(self._column(name) for name, _ in work.sources[at])).alias(f"s{at}")
                if at == number
                else f.lit(None).cast(schemas[at]).alias(f"s{at}")
                for at in numbers
            ]
            parts.append(
                frame.select(
                    f.lit(number).alias(TAG), order.alias(SEQUENCE), hashed.alias(_HASH), *structs
                )
            )
        rows = functools.reduce(lambda left, right: left.union(right), parts)
        rows = rows.repartition(self._partitions, self._column(_HASH))
        rows = rows.sortWithinPartitions(TAG, SEQUENCE)
        return rows.drop(_HASH)

    def _hash_of(self, use: Any, key: str) -> Column:
        of = {column: kind for column, _, kind in use.columns}
        column = use.keys[key]
        return self._hashable(self._column(column), of[column])

    def _hashable(self, column: Column, of: str) -> Column:
        """Returns an expression that has equal values for column values that compare equal."""
        if of in ("SMALLINT", "INT"):
            return column.cast("bigint")
        if of in ("FLOAT", "DOUBLE"):
            # Equal numbers have equal integer parts; values without one share a key.
            is_whole = self._f.abs(column) < self._f.lit(2.0**62)
            return self._f.when(is_whole, column).cast("bigint")
        return column

    def _sequence(self, table: str) -> Column:
        if table in self._arrival:
            return self._column(self._arrival[table]).cast("bigint")
        return self._f.monotonically_increasing_id()

    def _column(self, name: str) -> Column:
        return self._f.col("`" + name.replace("`", "``") + "`")


def _simple(of: str) -> str:
    from ._types import to_spark

    return to_spark(of).simpleString()


def _collected(table: str, rows: DataFrame, columns: Columns) -> Any:
    """Returns all rows of a table to broadcast, in order of arrival."""
    import pyarrow

    from ._executor import SEQUENCE, typed

    rows = rows.orderBy(SEQUENCE).limit(BROADCAST_ROWS_MAX + 1)
    if hasattr(rows, "toArrow"):
        found = rows.toArrow()
    elif hasattr(rows, "_collect_as_arrow"):
        batches = rows._collect_as_arrow()
        if not batches:
            from ._executor import empty

            return empty(columns)
        found = pyarrow.Table.from_batches(batches)
    else:
        raise Error(
            f"broadcasting table `{table}` over Spark Connect requires Spark 4",
            code="0A000",
            hint="Remove the table from `broadcast`.",
        )
    if found.num_rows > BROADCAST_ROWS_MAX:
        raise Error(
            f"table `{table}` exceeds the limit of {BROADCAST_ROWS_MAX} rows for a broadcast",
            code="54000",
            hint="Remove the table from `broadcast`.",
        )
    return typed(found, columns)
