"""Streams and subscriptions, in the process and over a server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pytest

import lockstep

WINDOW = """SELECT user, ts, sum(price) OVER w AS spent FROM clicks
    WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 5m PRECEDING AND CURRENT ROW)"""


def rows_of(batches: Iterator[pyarrow.RecordBatch], count: int) -> list[dict[str, Any]]:
    """Returns the next rows, so many."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found.extend(next(batches).to_pylist())
    return found


def test_a_stream_and_its_subscribers(db: lockstep.Connection) -> None:
    db.execute("CREATE TABLE clicks (user STRING, price DOUBLE, ts TIMESTAMP)")
    db.execute(f"CREATE STREAM spent INTO TABLE features OPTIONS(emit='arrival') AS {WINDOW}")
    features = db.subscribe("spent", start="earliest")
    later = db.subscribe("features")
    db.execute("INSERT INTO clicks VALUES ('ann', 2.0, 1000), ('ann', 3.0, 2000)")
    assert [row["spent"] for row in rows_of(features, 2)] == [2.0, 5.0]
    db.execute("INSERT INTO clicks VALUES ('ann', 4.0, 3000)")
    assert [row["spent"] for row in rows_of(features, 1)] == [9.0]
    assert [row["spent"] for row in rows_of(later, 3)] == [2.0, 5.0, 9.0]
    known = db.sql(f"SELECT * FROM ({WINDOW}) AS q AS KNOWN AT ARRIVAL").fetchall()
    assert db.sql("SELECT * FROM features").fetchall() == known


def test_a_subscription_waits_for_rows_and_sees_no_earlier_ones() -> None:
    with lockstep.connect() as db:
        db.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
        rows = db.subscribe("t")
        timer = threading.Timer(0.2, lambda: db.execute("INSERT INTO t VALUES (2)"))
        timer.start()
        assert rows_of(rows, 1) == [{"a": 2}]
        timer.join()


def test_what_cannot_be_subscribed_to() -> None:
    with lockstep.connect() as db:
        with pytest.raises(lockstep.Error, match="table `missing` does not exist"):
            db.subscribe("missing")
        with pytest.raises(lockstep.Error, match="start must be 'latest', 'earliest'"):
            db.subscribe("t", start="now")  # type: ignore[arg-type]
        db.execute("CREATE TABLE t (a INT)")
        with pytest.raises(lockstep.Error, match="this client cannot run SUBSCRIBE"):
            db.execute("SUBSCRIBE TO t")
        rows = db.subscribe("t")
        db.execute("DROP TABLE t")
        with pytest.raises(lockstep.Error, match="was dropped"):
            next(rows)


def test_a_stream_cannot_have_parameters() -> None:
    with (
        lockstep.connect() as db,
        pytest.raises(lockstep.Error, match="a stream cannot have parameters"),
    ):
        db.execute("CREATE TABLE clicks (user STRING, price DOUBLE, ts TIMESTAMP)")
        query = WINDOW.replace("clicks", "clicks WHERE price > ?")
        db.execute(f"CREATE STREAM s INTO TABLE r AS {query}", [1])


JOIN_D = "LAST JOIN d ORDER BY d.ts ON a.k = d.k AND d.ts <= a.ts"
PAST = "PARTITION BY a.k ORDER BY a.ts ROWS_RANGE BETWEEN 500 PRECEDING AND CURRENT ROW"
AROUND = "PARTITION BY a.k ORDER BY a.ts ROWS_RANGE BETWEEN 500 PRECEDING AND 200 FOLLOWING"

