"""Temporary files, seen from outside: where they are, how much, and when they are gone."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lockstep

WAIT_S = 60
"""Much longer than anything here takes."""

WINDOW = """
    SELECT count(s) AS n FROM (
        SELECT sum(v) OVER w AS s
        FROM '{folder}/rows.parquet'
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
    ) AS x
"""

CHILD = """
import os, sys
import lockstep
folder, temporary = sys.argv[1:3]
db = lockstep.connect()
db.execute("SET memory_limit = '4MB'")
db.execute(f"SET temp_directory = '{temporary}'")
QUERY = f'''
    SELECT k, sum(v) OVER w AS s
    FROM '{folder}/rows.parquet'
    WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
'''
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of more rows than the limits here allow."""
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(7)
    count = 400_000
    rows = pa.table(
        {
            "k": random.integers(0, 2_000, count),
            "ts": pa.array(random.integers(0, 1_000_000, count), pa.timestamp("ms")),
            "v": random.normal(size=count),
        }
    )
    pq.write_table(rows, folder / "rows.parquet")
    return folder


def start(script: str, folder: Path, temporary: Path) -> subprocess.Popen[str]:
    """Starts a process that runs a script after [`CHILD`]."""
    script = CHILD + textwrap.dedent(script)
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder), str(temporary)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_none(temporary: Path) -> None:
    """Waits for the thread of batches that were dropped."""
    end = time.monotonic() + WAIT_S
    while list(temporary.iterdir()):
        assert time.monotonic() < end
        time.sleep(0.01)


def folders(temporary: Path) -> list[Path]:
    """The folders of temporary files that are there."""
    return sorted(temporary.glob("lockstep-temp-*"))


READ_ONE = """
    batches = db.sql(QUERY).batches()
    next(batches)
    print("rows", flush=True)
    sys.stdin.readline()
    batches.close()
    print("closed", flush=True)
    sys.stdin.readline()
"""


def test_files_are_in_the_set_folder_while_a_query_runs(folder: Path, tmp_path: Path) -> None:
    """Nobody else can read them, and they are gone when the reader is."""
    child = start(READ_ONE, folder, tmp_path)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == "rows\n", child.communicate()[1]
    [own] = folders(tmp_path)
    assert f"-{child.pid}-" in own.name
    assert own.stat().st_mode & 0o777 == 0o700
    files = [path for path in own.iterdir() if path.name != "owner"]
    assert sum(path.stat().st_size for path in files) > 100_000
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "closed\n"
    wait_for_none(tmp_path)
    child.communicate("\n", timeout=WAIT_S)


def test_a_killed_process_leaves_files_that_the_next_one_removes(
    folder: Path, tmp_path: Path
) -> None:
    """Its lock is free then; that of a process that runs is not."""
    first, second = (start(READ_ONE, folder, tmp_path) for _ in range(2))
    for child in (first, second):
        assert child.stdout is not None
        assert child.stdout.readline() == "rows\n", child.communicate()[1]
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert len(folders(tmp_path)) == 2
    with lockstep.connect() as db:
        db.execute("SET memory_limit = '4MB'")
        db.execute(f"SET temp_directory = '{tmp_path}'")
        assert db.sql(WINDOW.format(folder=folder)).fetchall() == [(400_000,)]
    [own] = folders(tmp_path)
    assert f"-{second.pid}-" in own.name
    assert second.stdin is not None
    assert second.stdout is not None
    second.stdin.write("\n")
    second.stdin.flush()
    assert second.stdout.readline() == "closed\n"
    wait_for_none(tmp_path)
    second.communicate("\n", timeout=WAIT_S)


def test_files_are_gone_after_an_error_and_after_ctrl_c(folder: Path, tmp_path: Path) -> None:
    """Whatever ends a query ends its files."""
    script = """
        import signal, threading
        os.mkdir(f"{folder}/csv")
        for number, last in enumerate(["1,1,1.0", "1,1,wrong"]):
            lines = ["k,ts,v", *(f"{i % 999},{i},0.5" for i in range(200_000)), last]
            with open(f"{folder}/csv/{number}.csv", "w") as file:
                file.write("\\n".join(lines))
        try:
            db.sql(QUERY.replace("rows.parquet", "csv/*.csv")).arrow()
        except lockstep.Error as error:
            print(error.code, os.listdir(temporary))
        slow = QUERY.replace("9 PRECEDING", "100000 PRECEDING").replace("sum(v)", "median(v)")
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        def press():
            while not os.listdir(temporary):
                pass
            os.kill(os.getpid(), signal.SIGALRM)
        threading.Thread(target=press).start()
        try:
            db.sql(slow).arrow()
        except KeyboardInterrupt:
            print("interrupted", os.listdir(temporary))
    """
    child = start(script, folder, tmp_path)
    shown, errors = child.communicate(timeout=WAIT_S)
    assert shown == "22P04 []\ninterrupted []\n", errors


def test_the_limit_is_one_for_all_queries(folder: Path, tmp_path: Path) -> None:
    """What one has written the other cannot write, until it has ended."""
    with lockstep.connect() as db:
        db.execute("SET GLOBAL memory_limit = '4MB'")
        db.execute(f"SET GLOBAL temp_directory = '{tmp_path}'")
        db.execute(f"SET temp_directory = '{tmp_path}'")
        db.execute("SET memory_limit = '4MB'")
        db.execute("SET GLOBAL max_temp_directory_size = '100kB'")
        query = WINDOW.format(folder=folder)
        with pytest.raises(lockstep.Error) as caught:
            db.sql(query).fetchall()
        error = caught.value
        assert error.code == "53100"
        assert error.message == "temporary files exceed max_temp_directory_size"
        assert str(tmp_path) in str(error.detail)
        assert "of 102400 bytes" in str(error.detail)
        assert "max_temp_directory_size" in str(error.hint)
        assert list(tmp_path.iterdir()) == []
        db.execute("SET GLOBAL max_temp_directory_size = '1GB'")
        assert db.sql(query).fetchall() == [(400_000,)]
        assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_that_says_where(folder: Path, tmp_path: Path) -> None:
    """The system allows the process no larger files: what it also says of a quota."""
    script = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            db.sql(QUERY.replace("SELECT k, ", "SELECT ")).arrow()
        except lockstep.Error as error:
            print(error.code, error.message, error.detail, error.hint, sep="\\n")
        print(os.listdir(temporary))
    """
    child = start(script, folder, tmp_path)
    shown, errors = child.communicate(timeout=WAIT_S)
    code, message, detail, hint, left = shown.splitlines() or [errors] * 5
    assert code == "53100", errors
    assert message == "could not write temporary files: no space left on device"
    assert str(tmp_path) in detail
    assert "temp_directory" in hint
    assert left == "[]"


