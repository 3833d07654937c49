"""Relations into files, batches and arrays: what other programs read of them."""

from __future__ import annotations

import contextlib
import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

import lockstep
from remote import new_database

ROWS = 10_000


@pytest.fixture(params=["embedded", "remote"])
def db(request):
    """A database with a table of clicks: in the process, or on a server."""
    server = request.param == "remote"
    opened = lockstep.connect("/".join(new_database(request)) if server else None)
    days = [datetime.date(2024, 5, 1 + number % 3) for number in range(ROWS)]
    cities = ["Ulm", "São Paulo", None, "a/b=%"]
    clicks = pa.table(
        {
            "day": days,
            "city": [cities[number % 4] for number in range(ROWS)],
            "n": list(range(ROWS)),
            "price": [None if number % 5 == 0 else number / 3 for number in range(ROWS)],
            "paid": [number % 2 == 0 for number in range(ROWS)],
        }
    )
    opened.append("clicks", clicks)
    with opened:
        yield opened


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_partitioned_folder_is_read_by_others(db, tmp_path):
    folder = tmp_path / "out"
    relation = db.sql("SELECT * FROM clicks")
    assert relation.write(folder, format="parquet", partition_by=["day", "city"]) == ROWS
    assert len(files_of(folder)) == 12 + 1
    expected = (ROWS, sum(range(ROWS)))
    glob = f"'{folder}/**/*.parquet'"
    condition = "WHERE city = 'a/b=%' OR city = 'Ulm' OR city IS NULL"
    found = duckdb.sql(
        f"SELECT count(*), sum(n) FROM read_parquet({glob}, hive_partitioning = true) {condition}"
    ).fetchall()
    assert found == db.sql(f"SELECT count(*), sum(n) FROM clicks {condition}").fetchall()
    frame = pl.read_parquet(f"{folder}/**/*.parquet", hive_partitioning=True)
    assert (len(frame), frame["n"].sum()) == expected
    found = dataset.dataset(folder, partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    assert (len(found), sum(found["n"].to_pylist())) == expected
    again = lockstep.connect().sql(f"SELECT count(*), sum(n), min(day) FROM read_parquet({glob})")
    assert again.fetchall() == [(*expected, datetime.date(2024, 5, 1))]
    rows = pl.read_parquet(folder / "day=2024-05-01" / "city=Ulm" / "part-00000.parquet")
    assert rows.columns == ["n", "price", "paid"]
    assert rows["n"].is_sorted(), "in the order of the query"


def test_each_format_and_mode(db, tmp_path):
    relation = db.sql("SELECT n, price FROM clicks WHERE n < 3")
    for end in ("csv", "parquet", "json", "arrow", "tsv", "csv.gz"):
        path = tmp_path / f"rows.{end}"
        assert relation.write(path) == 3
        read = lockstep.connect().sql(f"SELECT * FROM '{path}'").fetchall()
        assert read == [(0, None), (1, 1 / 3), (2, 2 / 3)], end
    with pytest.raises(lockstep.Error, match="already exists") as caught:
        relation.write(tmp_path / "rows.csv")
    assert caught.value.code == "58P02"
    assert relation.write(tmp_path / "rows.csv", mode="append") == 3
    path = tmp_path / "rows.txt"
    relation.write(path, format="csv", delimiter=";", header=False, null_value="-")
    assert path.read_text().splitlines()[0] == "0;-"
    assert relation.write(f"{tmp_path}/parts/", files=2, format="json") == 3
    assert files_of(tmp_path / "parts") == ["_SUCCESS", "part-00000.json", "part-00001.json"]


def test_json_has_words_for_the_floats_that_are_no_numbers(db, tmp_path):
    """They were null, which is read back as NULL."""
    floats = [None, float("inf"), float("-inf"), 0.5]
    db.append("floats", [{"a": value} for value in floats])
    db.append("nan", [{"a": float("nan")}])
    path = tmp_path / "rows.json"
    assert db.sql("SELECT a FROM floats").write(path) == 4
    words = ["null", '"Infinity"', '"-Infinity"', "0.5"]
    assert path.read_text() == "".join(f'{{"a":{word}}}\n' for word in words)
    assert db.sql("SELECT a FROM nan").write(path, mode="append") == 1
    with lockstep.connect() as other:
        read = other.sql(f"SELECT a FROM '{path}'").fetchall()
        assert read[:4] == [(value,) for value in floats] and np.isnan(read[4][0])
        other.execute("CREATE TABLE floats (a DOUBLE)")
        other.append("floats", path)
        assert other.sql("SELECT a FROM floats").fetchall()[:4] == read[:4]


def test_what_is_overwritten_stays_what_it_is(db, tmp_path):
    """The mode of a file and a link to it are kept, and a pipe is not replaced."""
    relation = db.sql("SELECT n FROM clicks WHERE n < 3")
    real, link, pipe = tmp_path / "real.csv", tmp_path / "link.csv", tmp_path / "pipe.csv"
    real.write_text("secret")
    real.chmod(0o600)
    link.symlink_to(real)
    assert relation.write(link, mode="overwrite") == 3
    assert link.is_symlink() and real.read_text() == "n\n0\n1\n2\n"
    assert real.stat().st_mode & 0o777 == 0o600
    os.mkfifo(pipe)
    with pytest.raises(lockstep.Error, match="is not a regular file") as caught:
        relation.write(pipe, mode="overwrite")
    assert caught.value.code == "42809" and pipe.is_fifo()


def test_a_folder_without_rows_says_so(db, tmp_path):
    """It has no file from which the columns could be known."""
    folder = tmp_path / "empty"
    assert db.sql("SELECT day, n FROM clicks WHERE n < 0").write(folder, partition_by="day") == 0
    with pytest.raises(lockstep.Error, match="contains no files to read") as caught:
        lockstep.connect().sql(f"SELECT * FROM read_parquet('{folder}')")
    assert "a query that returned no rows" in str(caught.value)


def test_a_relation_that_has_run_is_written_too(db, tmp_path):
    relation = db.sql("SELECT n FROM clicks WHERE n < 3").run()
    assert relation.write(tmp_path / "rows.parquet") == 3
    assert db.execute("SELECT n FROM clicks WHERE n < 5").write(tmp_path / "five.csv") == 5
    with pytest.raises(lockstep.Error, match="cannot write a relation without columns"):
        db.execute("CREATE TABLE u (a INT)").write(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        ({"partition_by": "town"}, "column `town` does not exist", "42703"),
        ({"partition_by": "a,b"}, "contains a comma", "22023"),
        ({"partition_by": ["n", "n"]}, "distinct column names", "22023"),
        ({"partition_by": "n", "files": 3}, "cannot be used together", "22023"),
        ({"format": "xls"}, "format", "22023"),
        ({"mode": "replace"}, "mode", "22023"),
    ],
)
def test_an_option_that_is_wrong_writes_nothing(db, tmp_path, options, message, code):
    with pytest.raises(lockstep.Error, match=message) as caught:
        db.sql("SELECT n, price FROM clicks").write(tmp_path / "out", **options)
    assert caught.value.code == code
    assert list(tmp_path.iterdir()) == []


