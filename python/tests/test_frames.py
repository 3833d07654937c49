"""Tables of a program by the names of its variables, and the default connection."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lockstep

of_module = pd.DataFrame({"a": [7]})


@pytest.fixture
def local() -> Iterator[lockstep.Connection]:
    """A database of this process."""
    with lockstep.connect() as connection:
        yield connection


def test_every_kind_of_table_is_found_by_its_name(local: lockstep.Connection) -> None:
    """Local variables first, then those of the module; what is no table is not found."""
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    polar = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    lazy = polar.lazy().filter(pl.col("a") > 1)
    arrow = pa.table({"a": [1, 2], "b": ["x", None]})
    batch = arrow.to_batches()[0]
    for name in ["frame", "polar", "arrow", "batch"]:
        assert local.sql(f"SELECT b, a FROM {name}").fetchall() == [("x", 1), (None, 2)], name
    assert local.sql("SELECT a FROM lazy").fetchall() == [(2,)]
    assert local.sql("SELECT a FROM of_module").fetchall() == [(7,)]
    relation = local.sql("SELECT a * 10 AS ten FROM frame")
    assert local.sql("SELECT sum(ten) AS s FROM relation").fetchall() == [(30,)]
    grid = np.array([[1.5, 2.0], [3.0, 4.0]])
    assert local.sql("SELECT column1 FROM grid").fetchall() == [(2.0,), (4.0,)]
    fields = np.array([(1, 2.5)], dtype=[("i", "i4"), ("f", "f8")])
    assert local.sql("SELECT i, f FROM fields").fetchall() == [(1, 2.5)]
    text, series = "no table", frame["a"]
    for name in ["text", "series", "nowhere"]:
        with pytest.raises(lockstep.Error, match=f"`{name}` does not exist"):
            local.sql(f"SELECT * FROM {name}")
    assert text is not series
    assert (lazy, polar, batch, grid, fields, relation) is not None


def test_a_table_hides_a_variable_and_windows_run_over_both(local: lockstep.Connection) -> None:
    """A stored table of the name is what the query means; a join may read one of each."""
    clicks = pa.table({"k": ["a", "a"], "ts": [1, 2], "v": [1.0, 2.0]})
    window = """
        SELECT c.k, sum(c.v) OVER w AS s, n.x
        FROM clicks AS c LAST JOIN names AS n ON c.k = n.k
        WINDOW w AS (PARTITION BY c.k ORDER BY c.ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
    """
    local.append("names", [{"k": "a", "x": 5}])
    assert local.sql(window).fetchall() == [("a", 1.0, 5), ("a", 3.0, 5)]
    assert clicks.num_rows == 2
    local.append("clicks", [{"k": "b", "ts": 1, "v": 9.0}])
    assert local.sql("SELECT k FROM clicks").fetchall() == [("b",)]


def test_a_deployment_does_not_read_variables(local: lockstep.Connection) -> None:
    """A deployment outlasts the variables of a program."""
    mine = pa.table({"a": [1]})
    with pytest.raises(lockstep.Error, match="`mine` does not exist"):
        local.execute("DEPLOY d AS SELECT a FROM mine")
    assert mine.num_rows == 1


def test_statements_that_give_rows_are_relations(local: lockstep.Connection) -> None:
    """SHOW, DESC and EXPLAIN through db.sql; a statement that changes something is refused."""
    local.execute("CREATE TABLE t (a INT)")
    assert local.sql("SHOW TABLES").fetchall() == [("t",)]
    assert local.sql("-- what is in it\n desc t").fetchall()
    assert "batch mode" in str(local.sql("EXPLAIN SELECT a FROM t").fetchall())
    with pytest.raises(lockstep.Error, match="not a query"):
        local.sql("DROP TABLE t")


def test_the_package_has_a_default_connection() -> None:
    """The first call makes it, and later ones share it."""
    numbers = pa.table({"n": [1, 2, 3]})
    assert lockstep.sql("SELECT sum(n) AS s FROM numbers").fetchall() == [(6,)]
    assert numbers.num_rows == 3
    lockstep.append("t_of_default", [{"a": 1}])
    assert lockstep.sql("SELECT a FROM t_of_default").fetchall() == [(1,)]
    assert lockstep.default_connection() is lockstep.default_connection()
    lockstep.execute("DROP TABLE t_of_default")
