"""The forms of rows: of ``append``, of requests, and of values that have a type of their own."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import gzip
import types

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lockstep

SPENT = (
    "SELECT user, sum(price) OVER w AS spent FROM clicks "
    "WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)"
)


@pytest.fixture
def clicks():
    """A table of which the deployment ``spent`` reads three of five columns."""
    db = lockstep.connect()
    db.execute(
        "CREATE TABLE clicks (user STRING, price DOUBLE, ts TIMESTAMP, day DATE, "
        "label INT NOT NULL)"
    )
    db.append("clicks", [("ann", 1.0, 1_000, None, 0), ("bob", 2.0, 1_000, None, 1)])
    db.execute(f"DEPLOY spent AS {SPENT}")
    return db


Named = collections.namedtuple("Named", "user price ts")


@dataclasses.dataclass
class Click:
    user: str
    price: float
    ts: int


@pytest.mark.parametrize("target", ["spent", SPENT])
@pytest.mark.parametrize(
    "row",
    [
        {"user": "ann", "price": 2.5, "ts": 2_000},
        {"user": "ann", "price": 2.5, "ts": 2_000, "label": 1, "other": object()},
        types.MappingProxyType({"user": "ann", "price": 2.5, "ts": 2_000}),
        Named("ann", 2.5, 2_000),
        ("ann", 2.5, 2_000, None, None),
        pd.Series({"user": "ann", "price": 2.5, "ts": 2_000}),
        {"user": "ann", "price": decimal.Decimal("2.5"), "ts": "1970-01-01 00:00:02"},
        {"user": "ann", "price": np.float32(2.5), "ts": dt.datetime(1970, 1, 1, 0, 0, 2)},
    ],
    ids=lambda row: type(row).__name__,
)
def test_a_request_row_has_the_columns_that_are_read(clicks, target, row):
    expected = {"user": "ann", "spent": 3.5}
    assert clicks.request(target, row) == expected
    assert clicks.request(target, [row, row]) == [expected, expected]
    assert clicks.prepare(target)(row) == expected


def test_a_table_of_requests_has_the_columns_that_are_read(clicks):
    rows = {"user": ["ann", "bob"], "price": [2.5, 1.0], "ts": [2_000, 2_000]}
    expected = [{"user": "ann", "spent": 3.5}, {"user": "bob", "spent": 3.0}]
    assert clicks.request("spent", pd.DataFrame(rows)).to_dict("records") == expected
    assert clicks.request("spent", pl.DataFrame(rows)).to_dicts() == expected
    assert clicks.request("spent", pa.table(rows)).to_pylist() == expected


def test_a_query_that_reads_all_rows_needs_no_other_columns_either(clicks):
    total = "SELECT sum(price) AS s FROM clicks"
    assert clicks.request(total, {"price": 4.0}) == {"s": 7.0}
    joined = "SELECT a.user, b.price FROM clicks a JOIN clicks b ON a.user = b.user"
    clicks.execute(f"DEPLOY joined AS {joined}")
    assert clicks.prepare("joined").required == ["user", "price"]
    assert clicks.prepare("SELECT DISTINCT user FROM clicks").required == ["user"]
    assert clicks.prepare("SELECT 1 AS one FROM clicks WHERE label > 0").required == ["label"]


@pytest.mark.parametrize(
    ("row", "message", "hint"),
    [
        ({"user": "ann", "ts": 1}, "missing value for column `price` of type DOUBLE", "Use NULL"),
        ({}, "missing values for columns `user` (STRING), `price` (DOUBLE), `ts` (TIMESTAMP)", ""),
        (
            {"User": "ann", "prise": 1.0, "ts": 1},
            "missing values for columns `user` (STRING), `price` (DOUBLE)",
            "Did you mean `user` instead of `User`? Did you mean `price` instead of `prise`?",
        ),
        (None, "a request row must be a dict or a tuple, not a Python `NoneType`", "Pass a dict"),
        (5, "a request row must be a dict or a tuple, not a Python `int`", "Pass a dict"),
        ("ann", "a request row must be a dict or a tuple, not a Python `str`", "Pass a dict"),
        (("ann",), "1 values supplied, but the request row has 5 columns", ""),
        ({"user": "ann", "price": 1, "ts": 1, "label": "x"}, "column `label` is of type INT", ""),
        ([None], "a request row must be a dict or a tuple, not a Python `NoneType`", "Pass a dict"),
    ],
)
def test_a_wrong_request_row_says_what_is_wrong(clicks, row, message, hint):
    with pytest.raises(lockstep.Error) as error:
        clicks.request("spent", row)
    assert message in error.value.message
    assert hint in (error.value.hint or "")


def test_a_table_of_requests_without_columns_names_them_all(clicks):
    rows = pa.table({"usr": ["ann"], "label": [1]})
    with pytest.raises(lockstep.Error) as error:
        clicks.request("spent", rows)
    assert "columns `user` (STRING), `price` (DOUBLE), `ts` (TIMESTAMP)" in error.value.message
    assert "Did you mean `user` instead of `usr`?" in error.value.hint


def test_a_column_that_is_read_takes_no_null_where_the_table_takes_none(clicks):
    sql = "SELECT label + 1 AS l FROM clicks"
    with pytest.raises(lockstep.Error, match="null value in column `label` violates"):
        clicks.request(sql, {"label": None})
    with pytest.raises(lockstep.Error, match="missing value for column `label` of type INT"):
        clicks.request(sql, {"user": "ann"})


def test_a_deployment_describes_its_columns(clicks):
    found = clicks.deployment("spent")
    assert (found.name, found.database, found.compatibility) == ("spent", "default", "standard")
    assert found.sql == SPENT
    inputs = [(column.name, column.type, column.required) for column in found.inputs]
    assert inputs == [
        ("user", "STRING", True),
        ("price", "DOUBLE", True),
        ("ts", "TIMESTAMP", True),
        ("day", "DATE", False),
        ("label", "INT", False),
    ]
    assert [(column.name, column.type) for column in found.outputs] == [
        ("user", "STRING"),
        ("spent", "DOUBLE"),
    ]
    with pytest.raises(lockstep.Error) as error:
        clicks.deployment("spend")
    assert "spent" in error.value.hint


@pytest.mark.parametrize(
    ("data", "count"),
    [
        ({"user": "eve", "price": 1.5, "label": 1}, 1),
        (types.MappingProxyType({"user": "eve", "price": 1.5, "label": 1}), 1),
        (pd.Series({"user": "eve", "price": 1.5, "label": 1}), 1),
        ([pd.Series({"user": "eve", "price": 1.5, "label": 1}), {"label": 0, "user": "eve"}], 2),
        (({"user": "eve", "label": n} for n in range(3)), 3),
    ],
)
def test_a_row_is_appended_by_its_names(clicks, data, count):
    assert clicks.append("clicks", data) == count
    rows = clicks.sql("SELECT label FROM clicks WHERE user = 'eve'").fetchall()
    assert len(rows) == count


def test_named_tuples_and_dataclasses_go_by_name(clicks):
    db = lockstep.connect()
    assert db.append("c", Named("ann", 2.5, 1)) == 1
    swapped = collections.namedtuple("Swapped", "price user")
    assert db.append("c", [swapped(4.0, "bob"), Named("eve", 1.0, 2)]) == 2
    assert db.append("c", [Click("joe", 1.0, 2)]) == 1
    assert db.append("c", Click("joe", 1.0, 2)) == 1
    assert db.append({"c": [Named("last", 0.5, 9)]}) == 1
    rows = db.sql("SELECT user, price FROM c").fetchall()
    assert sorted(rows) == [
        ("ann", 2.5), ("bob", 4.0), ("eve", 1.0), ("joe", 1.0), ("joe", 1.0), ("last", 0.5),
    ]  # fmt: skip


def test_a_file_is_appended_by_its_path(tmp_path):
    db = lockstep.connect()
    path = tmp_path / "it's.csv"
    path.write_text("price,user\n2.5,007\n")
    # A new table gets the types that the file shows.
    assert db.append("made", path) == 1
    assert db.sql("SELECT price, user FROM made").fetchall() == [(2.5, "007")]
    db.execute("CREATE TABLE c (user STRING, price DOUBLE)")
    assert db.append("c", str(path)) == 1
    with gzip.open(tmp_path / "more.csv.gz", "wt") as file:
        file.write("user,price\n008,1\n")
    assert db.append("c", tmp_path / "more.csv.gz") == 1
    pl.DataFrame({"user": ["009"], "price": [3.0]}).write_parquet(tmp_path / "p.parquet")
    assert db.append("c", tmp_path / "p.parquet") == 1
    rows = db.sql("SELECT user, price FROM c").fetchall()
    assert sorted(rows) == [("007", 2.5), ("008", 1.0), ("009", 3.0)]
    with pytest.raises(lockstep.Error, match=r"none\.csv` does not exist"):
        db.append("c", tmp_path / "none.csv")
    with pytest.raises(lockstep.Error, match=r"none\.csv` does not exist"):
        db.append("another", tmp_path / "none.csv")
    path.write_text("a,b\n1,x\n2,y\n")
    assert db.append("c", path, replace=True) == 2
    assert db.sql("SELECT a, b FROM c").fetchall() == [(1, "x"), (2, "y")]
    with pytest.raises(lockstep.Error, match="cannot determine the format of file"):
        db.append("another", "abc")
    with pytest.raises(lockstep.Error, match="`durability` does not apply to the rows of a file"):
        db.append("c", path, durability="os")
    with pytest.raises(lockstep.Error, match="does not exist"):
        db.append("absent", path, create=False)


def test_decimals_and_dates_are_values():
    db = lockstep.connect()
    row = {"d": decimal.Decimal("1.10"), "n": 1, "day": dt.date(2024, 2, 29)}
    assert db.append("t", [row]) == 1
    assert db.sql("SELECT d, n, day FROM t").fetchall() == [(1.1, 1, dt.date(2024, 2, 29))]
    db.execute("CREATE TABLE u (n BIGINT, f FLOAT, ts TIMESTAMP)")
    values = (decimal.Decimal("12.00"), decimal.Decimal("0.5"), dt.date(1970, 1, 2))
    assert db.append("u", [values, (decimal.Decimal("NaN"), decimal.Decimal("NaN"), None)]) == 2
    found = db.sql("SELECT n, f, CAST(ts AS BIGINT) AS ms FROM u").fetchall()
    assert found[0] == (12, 0.5, 86_400_000)
    assert found[1][0] is None and found[1][1] != found[1][1]
    with pytest.raises(lockstep.Error, match="column `n` is of type BIGINT"):
        db.append("u", [(decimal.Decimal("1.5"), 1.0, None)])
    with pytest.raises(lockstep.Error, match="of type BIGINT cannot represent"):
        db.append("u", [(decimal.Decimal(2**70), 1.0, None)])
    assert db.sql("SELECT ? AS d", [decimal.Decimal("1.5")]).fetchall() == [(1.5,)]


@pytest.mark.parametrize(
    ("value", "message", "hint"),
    [
        (b"x", "cannot convert a Python `bytes`", "Decode the bytes to a str."),
        ([1, 2], "cannot convert a Python `list`", "one row per value"),
        (dt.timedelta(1), "cannot convert a Python `timedelta`", "milliseconds"),
        (object(), "cannot convert a Python `object`", "Pass a bool"),
        (2**70, f"value {2**70} is out of range for type BIGINT", "Pass a float"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_a_type_is_named(value, message, hint):
    db = lockstep.connect()
    for place, call in [
        ("row 2: column `v`: ", lambda: db.append("t", [{"k": 1, "v": None}, {"v": value}])),
        ("parameter 2: ", lambda: db.sql("SELECT ? AS a, ? AS b", [1, value]).fetchall()),
    ]:
        with pytest.raises(lockstep.Error) as error:
            call()
        assert error.value.message == place + message
        assert hint in error.value.hint


def test_a_key_that_is_no_name_is_an_error():
    db = lockstep.connect()
    with pytest.raises(lockstep.Error, match="row 1: key 1 is not a column name"):
        db.append("t", [{1: 2}])
    with pytest.raises(lockstep.Error, match="cannot append a Python `int`"):
        db.append("t", 5)


def test_append_replaces_a_table(db):
    assert db.append("t", [{"k": "a", "v": 1}, {"k": "b", "v": 2}], replace=True) == 2
    # Other columns, from a data frame, an Arrow table, a file and one row.
    assert db.append("t", pd.DataFrame({"w": [1.5]}), replace=True) == 1
    assert db.sql("SELECT * FROM t").fetchall() == [(1.5,)]
    assert db.append("t", pa.table({"w": [2.5, 3.5], "x": ["p", "q"]}), replace=True) == 2
    assert db.sql("SELECT x, w FROM t").fetchall() == [("p", 2.5), ("q", 3.5)]
    assert db.append("t", {"k": "a", "ts": dt.datetime(2024, 1, 1)}, replace=True) == 1
    assert db.sql("SELECT k FROM t").fetchall() == [("a",)]
    # No rows are a table without rows.
    assert db.append("t", pa.table({"n": pa.array([], pa.int64())}), replace=True) == 0
    assert db.sql("SELECT n FROM t").fetchall() == []


def test_a_table_that_cannot_be_replaced_stays(db):
    db.append("t", [{"k": "a", "v": 1}])
    with pytest.raises(lockstep.Error, match="cannot determine the type of column"):
        db.append("t", [{"k": None}], replace=True)
    db.execute("DEPLOY d AS SELECT k, v + 1 AS more FROM t")
    with pytest.raises(lockstep.Error, match="has associated deployments: `d`") as refused:
        db.append("t", [{"k": "b"}], replace=True)
    assert "DROP DEPLOYMENT" in refused.value.hint
    with pytest.raises(lockstep.Error, match="one table at a time"):
        db.append({"t": [("a", 1)]}, replace=True)
    assert db.sql("SELECT * FROM t").fetchall() == [("a", 1)]
    assert db.request("d", {"k": "x", "v": 1}) == {"k": "x", "more": 2}


def test_a_deployment_is_replaced_while_it_answers(db):
    db.append("t", [{"k": "a", "v": 1}])
    db.execute("DEPLOY d AS SELECT k, v + 1 AS more FROM t")
    prepared = db.prepare("d")
    assert prepared({"k": "x", "v": 1}) == {"k": "x", "more": 2}
    db.execute("DEPLOY OR REPLACE d AS SELECT k, v + 2 AS more FROM t")
    assert db.request("d", {"k": "x", "v": 1}) == {"k": "x", "more": 3}
    with pytest.raises(lockstep.Error) as stale:
        prepared({"k": "x", "v": 1})
    assert stale.value.code == "55000"
    db.append("u", [{"k": "a", "w": 1}])
    db.execute("DEPLOY OR REPLACE d AS SELECT k, w FROM u")
    db.execute("DROP TABLE t")
    assert [column.name for column in db.deployment("d").inputs] == ["k", "w"]
