"""Training sets on Spark have the bits of those in one process, for generated queries."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lockstep
from generated_features import Generator, bits, tables_of
from lockstep.spark import training_set
from on_spark import arrow_of, frame_of

ROOT = Path(__file__).parents[2]

# More of them: LOCKSTEP_SPARK_QUERIES=500 pytest python/tests/test_spark.py
QUERIES = int(os.environ.get("LOCKSTEP_SPARK_QUERIES", "12"))
SEED = int(os.environ.get("LOCKSTEP_SPARK_SEED", "1"))


class World:
    """The same rows in a database of this process and in Spark, where they are out of order."""

    def __init__(self, spark, seed: int, count: int = 160) -> None:
        draw = random.Random(seed)
        self.db, self.frames = lockstep.connect(), {}
        for name, table in tables_of(draw, count).items():
            self.db.append(name, table)
            order = list(range(table.num_rows))
            draw.shuffle(order)
            self.frames[name] = frame_of(spark, table.take(order))
        self.spark = spark

    def compare(self, sql: str, **options) -> None:
        options.setdefault("arrival", dict.fromkeys(self.frames, "id"))
        frame = training_set(self.spark, sql, self.frames, row_id="arrived", **options)
        relation = self.db.sql(sql)
        names = relation.arrow().schema.names
        assert frame.columns == [*names, "arrived"]
        found = arrow_of(frame).sort_by("arrived")
        assert len(found) == len(relation), sql
        for at, name in enumerate(names):
            left = bits(found.column(at))
            right = bits(relation.arrow().column(at))
            assert left == right, (name, sql)


def test_generated_queries_have_the_bits_of_local_ones(spark):
    generator = Generator(SEED)
    for number in range(QUERIES):
        if number % 6 == 0:
            world = World(spark, SEED + number)
        sql = generator.query()
        broadcast = (
            ["ratings"] if generator.chance("broadcast", 0.3) and "ratings AS" in sql else []
        )
        # A table that is also a UNION source is shuffled there.
        world.compare(sql, broadcast=broadcast)
    print(generator.drawn)


@pytest.fixture(scope="module")
def world(spark):
    return World(spark, 100)


WINDOW = "WINDOW w AS (PARTITION BY user ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM clicks",
        "SELECT id, price + 1 FROM clicks WHERE paid",
        f"SELECT *, sum(price) OVER w FROM clicks {WINDOW}",
        f"SELECT id, id, sum(price) OVER w, sum(price) OVER w FROM clicks {WINDOW}",
        "SELECT c.*, s.ts FROM clicks c LAST JOIN shops s ORDER BY s.ts ON c.shop = s.shop",
        "SELECT c.id FROM clicks c LAST JOIN shops s ON c.shop = s.shop",
        "SELECT id, split_by_key(user, ',', ':') AS l FROM clicks",
        "SELECT `user` AS `a b`, '`user`' AS q, \"x\" AS t FROM clicks -- the end",
        "SELECT id, avg(price) OVER v AS é FROM clicks WINDOW u AS (PARTITION BY user ORDER BY ts "
        "ROWS BETWEEN 4 PRECEDING AND CURRENT ROW), v AS (u)",
    ],
)
def test_queries_of_every_shape(world, sql):
    world.compare(sql)


def test_settings_reach_the_executors(world):
    sql = "SELECT id, hour(ts) AS h FROM clicks"
    world.db.execute("SET time_zone = 'Asia/Tokyo'")
    try:
        world.compare(sql, settings={"time_zone": "Asia/Tokyo"})
    finally:
        world.db.execute("SET time_zone = 'UTC'")


def test_the_order_of_files_is_that_of_arrival(spark, tmp_path):
    world = World(spark, 7)
    path = str(tmp_path / "clicks.parquet")
    world.db.sql("SELECT * FROM clicks").write(path)
    sql = f"SELECT id, lag(id, 1) OVER w AS before FROM clicks {WINDOW}"
    frame = training_set(spark, sql, {"clicks": spark.read.parquet(path)}, row_id="n")
    found = [tuple(row)[:2] for row in frame.orderBy("n").collect()]
    assert found == world.db.sql(sql).fetchall()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT count(*) AS n FROM clicks", "an aggregate without OVER"),
        ("SELECT user FROM clicks GROUP BY user", "GROUP BY cannot be split"),
        ("SELECT id FROM clicks ORDER BY id", "ORDER BY cannot be split"),
        ("SELECT id FROM clicks LIMIT 3", "LIMIT cannot be split"),
        ("SELECT DISTINCT id FROM clicks", "DISTINCT cannot be split"),
        ("SELECT id FROM clicks UNION ALL SELECT id FROM clicks", "UNION cannot be split"),
        ("SELECT id FROM (SELECT id FROM clicks) AS s", "a subquery in FROM"),
        (
            "SELECT id FROM clicks WHERE item IN (SELECT item FROM ratings)",
            "a subquery in an expression",
        ),
        (
            "SELECT c.id FROM clicks c JOIN ratings r ON c.item = r.item",
            "a join other than LAST JOIN",
        ),
        (
            "SELECT c.id, r.id FROM clicks c LAST JOIN ratings r ORDER BY r.ts ON r.ts <= c.ts",
            "a LAST JOIN without an equality condition",
        ),
        (
            "SELECT sum(price) OVER w FROM clicks WINDOW w AS (ORDER BY ts "
            "ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)",
            "a window without PARTITION BY",
        ),
        (
            "SELECT sum(price) OVER w FROM clicks WINDOW w AS (PARTITION BY upper(user) "
            "ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)",
            "PARTITION BY an expression",
        ),
        (
            "SELECT sum(price) OVER w FROM clicks WINDOW w AS (PARTITION BY ts "
            "ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)",
            "PARTITION BY a column of type TIMESTAMP",
        ),
        ("SELECT prise FROM clicks", "column `prise` does not exist"),
        ("SELECT id FROM nothing", "table `nothing` does not exist"),
    ],
)
def test_what_is_not_split_is_refused(world, sql, message):
    with pytest.raises(lockstep.Error, match=message):
        training_set(world.spark, sql, world.frames)


def test_a_window_union_has_the_columns_of_the_joined_rows(spark):
    sales = "id bigint, item string, ts bigint"
    ratings = "name string, at bigint, stars bigint"
    rows = {
        "sales": (sales, [(1, "a", 10), (2, "b", 11), (3, "a", 12), (4, None, 13)]),
        "ratings": (ratings, [("a", 5, 4), ("b", 4, 1), ("b", 6, 2)]),
        "others": (sales, [(2, "a", 7), (8, "b", 12)]),
        "both": (
            f"{sales}, {ratings}",
            [(2, "a", 7, "b", 5, 40), (9, "x", 11, "a", 6, 70), (7, None, 3, None, 1, 1)],
        ),
    }
    frames = {
        name: spark.createDataFrame(of, columns).repartition(1)
        for name, (columns, of) in rows.items()
    }
    db = lockstep.connect()
    for name, (columns, of) in rows.items():
        db.execute(f"CREATE TABLE {name} ({columns})")
        db.append(name, of)
    query = (
        "SELECT id, {} OVER w AS f FROM sales LAST JOIN ratings ORDER BY ratings.at "
        "ON sales.item = ratings.name WINDOW w AS (UNION {} PARTITION BY {} "
        "ORDER BY sales.ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)"
    )
    wanted = [
        ("count(id)", "others", "sales.item"),
        ("sum(ratings.stars)", "both", "sales.item"),
        ("count(id)", "both", "ratings.name"),
        ("sum(sales.id + ratings.stars)", "both", "ratings.name, item"),
        # As a whole item it looks beyond the frame.
        ("lag(ratings.stars, 1)", "both", "sales.item"),
        ("lag(ratings.stars, 5)", "both", "sales.item"),
        ("id + count(ratings.stars)", "both", "sales.item"),
    ]
    for call, source, key in wanted:
        sql = query.format(call, source, key)
        found = training_set(spark, sql, frames).orderBy("id").collect()
        assert [tuple(row) for row in found] == db.sql(sql).fetchall(), sql
    differing = (
        "SELECT id, count(id) OVER w AS n, sum(ratings.stars) OVER v AS s FROM sales LAST JOIN "
        "ratings ORDER BY ratings.at ON sales.item = ratings.name WINDOW w AS (UNION others "
        "PARTITION BY sales.item ORDER BY sales.ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW), "
        "v AS (UNION both PARTITION BY sales.item ORDER BY sales.ts ROWS BETWEEN 4 PRECEDING AND "
        "CURRENT ROW)"
    )
    with pytest.raises(lockstep.Error, match="must have the columns of the main table"):
        db.sql(differing)
    with pytest.raises(lockstep.Error, match="must have the columns of the main table"):
        training_set(spark, differing, frames)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arrival": {"x": "id"}}, "table `x` in `arrival` does not exist"),
        ({"arrival": {"clicks": "user"}}, "column `user` in `arrival` is not an integer column"),
        ({"broadcast": ["x"]}, "table `x` in `broadcast` does not exist"),
        ({"row_id": "id"}, "column `id` in `row_id` already exists"),
        ({"row_id": "__ls_x"}, "name `__ls_x` in `row_id` is reserved"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(world, options, message):
    with pytest.raises(lockstep.Error, match=message):
        training_set(world.spark, "SELECT id FROM clicks", world.frames, **options)


def test_a_column_that_is_not_read_may_have_any_type(spark, world):
    frame = world.frames["clicks"].selectExpr("id", "CAST(price AS DECIMAL(9, 2)) AS price")
    assert training_set(spark, "SELECT id FROM clicks", {"clicks": frame}).count() == 160
    with pytest.raises(lockstep.Error, match=r"type decimal\(9,2\) of column `price`"):
        training_set(spark, "SELECT price FROM clicks", {"clicks": frame})
    reserved = frame.selectExpr("id AS __ls_x")
    with pytest.raises(lockstep.Error, match="column `__ls_x` of table `clicks` is reserved"):
        training_set(spark, "SELECT 1 AS one FROM clicks", {"clicks": reserved})


def test_a_killed_executor_changes_no_bit(tmp_path):
    marker = tmp_path / "kill"
    marker.touch()
    script = Path(__file__).with_name("killed_executor.py")
    command = [sys.executable, str(script), str(marker)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.stdout == "equal 4000\n", run.stderr[-4_000:]


def test_the_blocks_of_the_guide_run(spark, capsys):
    page = (ROOT / "docs/guide/spark.md").read_text()
    ((source, shown),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    exec(compile(source, "docs/guide/spark.md", "exec"), {})
    assert capsys.readouterr().out.strip() == shown.strip()
