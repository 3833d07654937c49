"""Typical mistakes of the first hour: each message names the fix."""

from __future__ import annotations

import datetime as dt
import threading
import warnings
from pathlib import Path

import pandas as pd
import pytest

import lockstep

# A statement, and what its message must say of how to write it.
STATEMENTS = [
    # Names.
    ("SELECT prise FROM clicks", "Did you mean `price`?"),
    ("SELECT price FROM click", "Did you mean `clicks`?"),
    ("SELECT PRICE FROM clicks", "Did you mean `price`?"),
    ("SELECT clicks.user, avgg(price) OVER w FROM clicks", "Did you mean `avg`?"),
    ("SELEC price FROM clicks", "Did you mean `SELECT`?"),
    ("SELECT price FORM clicks", "Did you mean `FROM`?"),
    ("SELECT from FROM clicks", "Enclose the word in back-quotes"),
    ("USE defualt", "Did you mean `default`?"),
    ("DROP DEPLOYMENT pricee", "Did you mean `price`?"),
    ("SET pre_agregation = 'off'", "pre_aggregation"),
    # Windows.
    (
        "SELECT sum(price) OVER w AS s FROM clicks WINDOW v AS (PARTITION BY user ORDER BY ts)",
        "Did you mean `v`?",
    ),
    ("SELECT sum(price) OVER (PARTITION BY user) AS s FROM clicks", "ORDER BY the event time"),
    ("SELECT count(*) OVER () AS c FROM clicks", "ORDER BY the event time"),
    (
        "DEPLOY d AS SELECT sum(price) OVER (PARTITION BY user ORDER BY ts ROWS BETWEEN "
        "1 PRECEDING AND 1 FOLLOWING) AS s FROM clicks",
        "end the frame at CURRENT ROW",
    ),
    ("SELECT lead(price) OVER (PARTITION BY user ORDER BY ts) AS n FROM clicks", "lag(x, n)"),
    ("SELECT median(price), user FROM clicks", "GROUP BY"),
    (
        "SELECT price FROM clicks QUALIFY row_number() OVER (PARTITION BY user ORDER BY ts) = 1",
        "subquery",
    ),
    # What other databases have.
    ("UPDATE clicks SET price = 1", "INSERT a newer row"),
    ("BEGIN", "each statement takes effect completely or not at all"),
    ("COPY clicks TO 'x.csv'", "INTO OUTFILE"),
    ("ALTER TABLE clicks RENAME TO visits", "CREATE TABLE u AS SELECT"),
    ("ALTER TABLE clicks DROP COLUMN pric", "Did you mean `price`?"),
    ("CREATE MATERIALIZED VIEW v AS SELECT user FROM clicks", "Use CREATE VIEW to name a query"),
    ("CREATE VIEW v (a) AS SELECT user FROM clicks", "Name the columns in the query, with AS"),
    ("SELECT user FROM clicks WHERE price = (SELECT max(price) FROM clicks)", "LAST JOIN"),
    ("SELECT price // 2 AS p FROM clicks", "DIV"),
    ("SELECT string_agg(user, ',') AS s FROM clicks", "topn_frequency"),
    ("SELECT arg_max(user, price) AS s FROM clicks", "LAST JOIN"),
    ("SELECT * EXCLUDE (price) FROM clicks", "list the columns to select"),
    ("SELECT c.price FROM clicks c ASOF JOIN clicks d ON c.user = d.user", "LAST JOIN"),
    ("PRAGMA table_info('clicks')", "SHOW VARIABLES"),
    ("SHOW ALL", "SHOW VARIABLES"),
    # Objects.
    ("CREATE TABLE clicks (a INT)", "CREATE OR REPLACE TABLE"),
    ("DEPLOY price AS SELECT user FROM clicks", "DEPLOY OR REPLACE"),
    ("DROP TABLE clicks", "CASCADE"),
    ("INSERT INTO clicks VALUES ('ann', 1.0)", "The columns are `user`, `price`, `ts`"),
    ("INSERT INTO clicks VALUES ('ann', 'cheap', 1000)", "price"),
    ("SELECT id FROM clicks", "The columns are `user`, `price`, `ts`"),
    (
        "SELECT user FROM clicks UNION ALL SELECT price FROM clicks",
        "Write `CAST(price AS STRING) AS user`",
    ),
    ("SELECT * FROM 'nowhere.parquet'", "nowhere.parquet"),
    ("SELECT user FROM clicks INTO OUTFILE 'no/such/folder/x.csv'", "folder"),
    ("SELECT price + user AS n FROM clicks", "The signature is a + b"),
]


