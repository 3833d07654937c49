"""Streams and subscriptions, in the process and over a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
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
