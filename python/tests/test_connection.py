"""Statements, appends and results."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import lockstep
from conftest import SPENT


def test_importing_the_package_imports_no_data_library():
    code = (
        "import lockstep, sys; "
        "print(sorted({'pandas', 'numpy', 'pyarrow', 'polars', 'html'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_statements_say_what_they_did(db):
    assert "CREATE TABLE" in repr(db.execute("CREATE TABLE t (a INT)"))
    assert db.execute("INSERT INTO t VALUES (1), (2)").rows_affected == 2


def test_two_connections_are_two_databases(db):
    db.execute("CREATE TABLE t (a INT)")
    with pytest.raises(lockstep.Error, match="`t`"):
        lockstep.connect().sql("SELECT * FROM t")


def test_a_relation_is_lazy_and_keeps_its_rows(db):
    db.execute("CREATE TABLE t (a INT)")
    relation = db.sql("SELECT a FROM t")
    assert (relation.columns, relation.types) == (["a"], ["INT"])
    db.execute("INSERT INTO t VALUES (1)")
    assert len(relation) == 1
    db.execute("INSERT INTO t VALUES (2)")
    assert len(relation) == 1
    assert len(db.sql("SELECT a FROM t")) == 2


def test_rows_can_be_fetched_one_by_one(db):
    db.append("t", [{"a": 1}, {"a": 2}, {"a": 3}])
    relation = db.sql("SELECT a FROM t")
    assert relation.fetchone() == (1,)
    assert relation.fetchall() == [(2,), (3,)]
    assert relation.fetchone() is None
    assert list(relation) == [(1,), (2,), (3,)]


def test_progress_reaches_the_end(purchases):
    shares = []
    purchases.sql(SPENT).run(progress=shares.append)
    assert all(0.0 <= share <= 1.0 for share in shares)


ALL_TYPES = """
    CREATE TABLE t (
      b BOOL, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, x STRING, ts TIMESTAMP, day DATE)
