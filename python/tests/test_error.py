"""Errors and their fields."""

from __future__ import annotations

import pytest

import lockstep


def error_of(db: lockstep.Connection, sql: str) -> lockstep.Error:
    with pytest.raises(lockstep.Error) as caught:
        db.execute(sql)
    return caught.value


def test_an_error_has_a_code_a_position_and_a_hint(db):
    sql = "SELECT 'é',\n  cuont(1)"
    error = error_of(db, sql)
    assert error.code == "42883"
    assert error.hint == "Did you mean `count`?"
    assert sql[error.position :].startswith("cuont")
    assert "line 2:   cuont(1)\n          ^" in str(error)


@pytest.mark.parametrize("method", ["execute", "sql", "prepare"])
def test_every_way_in_points_at_the_culprit(db, method):
    db.execute("CREATE TABLE t (price INT)")
    sql = "SELECT prise FROM t"
    with pytest.raises(lockstep.Error) as caught:
        getattr(db, method)(sql)
    assert (caught.value.code, caught.value.hint) == ("42703", "Did you mean `price`?")
    assert sql[caught.value.position :].startswith("prise")


def test_what_is_not_sql_is_a_syntax_error(db):
    assert error_of(db, "how late will it be").code == "42601"
    assert error_of(db, "(" * 1_000_000).code in ("42601", "54001")


def test_a_query_that_fails_is_an_error_when_it_is_made(db):
    with pytest.raises(lockstep.Error, match="`nowhere`"):
        db.sql("SELECT * FROM nowhere")


def test_a_missing_file_is_named(db):
    db.execute("CREATE TABLE t (a INT)")
    error = error_of(db, "LOAD DATA INFILE '/nowhere/a.csv' INTO TABLE t")
    assert "/nowhere/a.csv" in str(error)


def test_a_malformed_line_is_named_and_nothing_is_loaded(db, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,x\nmany,y\n")
    db.execute("CREATE TABLE t (a INT, b STRING)")
    error = error_of(db, f"LOAD DATA INFILE '{path}' INTO TABLE t OPTIONS (format = 'csv')")
    assert "line 3" in str(error) and "`a`" in str(error)
    assert len(db.sql("SELECT * FROM t")) == 0


def test_a_header_that_the_table_does_not_know_is_refused(db, tmp_path):
    path = tmp_path / "ledger.csv"
    path.write_text("user_id,debit,credit_\na,1,2\n")
    db.execute("CREATE TABLE ledger (user_id STRING, credit INT, debit INT)")
    error = error_of(db, f"LOAD DATA INFILE '{path}' INTO TABLE ledger")
    assert error.code == "42703" and error.hint == "Did you mean `credit`?"
    assert len(db.sql("SELECT * FROM ledger")) == 0
    options = "OPTIONS (unknown_columns = 'ignore')"
    with pytest.warns(lockstep.LockstepWarning) as warned:
        db.execute(f"LOAD DATA INFILE '{path}' INTO TABLE ledger {options}")
    said = "\n".join(str(one.message) for one in warned)
    assert "`credit`" in said and "`credit_`" in said
    assert db.sql("SELECT * FROM ledger").fetchall() == [("a", None, 1)]


def test_files_come_and_go(db, tmp_path):
    db.append("t", [{"a": 1, "b": "x"}, {"a": None, "b": "y"}])
    for form in ("csv", "parquet"):
        path = tmp_path / f"t.{form}"
        db.execute(f"SELECT a, b FROM t INTO OUTFILE '{path}' OPTIONS (format = '{form}')")
        db.execute(f"CREATE TABLE {form}_copy (a BIGINT, b STRING)")
        db.execute(f"LOAD DATA INFILE '{path}' INTO TABLE {form}_copy OPTIONS (format = '{form}')")
        assert db.sql(f"SELECT a, b FROM {form}_copy").fetchall() == [(1, "x"), (None, "y")]
