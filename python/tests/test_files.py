"""Files in FROM: every format and writer, folders, object stores, damage, and more than memory."""

from __future__ import annotations

import gzip
import http.server
import json
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

import lockstep

ROWS = pa.table(
    {
        "k": pa.array(["a", "b", None, "a"]),
        "i": pa.array([1, None, 3, 4], pa.int32()),
        "f": pa.array([1.5, float("nan"), None, -0.0], pa.float64()),
        "t": pa.array([1_000, 2_000, None, -1], pa.timestamp("ms")),
        "d": pa.array([0, 1, None, -1], pa.date32()),
        "b": pa.array([True, None, False, True]),
    }
)


@pytest.fixture
def db() -> Iterator[lockstep.Connection]:
    """An embedded connection: the files are those of this process."""
    with lockstep.connect() as connection:
        yield connection


def bits(table: pa.Table) -> list[tuple[object, ...]]:
    """Rows that compare equal exactly where their values have the same bits."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [tuple(repr(value) for value in row) for row in rows]


def read(db: lockstep.Connection, source: str, tail: str = "") -> pa.Table:
    """Reads a source of FROM."""
    return db.sql(f"SELECT * FROM {source} {tail}").arrow()


def test_parquet_of_every_writer_has_its_rows(db: lockstep.Connection, tmp_path: Path) -> None:
    """Types, NULLs and bits stay, whichever library wrote the file and however."""
    pq.write_table(ROWS, tmp_path / "arrow.parquet", row_group_size=1)
    pq.write_table(ROWS, tmp_path / "zstd.parquet", compression="zstd", use_dictionary=False)
    pl.from_arrow(ROWS).write_parquet(tmp_path / "polars.parquet")
    ROWS.to_pandas(types_mapper=pd.ArrowDtype).to_parquet(tmp_path / "pandas.parquet")
    for name in ["arrow", "zstd", "polars", "pandas"]:
        found = read(db, f"'{tmp_path}/{name}.parquet'")
        assert bits(found) == bits(ROWS), name


def test_arrow_files_and_streams_have_their_rows(db: lockstep.Connection, tmp_path: Path) -> None:
    """Feather is Arrow's file format; a stream has no footer."""
    pa.feather.write_feather(ROWS, tmp_path / "a.feather", compression="lz4")
    with pa.ipc.new_stream(tmp_path / "a.arrows", ROWS.schema) as writer:
        writer.write_table(ROWS, max_chunksize=2)
    pl.from_arrow(ROWS).write_ipc(tmp_path / "polars.arrow")
    for name in ["a.feather", "a.arrows", "polars.arrow"]:
        assert bits(read(db, f"'{tmp_path}/{name}'")) == bits(ROWS), name
        some = db.sql(f"SELECT t, k FROM '{tmp_path}/{name}' WHERE i > 2").arrow()
        assert bits(some) == bits(ROWS.select(["t", "k"]).take([2, 3])), name


def test_text_formats_and_their_compression(db: lockstep.Connection, tmp_path: Path) -> None:
    """CSV and JSON, plain and gzipped, as other programs write them."""
    frame = pd.DataFrame({"k": ["a", "b"], "v": [1, 2], "x": [0.1, 2.5]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_csv(tmp_path / "rows.csv.gz", index=False)
    frame.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "rows.json", orient="records")
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in frame.to_dict("records"))
    expected = pa.Table.from_pandas(frame)
    for name in ["rows.csv", "rows.csv.gz", "rows.jsonl", "rows.json", "rows.jsonl.gz"]:
        assert bits(read(db, f"'{tmp_path}/{name}'")) == bits(expected), name


def test_decimals_become_doubles_or_integers(db: lockstep.Connection, tmp_path: Path) -> None:
    """A decimal that a DOUBLE holds exactly is that DOUBLE; another is refused by row."""
    prices = pa.table({"p": pa.array(["1.10", "2.25"]).cast(pa.decimal128(10, 2))})
    pq.write_table(prices, tmp_path / "p.parquet")
    assert read(db, f"'{tmp_path}/p.parquet'")["p"].to_pylist() == [1.10, 2.25]
    counts = pa.table({"n": pa.array(["1", "2"]).cast(pa.decimal128(18, 0))})
    pq.write_table(counts, tmp_path / "n.parquet")
    assert read(db, f"'{tmp_path}/n.parquet'").schema.field("n").type == pa.int64()