def test_every_column_cannot_be_a_folder(db, tmp_path):
    with pytest.raises(lockstep.Error, match="leave at least one column"):
        db.sql("SELECT n FROM clicks").write(tmp_path / "out", partition_by="n")
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_query_leaves_no_file(db, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("n\n" + "1\n" * 200_000 + "1,2\n")
    query = db.sql(f"SELECT n FROM '{path}'")
    for target in ("out.csv", "folder/"):
        with pytest.raises(lockstep.Error):
            query.write(f"{tmp_path}/{target}")
    assert files_of(tmp_path) == ["in.csv"]


def test_batches_have_the_rows_in_their_order(db):
    relation = db.sql("SELECT n, city FROM clicks")
    batches = list(relation.batches(3_000))
    assert [batch.num_rows for batch in batches] == [3_000, 3_000, 3_000, 1_000]
    assert pa.Table.from_batches(batches).to_pydict() == relation.arrow().to_pydict()
    assert [batch.num_rows for batch in relation.batches(6_000)] == [6_000, 4_000]
    assert list(db.sql("SELECT n FROM clicks WHERE n < 0").batches()) == []
    with pytest.raises(lockstep.Error, match="must be at least 1"):
        relation.batches(0)


def threads_of_batches() -> int:
    count = 0
    for task in Path("/proc/self/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            count += (task / "comm").read_text().strip() == "batches"
    return count


def wait_for_threads(expected: int) -> None:
    end = time.monotonic() + 10
    while threads_of_batches() != expected:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the names of threads are Linux's")
def test_a_query_ends_when_its_batches_are_dropped(db, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("n\n" + "1\n" * 1_000_000)
    relation = db.sql(f"SELECT n FROM '{path}'")
    batches = relation.batches(10)
    assert next(batches).num_rows == 10
    wait_for_threads(1)
    batches.close()
    wait_for_threads(0)


def test_an_error_of_the_query_is_raised_by_its_batches(db, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("n\n" + "1\n" * 200_000 + "1,2\n")
    query = db.sql(f"SELECT n FROM '{path}'")
    with pytest.raises(lockstep.Error, match="line 200002"):
        list(query.batches(1_000))


def test_numpy_arrays(db):
    columns = db.sql(
        "SELECT n, price, paid, city, day, timestamp(n) AS ts, n AS n,"
        " CASE WHEN n = 1 THEN n END AS one FROM clicks WHERE n < 5"
    ).to_numpy()
    assert list(columns) == ["n", "price", "paid", "city", "day", "ts", "n:2", "one"]
    assert columns["n"].dtype == np.int32 or columns["n"].dtype == np.int64
    assert columns["n"].tolist() == [0, 1, 2, 3, 4]
    assert np.isnan(columns["price"][0]) and columns["price"][1] == 1 / 3
    assert columns["paid"].tolist() == [True, False, True, False, True]
    assert columns["city"].tolist() == ["Ulm", "São Paulo", None, "a/b=%", "Ulm"]
    assert columns["day"][0] == np.datetime64("2024-05-01")
    assert columns["ts"].dtype == "datetime64[ms]"
    assert columns["one"].mask.tolist() == [True, False, True, True, True]
    assert columns["one"].sum() == 1
    assert {len(column) for column in columns.values()} == {5}


PEAK = """
import resource, sys
import lockstep
db = lockstep.connect(sys.argv[4] if len(sys.argv) > 4 else None)
relation = db.sql(f"SELECT * FROM '{sys.argv[1]}'")
if sys.argv[2] == "write":
    relation.write(sys.argv[3], format="parquet", partition_by="g")
else:
    assert sum(batch.num_rows for batch in relation.batches()) == int(sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.parametrize("place", ["embedded", "remote"])
def test_a_result_that_is_larger_than_the_memory_passes(request, place, tmp_path):
    server = "/".join(new_database(request)) if place == "remote" else None
    rows, source = 4_000_000, tmp_path / "in.parquet"
    numbers = np.random.default_rng(1).integers(0, 2**62, rows)
    columns = {f"c{number}": numbers + number for number in range(10)} | {"g": numbers % 20}
    parquet.write_table(pa.table(columns), source, compression="none")
    del columns, numbers
    bytes_of_rows = rows * 11 * 8

    def peak(*arguments):
        command = [sys.executable, "-S", "-c", RUN, sys.executable, "-c", PEAK, str(source)]
        command += [str(argument) for argument in arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, done.stderr
        return int(done.stdout) << 20

    address = [server] if server else []
    for todo in ("write", "batches"):
        target = tmp_path / "out" if todo == "write" else rows
        assert peak(todo, target, *address) < bytes_of_rows * 0.75, todo


RUN = "import subprocess, sys; subprocess.run(sys.argv[1:], check=True)"
