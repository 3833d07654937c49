"""Request mode, deployments, and the comparison with batch mode."""

from __future__ import annotations

import datetime as dt
import re
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lockstep
from conftest import SPENT

ROW = {"user": "ann", "price": 0.3, "ts": 31_000}
ANSWER = {"user": "ann", "purchases": 3, "spent": 0.6}


@pytest.fixture
def deployed(purchases):
    purchases.execute("DEPLOY spent AS " + SPENT)
    return purchases


@pytest.mark.parametrize("target", ["spent", SPENT])
def test_a_row_gives_a_row(deployed, target):
    assert deployed.request(target, ROW) == ANSWER
    assert deployed.request(target, ("ann", 0.3, 31_000)) == ANSWER


def test_what_was_prepared_from_a_dropped_definition_says_so(deployed):
    prepared = deployed.prepare("spent")
    query = deployed.prepare(SPENT)
    assert prepared(ROW) == query(ROW) == ANSWER
    deployed.execute("DROP DEPLOYMENT spent")
    deployed.execute("DEPLOY spent AS " + SPENT.replace("sum(price)", "max(price)"))
    with pytest.raises(lockstep.Error) as error:
        prepared(ROW)
    assert (error.value.code, error.value.kind) == ("55000", "prepare again")
    message = error.value.message
    expected = r"deployment `\w+\.spent` was dropped after the query was prepared"
    assert re.fullmatch(expected, message)
    # A request by name uses the new deployment.
    assert deployed.request("spent", ROW)["spent"] == 0.3
    assert deployed.prepare("spent")(ROW)["spent"] == 0.3
    assert query(ROW) == ANSWER
    deployed.execute("DROP DEPLOYMENT spent")
    deployed.execute("DROP TABLE purchases")
    deployed.execute("CREATE TABLE purchases (user STRING, price DOUBLE, ts TIMESTAMP)")
    with pytest.raises(lockstep.Error) as error:
        query(ROW)
    assert error.value.code == "55000"
    assert deployed.request(SPENT, ROW) == {"user": "ann", "purchases": 1, "spent": 0.3}


def test_a_relation_belongs_to_the_tables_of_its_time(purchases):
    relation = purchases.sql(SPENT)
    purchases.execute("DROP TABLE purchases")
    purchases.execute("CREATE TABLE purchases (user STRING, price DOUBLE, ts TIMESTAMP)")
    with pytest.raises(lockstep.Error) as error:
        relation.fetchall()
    assert error.value.code == "55000"


def test_a_request_row_is_not_stored(deployed):
    assert deployed.request("spent", ROW) == deployed.request("spent", ROW)
    assert len(deployed.sql("SELECT * FROM purchases")) == 3


def test_rows_of_a_batch_request_do_not_see_each_other(deployed):
    assert deployed.request("spent", [ROW, ROW]) == [ANSWER, ANSWER]


@pytest.mark.parametrize(
    ("make", "rows_of"),
    [
        (pd.DataFrame, lambda table: table.to_dict("records")),
        (pl.DataFrame, lambda table: table.to_dicts()),
        (pa.Table.from_pylist, lambda table: table.to_pylist()),
    ],
)
def test_a_table_gives_a_table_of_its_library(deployed, make, rows_of):
    requests = make([ROW, {"user": "bob", "price": 1.0, "ts": 3_000}])
    answer = deployed.request("spent", requests)
    assert type(answer) is type(requests)
    assert rows_of(answer) == [ANSWER, {"user": "bob", "purchases": 2, "spent": 6.0}]


def test_a_row_of_a_data_frame_gives_a_row(deployed):
    frame = pd.DataFrame([ROW])
    assert deployed.request("spent", frame.iloc[0]) == ANSWER


def test_a_prepared_request_follows_the_table(deployed):
    request = deployed.prepare("spent")
    assert request.input == [("user", "STRING"), ("price", "DOUBLE"), ("ts", "TIMESTAMP")]
    assert [name for name, _ in request.output] == ["user", "purchases", "spent"]
    assert request(ROW) == ANSWER
    deployed.append("purchases", [ROW])
    assert request(ROW)["purchases"] == 4


def test_a_dropped_row_is_none(purchases):
    sql = "SELECT user FROM purchases WHERE price > 1.0"
    requests = [ROW, {**ROW, "price": 2.0}]
    assert purchases.request(sql, requests[0]) is None
    assert purchases.request(sql, requests) == [None, {"user": "ann"}]
    assert purchases.request(sql, pa.Table.from_pylist(requests)).to_pylist() == [{"user": "ann"}]


def test_a_missing_column_is_named_with_its_type(deployed):
    with pytest.raises(lockstep.Error, match="missing value for column `price` of type DOUBLE"):
        deployed.request("spent", {"user": "ann", "ts": 1})
    with pytest.raises(lockstep.Error, match="`price`"):
        deployed.request("spent", pd.DataFrame([{"user": "ann", "ts": 1}]))
    with pytest.raises(lockstep.Error, match="the request row has 3 columns"):
        deployed.request("spent", ("ann",))