@pytest.fixture
def clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lockstep.Connection:
    monkeypatch.chdir(tmp_path)
    db = lockstep.connect()
    db.append("clicks", [{"user": "ann", "price": 20.0, "ts": dt.datetime(2024, 1, 1)}])
    db.execute("DEPLOY price AS SELECT user, price * 2 AS twice FROM clicks")
    return db


@pytest.mark.parametrize(("statement", "fix"), STATEMENTS, ids=[s for s, _ in STATEMENTS])
def test_a_statement_that_is_wrong_says_what_to_write(clicks, statement, fix):
    with pytest.raises(lockstep.Error) as refused:
        clicks.execute(statement)
    shown = str(refused.value)
    assert fix in shown
    # A reader sees where.
    assert "^" in shown


# A call in Python, and what its message must say.
CALLS = [
    ("append without rows", lambda db: db.append("clicks", None), "data frame"),
    ("append to another name", lambda db: db.append("t", [("a", 1)]), "create the table"),
    ("a key that is no column", lambda db: db.append("clicks", [{"usr": "a"}]), "`user`"),
    ("a text for a number", lambda db: db.append("clicks", [{"price": "cheap"}]), "price"),
    ("bytes", lambda db: db.append("made", [{"k": b"x"}]), "bytes"),
    ("only None", lambda db: db.append("made", [{"k": None}]), "Create the table"),
    ("a request of None", lambda db: db.request("price", None), "dict"),
    ("a request without a column", lambda db: db.request("price", {"user": "a"}), "`price`"),
    ("a request with another name", lambda db: db.request("prize", {"user": "a"}), "`price`"),
    ("a deployment that is not", lambda db: db.deployment("prise"), "`price`"),
    (
        "a name of a data frame that is not",
        lambda db: db.sql("SELECT a FROM no_frame").fetchall(),
        "no_frame",
    ),
    ("a number that is too large", lambda db: db.execute("SELECT ? AS n", [2**70]), "BIGINT"),
    ("a path that is not there", lambda db: db.append("clicks", Path("none.csv")), "none.csv"),
    ("a file of another kind", lambda db: db.append("clicks", Path("x.xlsx")), "xlsx"),
    ("a wrong type of data", lambda db: db.append("clicks", 5), "data frame"),
    ("a used name", lambda db: db.append("clicks", pd.DataFrame({"q": [1]})), "`q`"),
]


@pytest.mark.parametrize(("call", "fix"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_a_call_that_is_wrong_says_what_to_do(clicks, call, fix):
    Path("x.xlsx").write_bytes(b"PK")
    with pytest.raises(lockstep.Error) as refused:
        call(clicks)
    assert fix in str(refused.value)


def test_there_are_more_than_forty():
    assert len(STATEMENTS) + len(CALLS) > 40


def test_a_query_that_writes_a_file_is_no_relation(clicks):
    message = "a query with INTO OUTFILE writes a file and returns no rows"
    with pytest.raises(lockstep.Error, match=message) as refused:
        clicks.sql("SELECT user FROM clicks INTO OUTFILE 'x.csv'").fetchall()
    assert "execute" in refused.value.hint
    clicks.execute("SELECT user FROM clicks INTO OUTFILE 'x.csv'")
    assert Path("x.csv").read_text() == "user\nann\n"


def test_a_request_in_seconds_is_warned_of_once():
    db = lockstep.connect()
    db.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))")
    db.execute("INSERT INTO t VALUES ('a', 1, '2024-01-01')")
    db.execute(
        "DEPLOY d AS SELECT k, count(v) OVER w AS n FROM t WINDOW w AS "
        "(PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW)"
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for ts in (1_704_110_400, 1_704_110_401, 1_704_110_400_000):
            db.request("d", {"k": "a", "v": 1, "ts": ts})
    assert [str(one.message).splitlines()[0] for one in seen] == [
        "warning[01L12]: column `ts` of the request has a time that looks like seconds"
    ]


def test_no_request_fails_while_its_deployment_is_replaced_and_its_table_changed():
    db = lockstep.connect()
    db.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))")
    db.execute("INSERT INTO t VALUES ('a', 1, '2024-01-01')")
    deploy = (
        "DEPLOY OR REPLACE d AS SELECT k, count(v) OVER w AS n FROM t WINDOW w AS "
        "(PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW)"
    )
    db.execute(deploy)
    failures, answers, is_over = [], [], threading.Event()

    def ask():
        try:
            while not is_over.is_set():
                answers.append(db.request("d", {"k": "a", "v": 1, "ts": "2024-01-01 01:00:00"}))
        except lockstep.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(30):
        db.execute(deploy)
        db.execute(f"ALTER TABLE t ADD COLUMN more{number} INT")
    is_over.set()
    for thread in threads:
        thread.join()
    assert not failures and answers
    assert all(answer == {"k": "a", "n": 2} for answer in answers)