def test_a_column_of_another_type_is_left_out_with_a_warning(
    db: lockstep.Connection, tmp_path: Path
) -> None:
    """The other columns can be read all the same."""
    rows = pa.table({"a": [1], "point": [{"x": 1, "y": 2}]})
    pq.write_table(rows, tmp_path / "p.parquet")
    with pytest.warns(lockstep.LockstepWarning, match="`point`"):
        found = read(db, f"'{tmp_path}/p.parquet'")
    assert found.column_names == ["a"]
    # A column that is left out exists.
    with pytest.raises(lockstep.Error) as raised, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        db.sql(f"SELECT a, point FROM '{tmp_path}/p.parquet'").fetchall()
    assert raised.value.code == "42804"
    assert "cannot read column `point`" in str(raised.value)
    assert "Convert it to a numeric, string, Boolean, date or timestamp type." in str(raised.value)
    with pytest.raises(lockstep.Error, match="column `pont` does not exist"):
        db.sql(f"SELECT pont FROM '{tmp_path}/p.parquet'").fetchall()


def test_maps_are_read_where_they_lie(db: lockstep.Connection, tmp_path: Path) -> None:
    """A MAP is written, read in FROM, loaded, and made a table of."""
    db.execute("CREATE TABLE m (k STRING, v MAP<STRING, INT>)")
    db.append("m", [{"k": "a", "v": {"x": 1, "y": None}}, {"k": "b", "v": None}])
    expected = [("a", {"x": 1, "y": None}), ("b", None)]
    assert db.sql("SELECT * FROM m").fetchall() == expected
    with pytest.raises(lockstep.Error, match="Pass a dict of keys and values, or None"):
        db.append("m", [{"k": "c", "v": {"x": "one"}}])
    for name in ["m.parquet", "m.arrow"]:
        db.execute(f"SELECT * FROM m INTO OUTFILE '{tmp_path}/{name}'")
        assert db.sql(f"SELECT * FROM '{tmp_path}/{name}'").fetchall() == expected
        found = db.sql(f"SELECT k FROM '{tmp_path}/{name}' WHERE v['x'] = 1").fetchall()
        assert found == [("a",)]
        db.execute(f"CREATE OR REPLACE TABLE of_file AS SELECT * FROM '{tmp_path}/{name}'")
        assert db.sql("SELECT * FROM of_file").fetchall() == expected


def test_filters_and_folders_choose_rows(db: lockstep.Connection, tmp_path: Path) -> None:
    """What pruning leaves out is what the filter refuses."""
    frame = pd.DataFrame({"day": np.repeat([1, 2, 3], 100), "v": np.arange(300)})
    frame.to_parquet(tmp_path / "data", partition_cols=["day"], row_group_size=10)
    total = "SELECT count(*) AS n, sum(v) AS s FROM '{}/data/**/*.parquet' WHERE {}"
    for condition in ["day = 2", "v >= 250", "day > 1 AND v < 150", "v = 299 OR day = 1"]:
        found = db.sql(total.format(tmp_path, condition)).fetchall()
        python = condition.replace("AND", "&").replace("OR", "|").replace(" = ", " == ")
        python = " ".join(f"({part})" if part not in "&|" else part for part in _parts(python))
        chosen = frame[frame.eval(python)]
        assert found == [(len(chosen), int(chosen.v.sum()))], condition


def _parts(condition: str) -> list[str]:
    for operator in ["&", "|"]:
        if operator in condition:
            left, right = condition.split(f" {operator} ")
            return [left, operator, right]
    return [condition]