def test_a_disk_of_one_megabyte_is_full(folder: Path, tmp_path: Path) -> None:
    """The same on a file system that has no space."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with lockstep.connect() as db:
            db.execute("SET memory_limit = '4MB'")
            db.execute(f"SET temp_directory = '{tmp_path}'")
            with pytest.raises(lockstep.Error) as caught:
                db.sql(WINDOW.format(folder=folder)).fetchall()
        assert caught.value.code == "53100"
        assert "No space left on device" in str(caught.value.detail)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_folder_that_was_removed_is_named(folder: Path, tmp_path: Path) -> None:
    """The query ends, and says how to name another folder."""
    gone = tmp_path / "gone"
    gone.mkdir()
    with lockstep.connect() as db:
        db.execute("SET memory_limit = '4MB'")
        db.execute(f"SET temp_directory = '{gone}'")
        gone.rmdir()
        with pytest.raises(lockstep.Error) as caught:
            db.sql(WINDOW.format(folder=folder)).fetchall()
        error = caught.value
        assert (error.code, error.message) == (
            "58030",
            f"could not write temporary files in directory `{gone}`",
        )
        assert error.hint == "Set temp_directory to another directory."


def same_with_a_limit(query: str, limit: str) -> pa.Table:
    """The rows of a query, which are the same bits in the same order within a memory limit."""
    expected = lockstep.connect().sql(query).arrow()
    db = lockstep.connect()
    db.execute(f"SET memory_limit = '{limit}'")
    found = pa.Table.from_batches(db.sql(query).batches(), expected.schema)
    assert found.equals(expected)
    return found


def test_a_window_over_one_key_that_does_not_fit(folder: Path) -> None:
    """The rows of a key are computed in time slices; a frame has to fit, not a key."""
    rows = same_with_a_limit(
        f"""
        SELECT sum(v) OVER w AS s, min(v) OVER w AS least, count(v) OVER near AS n
        FROM (SELECT 1 AS k, ts, v FROM '{folder}/rows.parquet') AS one
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 99 PRECEDING AND CURRENT ROW),
               near AS (PARTITION BY k ORDER BY ts
                        ROWS_RANGE BETWEEN 1s PRECEDING AND CURRENT ROW)
        """,
        "8MB",
    )
    assert rows.num_rows == 400_000


def test_a_frame_that_does_not_fit_is_an_error(folder: Path) -> None:
    """Without a beginning its states are enough."""
    query = f"""
        SELECT min(v) OVER w AS least
        FROM (SELECT 1 AS k, ts, v FROM '{folder}/rows.parquet') AS one
        WINDOW w AS (PARTITION BY k ORDER BY ts
                     ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    """
    db = lockstep.connect()
    expected = db.sql(query).arrow()["least"].to_pylist()
    db.execute("SET memory_limit = '4MB'")
    found = [v for batch in db.sql(query).batches() for v in batch["least"].to_pylist()]
    assert found == expected
    long = query.replace("UNBOUNDED PRECEDING", "1000000 PRECEDING")
    with pytest.raises(lockstep.Error, match="exceeds its memory limit") as error:
        list(db.sql(long).batches())
    assert error.value.code == "53200"


def test_a_join_of_two_sides_that_do_not_fit(folder: Path) -> None:
    """Both are sorted on disk; the rows come in the order of the left ones."""
    path = f"{folder}/rows.parquet"
    rows = same_with_a_limit(
        f"""
        SELECT l.ts, l.k, l.v, r.v AS other
        FROM '{path}' AS l LEFT JOIN (SELECT k, ts, v FROM '{path}' WHERE v > 0) AS r
          ON l.k = r.k AND l.ts = r.ts
        """,
        "12MB",
    )
    assert rows.num_rows >= 400_000
