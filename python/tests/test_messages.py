"""Messages of calls that need a program, its files or its data."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lockstep

TABLES = """
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);
CREATE TABLE strict (k STRING NOT NULL, v INT);
"""


@pytest.fixture
def tables(db):
    db.execute(TABLES)
    return db


def caught(run, *arguments) -> lockstep.Error:
    with pytest.raises(lockstep.Error) as found:
        run(*arguments)
    return found.value


def common_tables(count, each) -> str:
    tables = ["c0 AS (SELECT k, v FROM t)", *(each(at) for at in range(1, count))]
    return f"WITH {', '.join(tables)} SELECT k FROM c{count - 1}"


def twice(at) -> str:
    return f"c{at} AS (SELECT a.k, b.v FROM c{at - 1} AS a LAST JOIN c{at - 1} AS b ON a.k = b.k)"


def windows(count) -> str:
    first = "w0 AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    others = (f"w{at} AS (w{at - 1})" for at in range(1, count))
    return f"SELECT sum(v) OVER w{count - 1} FROM t WINDOW {', '.join([first, *others])}"


@pytest.mark.parametrize(
    ("sql", "message", "detail"),
    [
        (
            "SELECT k FROM t" + " UNION SELECT k FROM t UNION ALL SELECT k FROM t" * 1_000,
            "expression or query has too many operators in a row",
            "The limit is 512 levels in the tree of a statement.",
        ),
        (
            f"SELECT '{'a' * (16 << 20)}'",
            "statement of 16777225 bytes is too long",
            "The limit is 16777216 bytes.",
        ),
        (
            f"SELECT 1 FROM (SELECT {', '.join(['v'] * 20_000)} FROM t) AS a"
            + "".join(f" LAST JOIN t AS t{at} ON t{at}.k = 'a'" for at in range(40)),
            "the statement has too many expressions",
            "The limit is 500000 expressions and columns; each use of a common table counts "
            "separately.",
        ),
        (
            common_tables(20, twice),
            "the statement has too many tables and joins",
            "The limit is 8000 tables, windows and other operators; a join counts as 6, and each "
            "use of a common table counts separately.",
        ),
        (
            common_tables(2_000, lambda at: f"c{at} AS (SELECT k, v FROM c{at - 1})"),
            "queries are nested too deeply",
            "The limit is 1000 levels of operators.",
        ),
        (
            windows(70),
            "chain of window definitions is too long",
            "The limit is 64 windows that extend each other.",
        ),
    ],
    ids=["levels", "bytes", "expressions", "joins", "height", "windows"],
)
def test_a_statement_beyond_a_limit_says_which(tables, sql, message, detail):
    error = caught(tables.sql, sql)
    assert (error.code, error.message, error.detail) == ("54001", message, detail)


def test_a_prepared_query_without_its_values_says_what_is_missing(tables):
    error = caught(tables.prepare, "SELECT ? AS x, k FROM t")
    message = "missing value for parameter 1; values supplied: 0"
    assert (error.code, error.message) == ("22023", message)


def test_a_file_without_a_needed_column_names_it(tables, tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("v\n1\n")
    error = caught(tables.execute, f"LOAD DATA INFILE '{path}' INTO TABLE strict")
    assert (error.code, error.message) == ("23502", f"column `k` does not exist in file `{path}`")
    assert tables.sql("SELECT count(*) AS n FROM strict").fetchone() == (0,)


def test_a_file_without_columns_makes_no_table(tables, tmp_path):
    path = tmp_path / "none.parquet"
    pq.write_table(pa.table({}), path)
    error = caught(tables.execute, f"CREATE TABLE made LIKE PARQUET '{path}'")
    assert (error.code, error.message) == ("42P16", "table `made` has no columns")


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (pa.table({}), "42P01", "table `made` does not exist, and the data has no columns"),
        (
            pa.table({"a": pa.nulls(2)}),
            "42804",
            "cannot determine the type of column `a`: it has no value",
        ),
    ],
    ids=["no columns", "no type"],
)
def test_data_that_makes_no_table_says_why(db, data, code, message):
    error = caught(db.append, "made", data)
    assert (error.code, error.message) == (code, message)


def test_a_column_comes_once(tables):
    error = caught(tables.append, "t", pa.table([[1], [2]], names=["v", "v"]))
    assert (error.code, error.message) == ("42702", "the data contains column `v` more than once")


def test_writes_stop_at_a_share_of_the_memory(tables):
    tables.execute("SET GLOBAL max_memory = '1MB'")
    tables.execute("SET insert_memory_usage_limit = 1")
    rows = [("a" * 100, at, at) for at in range(100)]
    tables.append("t", rows)
    error = caught(tables.append, "t", rows)
    assert error.code == "53200"
    exceeded = r"insert_memory_usage_limit exceeded: tables use \d+ bytes, at least 1 percent of max_memory"  # noqa: E501
    assert re.fullmatch(exceeded, error.message)
    assert tables.sql("SELECT count(*) AS n FROM t").fetchone() == (100,)


def test_a_deployment_without_a_table_has_nothing_to_verify(db):
    db.execute("DEPLOY one AS SELECT 1 AS a")
    error = caught(db.verify, "one")
    assert (error.code, error.message) == ("0A000", "the deployment reads no table")