def test_damaged_and_changed_files_are_named(db: lockstep.Connection, tmp_path: Path) -> None:
    """An error names the file among several, and nothing half-written is left."""
    for number in range(3):
        pq.write_table(pa.table({"a": [number], "b": ["x"]}), tmp_path / f"{number}.parquet")
    whole = (tmp_path / "1.parquet").read_bytes()
    out = tmp_path / "out" / "all.csv"
    out.parent.mkdir()
    write = f"SELECT * FROM '{tmp_path}/*.parquet' INTO OUTFILE '{out}'"
    (tmp_path / "1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(lockstep.Error, match=r"1\.parquet"):
        db.execute(write)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    with pytest.raises(lockstep.Error, match=r"column `b` does not exist in file .*1\.parquet"):
        db.execute(write)
    pq.write_table(pa.table({"a": ["text"], "b": ["x"]}), tmp_path / "1.parquet")
    with pytest.raises(lockstep.Error, match=r"1\.parquet.*column `a`"):
        db.execute(write)
    assert list(out.parent.iterdir()) == []
    (tmp_path / "1.parquet").write_bytes(whole)
    assert db.execute(write).rows_affected == 3


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The endpoint of a server that speaks S3, with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server, which the environment names for Lockstep, too."""
    settings = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": bucket,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return boto3.client("s3", endpoint_url=bucket, region_name="us-east-1")


def test_files_of_s3_are_read_where_they_are(
    db: lockstep.Connection, s3: Any, tmp_path: Path
) -> None:
    """Patterns, folders and every format, from a server on loopback."""
    s3.create_bucket(Bucket="clicks")
    for day in ["1", "2"]:
        rows = pa.table({"v": [int(day), int(day) * 10]})
        pq.write_table(rows, tmp_path / "x.parquet")
        s3.upload_file(str(tmp_path / "x.parquet"), "clicks", f"data/day={day}/x.parquet")
    s3.put_object(Bucket="clicks", Key="rows.csv", Body=b"a,b\n1,x\n2,y\n")
    pa.feather.write_feather(ROWS, tmp_path / "a.feather")
    s3.upload_file(str(tmp_path / "a.feather"), "clicks", "a.feather")

    found = db.sql("SELECT v, day FROM 's3://clicks/data/*/*.parquet'").fetchall()
    assert found == [(1, 1), (10, 1), (2, 2), (20, 2)]
    assert db.sql(
        "SELECT sum(v) AS s FROM read_parquet('s3://clicks/data/') WHERE day = 2"
    ).fetchall() == [(22,)]
    assert db.sql("SELECT b FROM 's3://clicks/rows.csv' WHERE a = 2").fetchall() == [("y",)]
    assert bits(read(db, "'s3://clicks/a.feather'")) == bits(ROWS)
    with pytest.raises(lockstep.Error, match=r"no file matches `s3://clicks/none\.csv`"):
        read(db, "'s3://clicks/none.csv'")
    with pytest.raises(
        lockstep.Error, match=r"the bucket of `s3://nobucket/x\.csv` does not exist"
    ):
        read(db, "'s3://nobucket/x.csv'")
    with pytest.raises(lockstep.Error, match=r"no file matches `s3://clicks/none/\*\.csv`"):
        read(db, "'s3://clicks/none/*.csv'")


def test_a_source_reads_the_objects_of_a_bucket_once(
    db: lockstep.Connection, s3: Any, tmp_path: Path
) -> None:
    """Those that are there and those that are added; a sink writes what it has read."""
    s3.create_bucket(Bucket="events")

    def put(name: str, first: int) -> None:
        lines = "".join(f"{number},user{number}\n" for number in range(first, first + 10))
        s3.put_object(Bucket="events", Key=name, Body=f"id,user\n{lines}".encode())

    def wait(query: str, expected: object) -> None:
        for _ in range(300):
            found = db.sql(query).fetchall()
            if found == expected:
                return
            time.sleep(0.1)
        raise AssertionError(found)

    put("in/a.csv", 0)
    db.execute("CREATE TABLE events (id INT, user STRING)")
    db.execute("CREATE SOURCE s INTO TABLE events FROM FILES OPTIONS(path='s3://events/in/*.csv')")
    db.execute(
        "CREATE SINK out FROM TABLE events INTO FILES OPTIONS("
        f"path='{tmp_path}', format='csv', header=false, rows_per_file=10)"
    )
    wait("SELECT count(*) FROM events", [(10,)])
    put("in/b.csv", 10)
    put("elsewhere/c.csv", 20)
    wait("SELECT count(*), count(DISTINCT id) FROM events", [(20, 20)])
    wait("SELECT messages_written FROM lockstep.sinks", [(20,)])
    lines = [line for path in sorted(tmp_path.iterdir()) for line in path.read_text().split()]
    assert lines == [f"{number},user{number}" for number in range(20)]
    s3.put_object(Bucket="events", Key="in/a.csv", Body=b"id,user\n1,other\n")
    wait("SELECT state FROM lockstep.sources", [("failed",)])
    [(error,)] = db.sql("SELECT error FROM lockstep.sources").fetchall()
    assert "file `s3://events/in/a.csv` has changed after it was read" in error


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers every request with the status that its path names."""

    def do_HEAD(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


def test_a_server_that_refuses_is_named(db: lockstep.Connection) -> None:
    """What may not be read, and what fails otherwise."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    refused = "permission denied for `{}`"
    said = {401: refused, 403: refused, 404: "`{}` does not exist"}
    try:
        for status, message in {**said, 400: "could not read `{}`"}.items():
            with pytest.raises(lockstep.Error) as error:
                read(db, f"'{url}/{status}/x.csv'")
            assert message.format(f"{url}/{status}/x.csv") in str(error.value)
    finally:
        server.shutdown()
        server.server_close()


MORE_THAN_MEMORY = """
import sys, lockstep
folder, limit = sys.argv[1:]
db = lockstep.connect()
db.execute(f"SET memory_limit = '{limit}'")
written = db.execute(f'''
    SELECT r.k, r.ts, count(r.v) OVER w AS n, sum(r.v) OVER w AS s, max(r.v) OVER w AS m, o.x
    FROM '{folder}/rows.parquet' AS r
    LAST JOIN '{folder}/others.parquet' AS o ORDER BY o.ts ON r.k = o.k AND o.ts <= r.ts
    WINDOW w AS (PARTITION BY r.k ORDER BY r.ts ROWS_RANGE BETWEEN 100s PRECEDING AND CURRENT ROW)
    INTO OUTFILE '{folder}/out-{limit}.parquet'
''')
print(written.rows_affected)
"""


# A small process between, because a process counts the memory of the one that it was forked from.
PEAK = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:])
print(os.wait4(child.pid, 0)[2].ru_maxrss)
"""


def test_a_training_set_of_more_than_memory_is_the_same(tmp_path: Path) -> None:
    """With a limit that its rows do not fit into, a query ends with the same bits from disk."""
    random = np.random.default_rng(7)
    count = 1_000_000
    rows = pa.table(
        {
            "k": random.integers(0, 2_000, count),
            "ts": pa.array(random.integers(0, 1_000_000, count), pa.timestamp("ms")),
            "v": random.normal(size=count),
            "text": pa.array(random.integers(0, 10**12, count)).cast(pa.string()),
        }
    )
    pq.write_table(rows, tmp_path / "rows.parquet")
    others = rows.select(["k", "ts"]).append_column("x", rows["v"]).take(np.arange(0, count, 3))
    pq.write_table(others, tmp_path / "others.parquet")
    peaks = []
    for limit in ["6MB", "2GB"]:
        command = [sys.executable, "-c", MORE_THAN_MEMORY, str(tmp_path), limit]
        command = [sys.executable, "-S", "-c", PEAK, *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        written, *peak = done.stdout.split()
        assert written == str(count), done.stderr
        peaks.append(int(peak[0]))
    small, large = (pq.read_table(tmp_path / f"out-{limit}.parquet") for limit in ["6MB", "2GB"])
    assert small.equals(large)
    assert peaks[0] < peaks[1], "the smaller limit takes less memory, measured from outside"


LIMITED = """
import sys, lockstep
folder, query = sys.argv[1:]
db = lockstep.connect()
db.execute("SET memory_limit = '100MB'")
options = "OPTIONS(format = 'parquet', mode = 'overwrite')"
print(db.execute(f"{query} INTO OUTFILE '{folder}/out.parquet' {options}").rows_affected)
"""

FIVE = "count(v) OVER {0} AS n{0}, sum(v) OVER {0} AS s{0}, avg(v) OVER {0} AS a{0}, \
min(v) OVER {0} AS l{0}, max(v) OVER {0} AS g{0}"

WINDOW = "{0} AS (PARTITION BY {0} ORDER BY ts ROWS_RANGE BETWEEN {1} PRECEDING AND CURRENT ROW)"


def windows(*keys: str) -> str:
    """A query of a window for each of these columns, with five aggregates each."""
    columns = ", ".join(FIVE.format(key) for key in keys)
    made = ", ".join(WINDOW.format(key, 200_000) for key in keys)
    return f"SELECT id, {columns} FROM '{{rows}}' AS t WINDOW {made}"


@pytest.mark.parametrize(
    "query",
    [
        windows("few"),
        windows("frequent"),
        windows("few", "many", "frequent"),
        "SELECT t.id, t.v, o.v AS other FROM '{rows}' AS t LAST JOIN '{rows}' AS o ORDER BY o.ts "
        "ON t.few = o.few AND o.ts < t.ts",
    ],
    ids=["window", "frequent key", "windows", "join"],
)
def test_a_memory_limit_holds_as_measured_from_outside(tmp_path: Path, query: str) -> None:
    """Beside what a process takes for a few rows, it takes the limit and little more."""
    limit_kib = 100_000_000 // 1024
    peaks = []
    for count in [1_000, 3_000_000]:
        number = np.arange(count)
        mixed = (number * 2_654_435_761) >> 7
        columns = {
            "id": number,
            "few": mixed % 1_000,
            "many": mixed % 100_003,
            # Four fifths of the rows have one key.
            "frequent": np.where(number % 10 < 8, 0, mixed % 1_000),
            "ts": (number * 7_919) % count,
            "v": mixed % 997,
        }
        rows = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
        path = tmp_path / f"rows-{count}.parquet"
        pq.write_table(rows, path)
        command = [sys.executable, "-c", LIMITED, str(tmp_path), query.format(rows=path)]
        command = [sys.executable, "-S", "-c", PEAK, *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        written, *peak = done.stdout.split()
        assert written == str(count), done.stderr
        peaks.append(int(peak[0]))
    assert peaks[1] - peaks[0] < limit_kib + (48 << 10), "the limit, and 48 MiB for the rest"