JOINED = [
    # UNION and LAST JOIN, which no window reads, one of two windows, and all windows.
    f"SELECT a.id, d.y, sum(x) OVER w AS s FROM a {JOIN_D} WINDOW w AS (UNION b {AROUND})",
    f"""SELECT a.id, d.y, sum(x) OVER w AS s, max(x) OVER v AS m FROM a {JOIN_D}
    WINDOW w AS (UNION b {PAST} INSTANCE_NOT_IN_WINDOW), v AS ({AROUND})""",
    f"""SELECT a.id, sum(x) OVER w AS s, sum(d.y) OVER v AS m FROM a {JOIN_D}
    WINDOW w AS (UNION b {PAST}), v AS ({PAST})""",
    # Conditions of the right table, of the joined row, and on the least time.
    f"""SELECT a.id, d.y + 1 AS y, coalesce(e.y, -1.0) AS e, sum(x * 2) OVER w AS s FROM a {JOIN_D}
    LAST JOIN (SELECT k, ts, y FROM d WHERE y > 3) AS e ORDER BY e.ts ON a.k = e.k AND e.ts < a.ts
    WHERE d.y > 1 WINDOW w AS ({PAST})""",
    f"""SELECT a.id, d.y, c.x AS c FROM a {JOIN_D}
    LAST JOIN b AS c ORDER BY c.ts ON a.k = c.k AND c.x > 1 AND c.ts BETWEEN a.ts - 100 AND a.ts""",
    # Below a sub-query, below a view, in WITH, with itself, and without windows.
    f"""SELECT id, y, sum(y) OVER w AS s
    FROM (SELECT a.id, a.k, a.ts, d.y FROM a {JOIN_D} WHERE d.y IS NOT NULL) AS a
    WINDOW w AS ({AROUND})""",
    f"SELECT id, sum(spent) OVER w AS s FROM v AS a WINDOW w AS ({PAST})",
    f"""WITH p AS (SELECT k, ts, y FROM d) SELECT a.id, p.y, count(*) OVER w AS n FROM a
    LAST JOIN p ORDER BY p.ts ON a.k + 0 = p.k AND p.ts <= a.ts WINDOW w AS ({AROUND})""",
    "SELECT a.id, c.x AS c FROM a LAST JOIN a AS c ORDER BY c.ts ON a.k = c.k AND c.ts < a.ts",
    f"SELECT id, y FROM (SELECT a.id, d.y FROM a {JOIN_D}) AS j WHERE y > 2",
]


@pytest.mark.parametrize("query", JOINED)
def test_last_joins_have_the_values_of_batch_mode(query: str) -> None:
    chosen = random.Random(5)
    with lockstep.connect() as db:
        db.execute(f"""
            CREATE TABLE a (id INT, k INT, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts));
            CREATE TABLE b (id INT, k INT, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts));
            CREATE TABLE d (k INT, ts TIMESTAMP, y DOUBLE, INDEX(KEY=k, TS=ts));
            CREATE VIEW v AS SELECT a.id, a.k, a.ts, a.x * d.y AS spent FROM a {JOIN_D};
            CREATE STREAM s INTO TABLE results OPTIONS(lateness='1s') AS {query}""")
        clock = 10_000
        for number in range(200):
            clock += chosen.randrange(20)
            keys = [chosen.choice(["0", "1", "2", "NULL"]) for _ in range(3)]
            rows = [f"{key}, {clock - chosen.choice([0, 0, 10, 900])}" for key in keys]
            db.execute(f"""
                INSERT INTO a VALUES ({number}, {rows[0]}, {number % 7}.5);
                INSERT INTO b VALUES ({number}, {rows[1]}, {number % 5});
                INSERT INTO d VALUES ({rows[2]}, {number % 9})""")
            if number % 50 == 30:
                db.execute("STOP STREAM s")
                db.execute("START STREAM s")
        # Nothing is late, and the watermark passes all rows but these.
        last = 9_999_000
        for table, row in [
            ("a", f"-1, 9, {last}, 0"),
            ("b", f"-1, 9, {last}, 0"),
            ("d", f"9, {last}, 0"),
        ]:
            db.execute(f"INSERT INTO {table} VALUES ({row})")
        watermark = "SELECT error, CAST(watermark AS BIGINT) FROM lockstep.streams"
        wait_until(lambda: db.sql(watermark).fetchall()[0] == (None, last - 1_000))
        expected = db.sql(f"SELECT * FROM ({query}) AS q WHERE id >= 0").fetchall()

        def results() -> list[tuple[Any, ...]]:
            return db.sql("SELECT * FROM results").fetchall()

        wait_until(lambda: len(results()) >= len(expected))
        assert sorted(map(repr, results())) == sorted(map(repr, expected))


def wait_until(is_done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)