@pytest.mark.parametrize(
    ("column", "value", "declared"),
    [
        ("user", 1, "STRING"),
        ("user", b"ann", "STRING"),
        ("price", "0.3", "DOUBLE"),
        ("price", True, "DOUBLE"),
        ("price", 2**53 + 1, "DOUBLE"),
        ("ts", "yesterday", "TIMESTAMP"),
        ("ts", dt.time(1, 2), "TIMESTAMP"),
        ("ts", 2**63, "TIMESTAMP"),
        ("ts", 1.5, "TIMESTAMP"),
    ],
)
def test_an_ill_typed_value_is_named_with_the_type_of_its_column(deployed, column, value, declared):
    with pytest.raises(
        lockstep.Error,
        match=rf"column `{column}`( is)?( of type|: invalid input syntax for type) {declared}",
    ) as caught:
        deployed.request("spent", {**ROW, column: value})
    assert caught.value.code in ("42804", "22003")
    assert caught.value.kind == "fix data"


@pytest.mark.parametrize(
    ("declared", "given", "stored"),
    [
        ("BOOL", np.True_, True),
        ("SMALLINT", np.int64(-1), -1),
        ("INT", 3.0, 3),
        ("BIGINT", np.uint8(3), 3),
        ("FLOAT", 0.1, float(np.float32(0.1))),
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", np.float32(0.5), 0.5),
        ("STRING", np.str_("a"), "a"),
        ("STRING", float("nan"), None),
        ("STRING", pd.NA, None),
        ("TIMESTAMP", 1_000, dt.datetime(1970, 1, 1, 0, 0, 1)),
        ("TIMESTAMP", np.datetime64("1970-01-02"), dt.datetime(1970, 1, 2)),
        ("TIMESTAMP", pd.Timestamp("1970-01-02", tz="Asia/Shanghai"), dt.datetime(1970, 1, 1, 16)),
        ("TIMESTAMP", pd.NaT, None),
        ("TIMESTAMP", "1970-01-02 00:00:00", dt.datetime(1970, 1, 2)),
        ("DATE", "1969-12-31", dt.date(1969, 12, 31)),
        ("DATE", dt.date(1969, 12, 31), dt.date(1969, 12, 31)),
    ],
)
def test_values_are_taken_as_their_column(db, declared, given, stored):
    db.execute(f"CREATE TABLE t (a {declared})")
    assert db.request("SELECT a FROM t", {"a": given}) == {"a": stored}
    db.append("t", [{"a": given}])
    assert db.sql("SELECT a FROM t").fetchall() == [(stored,)]


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        ("BOOL", 1),
        ("SMALLINT", 2**15),
        ("INT", 2**31),
        ("INT", 0.5),
        ("INT", True),
        ("BIGINT", 2**63),
        ("DATE", dt.datetime(2020, 1, 1)),
        ("DATE", 1),
    ],
)
def test_values_that_would_change_are_refused(db, declared, given):
    db.execute(f"CREATE TABLE t (a {declared})")
    with pytest.raises(
        lockstep.Error,
        match=rf"column `a`( is)?( of type|: invalid input syntax for type) {declared}",
    ):
        db.request("SELECT a FROM t", {"a": given})


def test_a_null_key_is_a_key(deployed):
    row = {"user": None, "price": 1.0, "ts": 31_000}
    assert deployed.request("spent", row)["purchases"] == 1
    deployed.append("purchases", [row])
    assert deployed.request("spent", row)["purchases"] == 2


def test_batch_and_request_mode_agree(deployed):
    found = deployed.verify("spent")
    assert found.ok
    assert (found.requests, found.values, found.differing, found.differences) == (3, 9, 0, [])


def test_a_verification_is_true_only_when_values_were_compared(deployed):
    found = deployed.verify("spent")
    assert found and repr(found) == "<verification: 3 requests, 9 values, 0 differ>"
    one = lockstep.Difference(row=1, column="spent", batch="1", request="2")
    differs = lockstep.Verification(
        requests=3, values=9, differing=1, differences=[one], rows_per_second=1.0
    )
    assert not differs and not differs.ok
    assert "1 differ; first difference: row 1, column `spent`, batch 1, request 2" in repr(differs)
    deployed.execute("TRUNCATE TABLE purchases")
    nothing = deployed.verify("spent")
    assert not nothing and not nothing.ok
    assert "no values compared" in repr(nothing)


def test_what_is_not_deployed_is_an_error(purchases):
    for call in (purchases.verify, purchases.prepare, lambda name: purchases.request(name, ROW)):
        with pytest.raises(lockstep.Error):
            call("nothing")


def test_threads_share_a_prepared_request(deployed):
    request = deployed.prepare("spent")
    found = []

    def ask() -> None:
        found.extend(request(ROW) for _ in range(200))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [ANSWER] * 800
