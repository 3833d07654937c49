"""Training sets of deployments, as known at the time: what requests were answered."""

from __future__ import annotations

import asyncio
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lockstep

SPENT = """
    SELECT t.id, count(*) OVER w AS n, sum(t.v) OVER w AS s, r.price
    FROM t LAST JOIN r ON t.k = r.k
    WINDOW w AS (PARTITION BY t.k ORDER BY t.ts ROWS_RANGE BETWEEN 5s PRECEDING AND CURRENT ROW)
"""


def late_rows(count):
    """Draws rows of two tables in their order of arrival, some of them late."""
    drawn = random.Random(count)
    for number in range(count):
        key, ts = drawn.choice("ab"), drawn.randrange(20) * 1_000
        if drawn.random() < 0.3:
            yield "r", {"k": key, "price": number / 4, "ts": ts}
        else:
            yield "t", {"id": number, "k": key, "v": number / 10, "ts": ts}


@pytest.fixture
def stored(db):
    db.execute("""
        CREATE TABLE t (id INT NOT NULL, k STRING, v DOUBLE, ts TIMESTAMP);
        CREATE TABLE r (k STRING, price DOUBLE, ts TIMESTAMP);
    """)
    db.execute("DEPLOY spent AS " + SPENT)
    return db


def test_each_row_has_what_its_request_was_answered(stored, tmp_path):
    answers = []
    for table, row in late_rows(400):
        if table == "t":
            answers.append(stored.request("spent", row))
        stored.append(table, [row])
    expected = [tuple(answer.values()) for answer in answers]
    known = stored.training_set(None, "spent", as_known=True)
    assert known.columns == ["id", "n", "s", "price"]
    assert list(known) == expected
    assert list(stored.training_set("t", "spent", as_known=True)) == expected
    assert stored.sql(SPENT + "AS KNOWN AT ARRIVAL").fetchall() == expected
    by_event_time = list(stored.training_set(None, "spent"))
    assert len(by_event_time) == len(expected)
    assert by_event_time != expected
    path = tmp_path / "known.parquet"
    stored.training_set(None, "spent", as_known=True).write(str(path))
    assert [tuple(row.values()) for row in pq.read_table(path).to_pylist()] == expected
    assert stored.verify("spent").ok
    assert stored.sql("VERIFY DEPLOYMENT spent OPTIONS(sample = 3)").fetchall()[0][:3] == (3, 12, 0)


def test_frames_are_known_by_a_column():
    stored = lockstep.connect()
    stored.execute("CREATE TABLE t (id INT NOT NULL, k STRING, ts TIMESTAMP)")
    t = pa.table({"id": [1, 2, 3], "k": ["a"] * 3, "ts": [3, 1, 2], "seen": [10, 30, 20]})
    query = """SELECT id, count(*) OVER w AS n FROM t2
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"""
    rows = stored.sql(query.replace("t2", "t") + " AS KNOWN AT ts").fetchall()
    assert rows == []
    t2 = t
    assert stored.sql(query + " AS KNOWN AT seen").fetchall() == [(1, 1), (2, 1), (3, 1)]
    assert stored.sql(query).fetchall() == [(1, 3), (2, 1), (3, 2)]
    del t2


def test_what_is_gone_is_told(stored):
    for table, row in late_rows(50):
        stored.append(table, [row])
    stored.execute("DELETE FROM r WHERE k = 'a'")
    message = "known rows of table `r` may have been removed"
    with pytest.warns(lockstep.LockstepWarning, match=message):
        list(stored.training_set(None, "spent", as_known=True))


def refused(run, *arguments, **options) -> tuple[str, str]:
    with pytest.raises(lockstep.Error) as found:
        run(*arguments, **options)
    return found.value.code, found.value.message


def test_a_main_table_has_what_the_answers_depend_on(stored):
    stored.execute("""
        CREATE TABLE labels (k STRING, label INT); CREATE TABLE other (k STRING, id STRING);
        CREATE TABLE events (ts TIMESTAMP, k STRING, id INT, v DOUBLE);
        INSERT INTO labels VALUES ('a', 1); INSERT INTO other VALUES ('a', 'x');
        INSERT INTO events VALUES (1000, 'a', 1, 2.5)
    """)

    def known(table):
        return list(stored.training_set(table, "spent", as_known=True))

    assert known("events") == [(1, 1, 2.5, None)]
    expected = "the main table has no column `id`, which the query reads"
    assert refused(known, "labels") == ("42703", expected)
    assert refused(known, "other") == (
        "42804",
        "column `id` of the main table is of type STRING, not INT",
    )
    expected = "`events` is not the request table of the deployment"
    assert refused(stored.training_set, "events", "spent") == ("0A000", expected)
    assert refused(stored.training_set, None, "nope", as_known=True)[0] == "42704"
    assert refused(stored.training_set, "nope", "spent", as_known=True)[0] == "42P01"


def test_a_request_is_not_as_known(stored):
    query = "SELECT id FROM t AS KNOWN AT ARRIVAL"
    row = {"id": 1}
    expected = ("0A000", "a request cannot use AS KNOWN AT")
    assert refused(stored.request, query, row) == expected


def test_a_server_takes_the_query(server):
    with lockstep.connect(f"lockstep://{server.flight}") as db:
        db.execute("CREATE DATABASE known; USE known; CREATE TABLE t (id INT, ts TIMESTAMP)")
        db.execute("INSERT INTO t VALUES (1, 2000), (2, 1000)")
        db.execute("DEPLOY d AS SELECT count(*) AS n FROM t")
        query = "SELECT count(*) OVER w AS n FROM t WINDOW w AS (ORDER BY ts ROWS 9 PRECEDING)"
        query = query.replace("9 PRECEDING", "BETWEEN 9 PRECEDING AND CURRENT ROW")
        assert db.sql(query + " AS KNOWN AT ARRIVAL").fetchall() == [(1,), (1,)]
        assert db.sql("VERIFY DEPLOYMENT d").fetchall() == [(2, 2, 0, None, None, None, None)]


def test_asyncio_has_it():
    async def rows():
        async with lockstep.connect_async() as db:
            await db.append("clicks", [{"price": 2.5}])
            await db.execute("DEPLOY twice AS SELECT price * 2 AS p FROM clicks")
            return await db.training_set(None, "twice", as_known=True).fetchall()

    assert asyncio.run(rows()) == [(5.0,)]