"""
VALUES = (
    True,
    -7,
    2**31 - 1,
    2**53 + 1,
    0.5,
    0.1,
    "héllo\n😀",
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
    dt.date(1900, 3, 1),
)


def test_values_of_every_type_come_back(db):
    db.execute(ALL_TYPES)
    db.append("t", [VALUES, (None,) * 9])
    relation = db.sql("SELECT * FROM t")
    assert relation.fetchall() == [VALUES, (None,) * 9]
    assert relation.types == [
        "BOOL", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "TIMESTAMP", "DATE",
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["df", "arrow", "pl"])
def test_values_of_every_type_survive_data_frames(db, form):
    db.execute(ALL_TYPES)
    db.append("t", [VALUES, (None,) * 9])
    frame = getattr(db.sql("SELECT * FROM t"), form)()
    other = lockstep.connect()
    other.execute(ALL_TYPES)
    assert other.append("t", frame) == 2
    assert other.sql("SELECT * FROM t").fetchall() == [VALUES, (None,) * 9]


def test_integers_with_nulls_keep_their_digits_in_pandas(db):
    db.append("t", [{"a": 2**53 + 1}, {"a": None}])
    column = db.sql("SELECT a FROM t").df()["a"]
    assert column[0] == 2**53 + 1
    assert column[1] is pd.NA


def test_a_repeated_name_gets_a_number_only_in_data_frames(db):
    relation = db.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1")
    assert relation.columns == ["a", "a", "a_1"]
    names = relation.arrow().column_names
    assert len(set(names)) == 3
    assert list(relation.df().columns) == names == relation.pl().columns


FRAME = {"k": ["x", None, "x"], "v": [1, 2, 3], "w": [0.5, None, 2.0]}


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, pl.DataFrame])
def test_a_data_frame_makes_its_table(db, make):
    assert db.append("t", make(FRAME)) == 3
    relation = db.sql("SELECT k, v, w FROM t")
    assert relation.types == ["STRING", "BIGINT", "DOUBLE"]
    # A column of plain floats in pandas has NaN for None.
    missing = "nan" if make is pd.DataFrame else "None"
    expected = f"[('x', 1, 0.5), (None, 2, {missing}), ('x', 3, 2.0)]"
    assert repr(relation.fetchall()) == expected


def test_a_table_is_not_made_unasked(db):
    with pytest.raises(lockstep.Error) as caught:
        db.append("t", [{"a": 1}], create=False)
    assert caught.value.code == "42P01"


def test_a_table_that_its_rows_do_not_fit_is_not_left_behind(db):
    with pytest.raises(lockstep.Error):
        db.append("t", pd.DataFrame({"a": [pd.Timedelta(1)]}))
    with pytest.raises(lockstep.Error) as caught:
        db.sql("SELECT * FROM t")
    assert caught.value.code == "42P01"


def test_columns_are_matched_by_name_and_left_out_ones_take_their_default(db):
    db.execute("CREATE TABLE t (a INT, b STRING DEFAULT 'none', c DOUBLE)")
    db.append("t", [{"c": 1.5, "a": 1}])
    db.append("t", pd.DataFrame({"a": [2]}, dtype="int32"))
    assert db.sql("SELECT a, b, c FROM t").fetchall() == [(1, "none", 1.5), (2, "none", None)]


def test_an_append_that_fails_appends_nothing(db):
    db.execute("CREATE TABLE t (a INT)")
    with pytest.raises(lockstep.Error, match=r"row 2: column `a` is of type INT.*`str`") as caught:
        db.append("t", [(1,), ("2",)])
    assert caught.value.code == "42804"
    with pytest.raises(lockstep.Error, match="row 2: 2 values supplied, but the table has 1"):
        db.append("t", [(1,), (1, 2)])
    with pytest.raises(lockstep.Error, match="column `aa` does not exist") as caught:
        db.append("t", [{"aa": 1}])
    assert caught.value.hint == "Did you mean `a`?"
    assert len(db.sql("SELECT a FROM t")) == 0


def test_data_of_another_kind_is_refused(db):
    for data in (42, b"abc", {1, 2}, [1, 2]):
        with pytest.raises(lockstep.Error, match="cannot append"):
            db.append("t", data)


def missing_values():
    return pd.DataFrame(
        {
            "text": ["a", np.nan, None],
            "number": [1.0, np.nan, None],
            "whole": pd.array([1, pd.NA, 3], dtype="Int64"),
            "moment": [pd.Timestamp(0), pd.NaT, pd.Timestamp(1, unit="s")],
            "kind": pd.Categorical(["x", None, "x"]),
        }
    )


@pytest.mark.parametrize("nan_as_null", [False, True])
def test_what_pandas_calls_missing_is_null_and_nan_where_the_session_says_so(db, nan_as_null):
    db.execute(f"SET nan_as_null = {str(nan_as_null).lower()}")
    nan = None if nan_as_null else math.nan
    expected = [
        ("a", 1.0, 1, dt.datetime(1970, 1, 1), "x"),
        (None, nan, None, None, None),
        (None, nan, 3, dt.datetime(1970, 1, 1, 0, 0, 1), "x"),
    ]
    db.append("t", missing_values())
    assert repr(db.sql("SELECT * FROM t").fetchall()) == repr(expected)
    db.append("u", missing_values().to_dict("records"))
    assert repr(db.sql("SELECT * FROM u").fetchall()) == repr(expected)


@pytest.mark.parametrize("nan_as_null", [False, True])
@pytest.mark.parametrize(
    "make", [pd.DataFrame, pa.table, pl.DataFrame, lambda columns: [{"a": columns["a"][0]}]]
)
def test_nan_is_the_same_from_everywhere(db, tmp_path, make, nan_as_null):
    db.execute(f"SET nan_as_null = {str(nan_as_null).lower()}")
    expected = "None" if nan_as_null else "nan"
    db.execute("CREATE TABLE t (a DOUBLE)")
    data = make({"a": [math.nan]})
    db.append("t", data)
    ((stored,),) = db.sql("SELECT a FROM t").fetchall()
    answer = db.request("SELECT a FROM t", data)
    answered = answer[0]["a"] if isinstance(answer, list) else answer["a"][0]
    answered = answered.as_py() if isinstance(answered, pa.Scalar) else answered
    answered = None if answered is pd.NA else answered
    pa.parquet.write_table(pa.table({"a": [math.nan]}), tmp_path / "nan.parquet")
    db.execute(f"TRUNCATE TABLE t; LOAD DATA INFILE '{tmp_path}/nan.parquet' INTO TABLE t")
    ((loaded,),) = db.sql("SELECT a FROM t").fetchall()
    assert [str(stored), str(answered), str(loaded)] == [expected] * 3


def test_nan_in_a_column_of_integers_is_what_pandas_calls_missing(db):
    db.execute("CREATE TABLE t (a INT)")
    db.append("t", pd.DataFrame({"a": [1.0, np.nan]}))
    db.append("t", [{"a": math.nan}])
    assert db.sql("SELECT a FROM t").fetchall() == [(1,), (None,), (None,)]


def test_null_is_not_nan_after_a_way_through_pandas(db):
    db.execute("CREATE TABLE t (a DOUBLE, b FLOAT); INSERT INTO t VALUES (1.5, 0.5), (NULL, NULL)")
    db.append("u", db.sql("SELECT * FROM t").df())
    assert db.sql("SELECT * FROM u").fetchall() == [(1.5, 0.5), (None, None)]


@pytest.mark.parametrize("rows", [[], (), iter(()), [{}], ({} for _ in "ab")])
def test_rows_without_columns_take_the_defaults(db, rows):
    rows = list(rows)
    with pytest.raises(lockstep.Error, match="`t` does not exist") as caught:
        db.append("t", rows)
    assert caught.value.code == "42P01"
    db.execute("CREATE TABLE t (a INT DEFAULT 7, b STRING)")
    assert db.append("t", rows) == len(rows)
    assert db.sql("SELECT a, b FROM t").fetchall() == [(7, None)] * len(rows)
    assert db.request("SELECT a FROM t", []) == []


def test_a_data_frame_without_rows_or_columns_is_no_row(db):
    db.execute("CREATE TABLE t (a INT, b STRING)")
    for empty in (pd.DataFrame(), pl.DataFrame(), pa.table({}), pd.DataFrame({"a": []})):
        assert db.append("t", empty) == 0
    with pytest.raises(lockstep.Error, match="`u` does not exist"):
        db.append("u", pd.DataFrame())


NOTHING = {"a": [1, 2], "b": [None, None]}


@pytest.mark.parametrize(
    "make",
    [
        lambda columns: pd.DataFrame(columns, dtype=object),
        pa.table,
        pl.DataFrame,
        lambda columns: pa.table(columns).to_pylist(),
    ],
)
@pytest.mark.parametrize("declared", ["INT", "DOUBLE", "STRING", "TIMESTAMP", "DATE", "BOOL"])
def test_a_column_of_only_none_is_null_of_its_type(db, make, declared):
    with pytest.raises(lockstep.Error, match="determine the type of column `b`") as caught:
        db.append("t", make(NOTHING))
    assert "Create the table" in caught.value.hint
    db.execute(f"CREATE TABLE t (a INT, b {declared})")
    db.append("t", make(NOTHING))
    assert db.sql("SELECT * FROM t").fetchall() == [(1, None), (2, None)]
    answer = db.request("SELECT b FROM t", make(NOTHING))
    assert len(answer) == 2


def test_a_repeated_column_is_refused(db):
    db.execute("CREATE TABLE t (a INT)")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(lockstep.Error, match="column `a` more than once"):
        db.append("t", twice)
    with pytest.raises(lockstep.Error, match="Duplicate column names"):
        db.append("t", pd.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        ("FLOAT", 16_777_217),
        ("FLOAT", 16_777_217.0),
        ("FLOAT", np.int64(16_777_217)),
        ("FLOAT", 1e300),
        ("DOUBLE", 2**53 + 1),
        ("DOUBLE", np.int64(2**53 + 1)),
    ],
)
def test_a_number_that_a_float_does_not_hold_is_refused_by_everyone(db, declared, given):
    db.execute(f"CREATE TABLE t (a {declared})")
    for data in (
        [{"a": given}],
        [(given,)],
        pd.DataFrame({"a": [given]}),
        pa.table({"a": [given]}),
    ):
        with pytest.raises(lockstep.Error, match=rf"column `a`( is)? of type {declared}"):
            db.append("t", data)
    with pytest.raises(lockstep.Error, match=rf"column `a`( is)? of type {declared}"):
        db.request("SELECT a FROM t", {"a": given})
    if not isinstance(given, np.int64):
        with pytest.raises(lockstep.Error, match=rf"column `a`( is)? of type {declared}"):
            db.execute(f"INSERT INTO t VALUES ({int(given) if given != 1e300 else given})")
    db.append("t", [{"a": 0.1}, {"a": 2**60}, {"a": math.inf}])
    assert len(db.sql("SELECT a FROM t")) == 3


MOMENTS = ["2024-05-01 12:00:00", "2024-05-01T12:00:00.250Z", "2024-05-01", None]


@pytest.mark.parametrize(
    "make",
    [
        pa.Table.from_pylist,
        pd.DataFrame,
        pl.DataFrame,
        lambda rows: rows,
        lambda rows: [tuple(row.values()) for row in rows],
        lambda rows: pd.DataFrame(rows).astype("category"),
    ],
)
def test_times_and_dates_are_taken_as_text(db, make):
    db.execute("SET time_zone = 'Asia/Shanghai'; CREATE TABLE t (ts TIMESTAMP, day DATE)")
    rows = [{"ts": text, "day": text and text[:10]} for text in MOMENTS]
    db.append("t", make(rows))
    for text in MOMENTS:
        db.execute("INSERT INTO t VALUES (?, ?)", (text, text and text[:10]))
    day = dt.date(2024, 5, 1)
    expected = [
        (dt.datetime(2024, 5, 1, 4), day),
        (dt.datetime(2024, 5, 1, 12, 0, 0, 250_000), day),
        (dt.datetime(2024, 4, 30, 16), day),
        (None, None),
    ]
    assert db.sql("SELECT ts, day FROM t").fetchall() == expected * 2
    answer = db.request("SELECT ts, day FROM t", make(rows))
    if isinstance(answer, list):
        assert [tuple(row.values()) for row in answer] == expected
    else:
        assert pa.table(answer)["ts"].to_pylist() == [ts for ts, _ in expected]
    for wrong in ("yesterday", "2024-13-01", "12:00", ""):
        message = "column `day`: invalid input syntax for type DATE"
        with pytest.raises(lockstep.Error, match=message) as caught:
            db.append("t", make([{"ts": None, "day": "2024-01-01"}, {"ts": None, "day": wrong}]))
        assert f"'{wrong}'" in str(caught.value) and "row 2" in str(caught.value)


def test_five_thousand_columns_cost_what_five_thousand_columns_cost(db):
    names = [f"column_{number}" for number in range(5_000)]
    rows = [{name: float(row) for name in names} for row in range(20)]
    assert db.append("t", rows) == 20
    assert db.append("t", rows) == 20
    assert db.sql("SELECT column_4999 FROM t").fetchall()[-1] == (19.0,)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_and_zone_are_instants(db, unit):
    naive = pd.DataFrame({"ts": pd.to_datetime(["2013-03-10 06:30:00"]).as_unit(unit)})
    zoned = naive.assign(ts=naive["ts"].dt.tz_localize("UTC").dt.tz_convert("America/New_York"))
    db.append("t", naive)
    db.append("t", zoned)
    db.append("t", zoned.to_dict("records"))
    assert db.sql("SELECT ts FROM t").fetchall() == [(dt.datetime(2013, 3, 10, 6, 30),)] * 3


def test_times_are_cut_to_the_millisecond(db, tmp_path):
    before = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    db.append("t", [{"ts": before}])
    db.append("t", pd.DataFrame({"ts": [before]}))
    pa.parquet.write_table(pa.table({"ts": [before]}), tmp_path / "t.parquet")
    load = f"LOAD DATA INFILE '{tmp_path}/t.parquet' INTO TABLE t"
    with pytest.warns(lockstep.LockstepWarning, match="more than millisecond precision"):
        db.execute(load)
    expected = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000)
    assert db.sql("SELECT ts FROM t").fetchall() == [(expected,)] * 3


def test_mixed_objects_are_refused_with_the_column(db):
    with pytest.raises(lockstep.Error, match="mixed") as caught:
        db.append("t", pd.DataFrame({"mixed": ["a", 1]}, dtype=object))
    assert caught.value.code == "42804"


def test_a_result_can_be_seen(db):
    db.append("t", [{"k": "a<b", "v": 1}, {"k": None, "v": 22}])
    relation = db.sql("SELECT k, v FROM t")
    assert repr(relation) == "k    |  v\n-----+---\na<b  |  1\nNULL | 22\n(2 rows)"
    html = relation._repr_html_()
    assert "a&lt;b" in html and "<i>NULL</i>" in html and "<small>2 rows</small>" in html


def test_a_long_result_shows_its_first_rows(db, capsys):
    db.append("t", pa.table({"a": list(range(100))}))
    db.sql("SELECT a FROM t").show(2)
    assert capsys.readouterr().out.splitlines()[-2:] == ["… 98 more rows", "(100 rows)"]


def test_threads_share_a_connection(purchases):
    found = []
    work = [
        threading.Thread(target=lambda: found.append(len(purchases.sql(SPENT)))) for _ in "1234"
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert found == [3] * 4


def test_question_marks_stand_for_values() -> None:
    db = lockstep.connect()
    db.execute("CREATE TABLE t (k STRING, v BIGINT, at TIMESTAMP, d DATE, ok BOOL)")
    moment = dt.datetime(2024, 5, 1, 12, 0)
    rows = [("a", 1, moment, moment.date(), True), (None, 2**40, None, None, None)]
    for row in rows:
        db.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", row)
    assert db.sql("SELECT v FROM t WHERE k = ? AND at = ?", ("a", moment)).fetchall() == [(1,)]
    assert db.sql("SELECT v + ? AS w FROM t WHERE v > ?", (1, 5)).fetchall() == [(2**40 + 1,)]
    assert db.sql("SELECT v FROM t WHERE k = ?", [None]).fetchall() == []
    with pytest.raises(lockstep.Error, match="1 parameters supplied, but the statement requires 2"):
        db.execute("SELECT ? + ?", (1,))


def test_tables_can_have_a_limit():
    db = lockstep.connect(max_memory="5kB")
    db.execute("CREATE TABLE t (k STRING, INDEX(key=k))")
    with pytest.raises(lockstep.Error) as refused:
        db.execute("INSERT INTO t VALUES ('" + "x" * 4000 + "')")
    assert refused.value.code == "53200"
    assert db.sql("SELECT * FROM t").fetchall() == []
