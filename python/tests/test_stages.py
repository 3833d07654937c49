"""Queries in steps have the bits of whole ones, with executors that are played by Arrow tables."""

from __future__ import annotations

import dataclasses
import random

import pyarrow as pa
import pytest

import lockstep
from generated_features import CLICKS, NAMES, Generator, bits, tables_of
from lockstep import _lockstep
from lockstep.spark._executor import ROW, SEQUENCE, TAG, run_pass, typed
from lockstep.spark._stages import assemble, plan

PARTS = 3


def run(sql: str, tables: dict[str, pa.Table], broadcast=(), settings=None) -> pa.Table:
    """Runs the passes of a query as Spark does: rows are brought together by a hash of the key."""
    settings = settings or {}
    known = {
        name: tuple(
            (column, "BIGINT" if of == pa.int64() else CLICKS[column][0])
            for column, of in zip(table.column_names, table.schema.types, strict=True)
        )
        for name, table in tables.items()
    }
    planned = plan(sql, known, broadcast, settings)
    names = [name for name, _ in planned.base_columns]
    base = tables[planned.base]
    main = base.select(names).append_column(ROW, base["id"])
    for number, one in enumerate(planned.passes):
        work, uses = assemble(planned, number, main.column_names, "arrived", settings)
        main = main.sort_by(ROW)
        sources = {0: (main, list(one.key or ()), main[ROW])}
        whole = {}
        for at, use in enumerate(uses, start=1):
            table = tables[use.table].sort_by("id")
            own = pa.table({name: table[column] for column, name, _ in use.columns})
            if use.has_row:
                own = own.append_column(ROW, pa.nulls(len(own), pa.int64()))
            if use.is_broadcast:
                whole[at] = typed(own, work.sources[at])
                continue
            named = {column: name for column, name, _ in use.columns}
            keys = [named[use.keys[key]] for key in one.key or ()]
            sources[at] = (own, keys, table["id"])
        work = dataclasses.replace(work, broadcast=whole)
        found = []
        for part in range(PARTS):
            batches = list(part_of(sources, part, one.key is not None))
            found += run_pass(work, iter(batches))
        main = pa.Table.from_batches(found)
    return main.sort_by("arrived")


def part_of(sources, part: int, is_keyed: bool):
    """Yields the batches of one part, in order of table and arrival."""
    for at, (table, keys, order) in sources.items():
        values = [table[key].to_pylist() for key in keys]
        rows = [
            row
            for row in range(len(table))
            if (hash(tuple(column[row] for column in values)) if is_keyed else row) % PARTS == part
        ]
        taken = pa.array(rows, pa.int64())
        for batch in table.take(taken).combine_chunks().to_batches(max_chunksize=30):
            if not is_keyed:
                yield batch
                continue
            columns = {
                TAG: pa.array([at] * len(batch), pa.int32()),
                SEQUENCE: order.take(taken[: len(batch)]).combine_chunks(),
            }
            taken = taken[len(batch) :]
            for other, (shape, *_) in sources.items():
                struct = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
                of = pa.struct(list(shape.schema))
                columns[f"s{other}"] = struct if other == at else pa.nulls(len(batch), of)
            yield pa.record_batch(columns)


class World:
    """Rows in a database, and as the tables of a lake."""

    def __init__(self, seed: int, count: int = 200) -> None:
        self.db, self.tables = lockstep.connect(), tables_of(random.Random(seed), count)
        for name, table in self.tables.items():
            self.db.append(name, table)

    def compare(self, sql: str, **options) -> None:
        found = run(sql, self.tables, **options)
        expected = self.db.sql(sql).arrow()
        assert found.column_names == [*expected.column_names, "arrived"], sql
        assert len(found) == len(expected), sql
        for at, name in enumerate(expected.column_names):
            assert bits(found.column(at)) == bits(expected.column(at)), (name, sql)


def test_generated_queries_have_the_bits_of_whole_ones():
    generator = Generator(5)
    for number in range(80):
        if number % 20 == 0:
            world = World(number)
        sql = generator.query()
        broadcast = [] if generator.chance("broadcast", 0.6) else ["ratings", "shops"]
        world.compare(sql, broadcast=broadcast)
    assert all(count > 3 for count in generator.drawn.values()), generator.drawn


def test_steps_share_a_shuffle_where_their_keys_do():
    def keys(sql: str, **options) -> list:
        known = {name: tuple((c, of) for c, (of, *_) in CLICKS.items()) for name in NAMES}
        return [one.key for one in plan(sql, known, options.get("broadcast", ()), {}).passes]

    frame = "ORDER BY c.ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW"
    windows = f"""WINDOW a AS (PARTITION BY c.user, c.item {frame}),
        b AS (PARTITION BY c.item {frame}), d AS (PARTITION BY c.user {frame})"""
    select = "SELECT sum(c.price) OVER a AS a, sum(c.price) OVER b AS b, r.ts AS ts"
    join = "LAST JOIN ratings AS r ORDER BY r.ts ON c.item = r.item"
    sql = f"{select} FROM clicks AS c {join} {windows}"
    assert keys(sql) == [("item",)]
    assert keys(sql.replace("OVER b", "OVER d")) == [("item",), ("user",)]
    assert keys("SELECT id FROM clicks WHERE paid") == [None]
    assert keys(f"SELECT c.id, r.ts FROM clicks AS c {join}", broadcast=["ratings"]) == [None]
    assert keys(f"SELECT c.id FROM clicks AS c {join}") == [None]


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ([5, 5], "two rows of table `clicks` have the same arrival"),
        ([1_000, None], "arrival of a row of table `clicks` is NULL"),
    ],
)
def test_an_order_that_is_not_known_is_refused(arrivals, message):
    world = World(1)
    ids = world.tables["clicks"]["id"].to_pylist()[: -len(arrivals)] + arrivals
    world.tables["clicks"] = world.tables["clicks"].set_column(0, "id", pa.array(ids, pa.int64()))
    with pytest.raises(lockstep.Error, match=message):
        run(
            "SELECT price, sum(price) OVER w AS s FROM clicks WINDOW w AS (PARTITION BY paid "
            "ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)",
            {"clicks": world.tables["clicks"].set_column(6, "paid", pa.array([True] * len(ids)))},
        )


def test_the_outline_refuses_other_forms_with_their_position():
    sql = "SELECT k FROM t LAST JOIN (SELECT k FROM u) AS v ON t.k = v.k"
    with pytest.raises(
        lockstep.Error, match="a subquery in FROM or UNION cannot be split into stages"
    ) as e:
        _lockstep.outline(sql)
    assert (e.value.code, sql[e.value.position :][:8]) == ("0A000", "SELECT k")
    refused = {
        "SELECT 1": "a query without FROM",
        "DROP TABLE t": "a statement other than a query",
        "SELECT k FROM t; SELECT k FROM t": "a script",
        "SELECT k FROM t WHERE k = ?": "a parameter",
        "SELECT k FROM d.t": "a table name with a database",
        "SELECT k FROM 'x.csv'": "a file in FROM",
        "WITH a AS (SELECT k FROM t) SELECT k FROM a": "WITH",
    }
    for text, what in refused.items():
        with pytest.raises(lockstep.Error, match=f"{what}.* cannot be split into stages"):
            _lockstep.outline(text)
