"""Tables of a program by the names of its variables, and the default connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def refused(code: str, *parts: str) -> Iterator[None]:
    """Expects an error with this code and these texts."""
    with pytest.raises(lockstep.Error) as raised:
        yield
    assert raised.value.code == code, raised.value
    for part in parts:
        assert part in str(raised.value)


LATIN_1 = pa.array([b"ok", None, b"caf\xe9"])


@pytest.mark.parametrize(
    "texts",
    [
        LATIN_1.view(pa.string()),
        LATIN_1.cast(pa.large_binary()).view(pa.large_string()),
        pa.chunked_array([pa.array(["ok", None]), LATIN_1.view(pa.string())[2:]]),
    ],
    ids=["string", "large_string", "chunked"],
)
def test_text_that_is_not_utf_8_does_not_come_in(texts: pa.Array, tmp_path: Path) -> None:
    """It would be stored as it is, and the directory could not be opened any more."""
    mine = pa.table({"n": [1, 2, 3], "a": texts})
    message = "column `a`, row 3: the string is not valid UTF-8"
    with lockstep.connect(tmp_path / "db") as db:
        db.execute("CREATE TABLE there (n BIGINT, a STRING)")
        db.execute("DEPLOY d AS SELECT a FROM there")
        with refused("22021", message, "latin-1"):
            db.append("t", mine)
        with refused("22021", message):
            db.append("there", mine)
        with refused("22021", message):
            db.append({"there": mine})
        with refused("22021", message):
            db.sql("SELECT a FROM mine")
        with refused("22021", message):
            db.request("d", mine)
        assert db.sql("SELECT count(*) AS n FROM there").fetchall() == [(0,)]
    with lockstep.connect(tmp_path / "db") as db:
        assert db.sql("SHOW TABLES").fetchall() == [("there",)]


def test_arrow_data_that_is_not_valid_does_not_come_in(local: lockstep.Connection) -> None:
    """Offsets and keys that point outside of the values."""
    offsets = pa.py_buffer(np.array([0, 3, 1], dtype=np.int32))
    backwards = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    keys = pa.array([0, 7], pa.int8())
    stray = pa.DictionaryArray.from_arrays(keys, pa.array(["x"]), safe=False)
    # The bytes of a text end where the last offset says, which is before those of the first row.
    for column, row in ((backwards, 1), (stray, 2)):
        problem = f"column `a`, row {row}: the Arrow data is invalid"
        with refused("42804", problem, "Arrow reports"):
            local.append("t", pa.table({"a": column}))
    text = pa.array([b"caf\xe9"]).view(pa.string())
    encoded = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), text)
    with refused("22021", "column `a`: the string is not valid UTF-8"):
        local.append("t", pa.table({"a": encoded}))


def test_a_dictionary_may_have_null_as_a_value(local: lockstep.Connection) -> None:
    """It is NULL, as a key that is NULL."""
    keys = pa.array([0, 1, None], pa.int8())
    mine = pa.table({"a": pa.DictionaryArray.from_arrays(keys, pa.array(["x", None]))})
    assert local.sql("SELECT a FROM mine").fetchall() == [("x",), (None,), (None,)]
    local.append("t", mine)
    assert local.sql("SELECT a FROM t").fetchall() == [("x",), (None,), (None,)]


def test_dates_outside_of_python_are_numbers(local: lockstep.Connection) -> None:
    """The days since 1970-01-01, or the milliseconds of a time; also of the first DATE."""
    days = [-(2**31), -(2**31) + 1, 2**31 - 1]
    mine = pa.table({"a": pa.array(days, pa.date32())})
    assert local.sql("SELECT a FROM mine").fetchall() == [(day,) for day in days]
    times = local.sql("SELECT timestamp(a) AS t FROM mine").fetchall()
    assert len(times) == mine.num_rows
    assert all(time is None or type(time) is int for (time,) in times)


def test_a_table_without_usable_columns_names_them(local: lockstep.Connection) -> None:
    """A query could read nothing of it."""
    mine = pa.table({"d": pa.array([1], pa.duration("ms")), "x": pa.nulls(1)})
    with refused("42804", "`mine` has no readable column", "`d`", "Duration(ms)", "`x`"):
        local.sql("SELECT * FROM mine")
    nothing = pa.table({})
    with refused("42804", "`nothing` has no readable column", "The source has no columns."):
        local.sql("SELECT * FROM nothing")
    assert (mine.num_rows, nothing.num_rows) == (1, 0)


def test_columns_that_arrow_does_not_take_are_named(local: lockstep.Connection) -> None:
    """The error is the package's, whichever library refuses the column."""
    sparse = pd.DataFrame({"a": pd.arrays.SparseArray([0, 0, 1])})
    wide = pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)})
    objects = pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)})
    for frame, name in ((sparse, "column a"), (wide, "column `a`"), (objects, "column `a`")):
        with refused("42804", name):
            local.append("t", frame)
        with refused("42804", name):
            local.sql("SELECT * FROM frame")
    mixed = np.array([1, "x"], dtype=object)
    with refused("42804", "could not convert column `column0` to Arrow"):
        local.sql("SELECT * FROM mixed")
    swapped = np.arange(3).astype(">i4")
    with refused("42804", "could not convert column `column0` to Arrow", "byte order"):
        local.sql("SELECT * FROM swapped")
    with refused("42804", "cannot append a Python `ndarray`"):
        local.append("t", np.array(5))
    with refused("42804", "could not read the data as an Arrow table"):
        local.append("t", pl.Series("a", [1, 2]))
    assert (mixed.size, swapped.size) == (2, 3)


def test_an_append_makes_the_tables_that_create_table_makes(local: lockstep.Connection) -> None:
    """A column of arrays is refused, and so is an empty name."""
    lists = pa.table({"k": ["a"], "a": pa.array([[1, 2]])})
    for replace in (False, True):
        with refused("42P16", "column `a` cannot be of type ARRAY<BIGINT>"):
            local.append("t", lists, replace=replace)
    for rows in ([{"a": 1}], pa.table({"a": [1]})):
        with refused("42601", "the name of a table cannot be empty"):
            local.append("", rows)
    assert local.sql("SHOW TABLES").fetchall() == []
