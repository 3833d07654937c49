"""Databases in directories: what was acknowledged is there when they are opened again."""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lockstep
from conftest import SPENT

WAIT_S = 60


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "features.lockstep"


@pytest.fixture(params=["memory", "directory"])
def db_of_either_kind(request, directory: Path):
    with lockstep.connect(directory if request.param == "directory" else None) as db:
        yield db


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)


def code_of(call, match: str) -> str:
    with pytest.raises(lockstep.Error, match=match) as caught:
        call()
    return caught.value.code


# What is there again.


def test_rows_deployments_and_variables_are_there_again(directory):
    with lockstep.connect(directory) as db:
        db.execute("CREATE TABLE purchases (user STRING, price DOUBLE, ts TIMESTAMP)")
        db.append("purchases", [("ann", 0.1, 1_000), ("bob", 5.0, 2_000), ("ann", 0.2, 30_000)])
        db.execute(f"DEPLOY spent AS {SPENT}")
        db.execute("SET GLOBAL statement_timeout = '30s'")
        rows = db.sql("SELECT * FROM purchases").fetchall()
        row = {"user": "ann", "price": 0.7, "ts": 31_000}
        answer = db.request("spent", row)
    with lockstep.connect(str(directory)) as db:
        assert db.opened.rows == 3 and db.opened.cut_bytes == 0
        assert db.sql("SELECT * FROM purchases").fetchall() == rows
        again = db.request("spent", row)
        assert list(map(bits, again.values())) == list(map(bits, answer.values()))
        assert db.verify("spent")
        assert ("statement_timeout", "30s") in [
            tuple(row[:2]) for row in db.execute("SHOW GLOBAL VARIABLES").fetchall()
        ]


def bits(value: object) -> object:
    return struct.pack("<d", value) if isinstance(value, float) else value


def test_appends_of_every_library_are_there_again(directory):
    frame = pd.DataFrame({"k": ["a", None], "v": [1.5, -0.0]})
    with lockstep.connect(directory) as db:
        db.append("of_pandas", frame, durability="os")
        db.append("of_arrow", pa.Table.from_pandas(frame), durability="disk")
        db.append("of_polars", pl.from_pandas(frame), durability="memory")
        db.append("of_dicts", frame.astype(object).where(frame.notna(), None).to_dict("records"))
        db.append("of_dicts", [("b", 2.5)], durability="os")
        tables = ["of_pandas", "of_arrow", "of_polars", "of_dicts"]
        before = {table: db.sql(f"SELECT * FROM {table}").arrow() for table in tables}
    with lockstep.connect(directory) as db:
        for table, rows in before.items():
            assert db.sql(f"SELECT * FROM {table}").arrow().equals(rows), table


def test_rows_of_several_tables_are_there_again_or_none_is(directory):
    frame = pd.DataFrame({"k": ["a", None], "v": [1.5, -0.0]})
    with lockstep.connect(directory) as db:
        db.execute("CREATE TABLE clicks (k STRING, v DOUBLE)")
        db.execute("CREATE TABLE orders (k STRING NOT NULL, v DOUBLE DEFAULT 2.5)")
        assert db.append({"clicks": frame, "orders": [{"k": "b"}]}, durability="os") == 3
        assert db.append({"orders": [("c", 1.0)], "clicks": pa.Table.from_pandas(frame)}) == 3
        assert db.append({}) == 0
        for rows in ({"clicks": frame, "orders": frame}, {"orders": frame, "clicks": frame}):
            refused = code_of(lambda rows=rows: db.append(rows), "null value")
            assert refused == "23502"
        with pytest.raises(lockstep.Error, match="missing") as caught:
            db.append({"clicks": frame, "missing": [{"k": "b"}]})
        assert caught.value.code == "42P01"
        assert code_of(lambda: db.append({"clicks": frame}, frame), "twice") == "22023"
    with lockstep.connect(directory) as db:
        assert len(db.sql("SELECT * FROM clicks").fetchall()) == 4
        assert db.sql("SELECT * FROM orders").fetchall() == [("b", 2.5), ("c", 1.0)]


def test_who_opens_a_directory_is_told_how_far_that_is(directory):
    rows = pd.DataFrame({"k": ["key"] * 1_000_000, "v": range(1_000_000)})
    with lockstep.connect(directory) as db:
        for _ in range(4):
            db.append("t", rows, durability="os")
    told: list[lockstep.OpenProgress] = []
    with lockstep.connect(directory, progress=told.append) as db:
        assert db.opened.rows == 4_000_000
    # A fast machine may have read everything before half a second was over.
    for progress in told:
        assert progress.rows <= 4_000_000 and progress.seconds >= 0.5
        assert progress.seconds_left is not None and "rows/s, about" in str(progress)

    def stop(progress: lockstep.OpenProgress) -> None:
        raise ValueError(f"stopped after {progress.rows}")

    # This time, too.
    try:
        lockstep.connect(directory, progress=stop).close()
    except ValueError as error:
        assert str(error).startswith("stopped after")
    with lockstep.connect(directory, read_only=True) as db:
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(4_000_000,)]


def test_offline_data_is_there_again(directory, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("k,v\na,1\nb,2\n")
    offline = "SET @@execute_mode = 'offline'"
    with lockstep.connect(directory) as db:
        db.execute("CREATE TABLE t (k STRING, v INT)")
        db.execute(offline)
        db.execute(f"LOAD DATA INFILE '{path}' INTO TABLE t OPTIONS(deep_copy=true)")
        before = db.sql("SELECT * FROM t").fetchall()
        assert sorted(before) == [("a", 1), ("b", 2)]
    path.unlink()
    with lockstep.connect(directory) as db:
        assert db.sql("SELECT * FROM t").fetchall() == []
        db.execute(offline)
        assert db.sql("SELECT * FROM t").fetchall() == before
        assert len(db.execute("SHOW JOBS")) >= 1


def test_a_relative_path_holds_when_the_process_changes_its_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with lockstep.connect("db") as db:
        monkeypatch.chdir("elsewhere")
        db.append("t", [{"a": 1}])
    with lockstep.connect(tmp_path / "db") as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]
    assert os.listdir() == []


KILLED = """
    import os, sys, threading, lockstep

    db = lockstep.connect(sys.argv[1])
    lock = threading.Lock()

    def append(first):
        for number in range(first, 1_000_000, 2):
            level = ("disk", "os")[number % 4 // 2]
            db.append("t", [{"n": number, "x": f"{number}"}] * 3, durability=level)
            with lock:
                os.write(1, f"{number}\\n".encode())

    db.execute("CREATE TABLE IF NOT EXISTS t (n INT, x STRING)")
    first = int(sys.argv[2])
    threads = [threading.Thread(target=append, args=(first + i,)) for i in range(2)]
    for thread in threads:
        thread.start()
"""


def test_what_was_acknowledged_is_there_after_kill_9(directory):
    acknowledged: set[int] = set()
    for cycle in range(5):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), directory, 100_000 * cycle]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(40 + 17 * cycle)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines()
        process.wait()
        acknowledged |= {int(line) for line in lines if line.strip()}
        with warnings.catch_warnings():
            # A write that was interrupted may have been cut.
            warnings.simplefilter("ignore", lockstep.LockstepWarning)
            db = lockstep.connect(directory)
        with db:
            found = db.sql("SELECT n, x FROM t").fetchall()
        counts: dict[int, int] = {}
        for number, text in found:
            assert text == str(number)
            counts[number] = counts.get(number, 0) + 1
        assert set(counts.values()) == {3}, "an append is there as a whole or not at all"
        assert acknowledged <= set(counts)
        assert len(set(counts) - acknowledged) <= 2 * (cycle + 1), "what else was being written"


# Closing.


def test_a_closed_database_says_so(db_of_either_kind):
    db = db_of_either_kind
    db.append("t", [{"a": 1, "ts": 1}])
    db.execute("DEPLOY d AS SELECT a FROM t")
    relation, prepared = db.sql("SELECT a FROM t"), db.prepare("d")
    assert prepared((1, 1)) == {"a": 1}
    db.close()
    db.close()
    uses = [
        lambda: db.execute("SELECT 1"),
        lambda: db.sql("SELECT a FROM t"),
        lambda: relation.fetchall(),
        lambda: prepared((1, 1)),
        lambda: db.prepare("d"),
        lambda: db.request("d", (1, 1)),
        lambda: db.request("d", [{"a": 1, "ts": 1}]),
        lambda: db.request("d", pa.table({"a": [1], "ts": [1]})),
        lambda: db.verify("d"),
        lambda: db.append("t", [{"a": 1, "ts": 1}]),
        lambda: db.append("t", pd.DataFrame({"a": [1], "ts": [1]})),
        lambda: db.append("new", [{"a": 1}]),
        lambda: db.__enter__(),
    ]
    for use in uses:
        assert code_of(use, "was closed") == "08003"
    assert repr(db) == "<lockstep connection, closed>"


def test_an_exception_inside_with_closes(directory):
    with pytest.raises(ZeroDivisionError), lockstep.connect(directory) as db:
        db.append("t", [{"a": 1}])
        _ = 1 // 0
    with lockstep.connect(directory) as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]


def test_a_collected_connection_gives_the_directory_up(directory):
    db = lockstep.connect(directory)
    db.append("t", [{"a": 1}])
    del db
    gc.collect()
    with lockstep.connect(directory) as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]


def test_results_outlive_the_connection(directory):
    with lockstep.connect(directory) as db:
        db.append("t", [{"a": 1}])
        relation = db.sql("SELECT a FROM t").run()
    assert relation.fetchall() == [(1,)]


def test_calls_of_other_threads_end_when_the_database_is_closed(directory):
    db = lockstep.connect(directory)
    db.execute("CREATE TABLE t (a INT)")
    counts, failures = [0] * 4, []
    begun = threading.Barrier(5)

    def append(thread: int) -> None:
        begun.wait()
        try:
            while True:
                counts[thread] += db.append("t", [(1,)], durability="os")
        except lockstep.Error as error:
            failures.append(error.code)

    threads = [threading.Thread(target=append, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    while sum(counts) < 100:
        pass
    db.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert failures == ["08003"] * 4
    with lockstep.connect(directory) as db:
        assert len(db.sql("SELECT a FROM t")) == sum(counts)


def test_the_end_of_the_interpreter_closes(directory):
    done = run(
        """
        import sys, threading, lockstep

        db = lockstep.connect(sys.argv[1])
        db.append("t", [{"a": 0}], durability="memory")

        def append():
            try:
                while True:
                    db.append("t", [{"a": 1}], durability="os")
            except lockstep.Error as error:
                assert error.code == "08003", error

        for _ in range(3):
            threading.Thread(target=append, daemon=True).start()
        """,
        directory,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    with lockstep.connect(directory) as db:
        assert db.opened.cut_bytes == 0
        assert db.sql("SELECT a FROM t WHERE a = 0").fetchall() == [(0,)]


# Two users of one directory.


def test_a_directory_that_is_open_names_its_owner(directory):
    with lockstep.connect(directory):
        assert code_of(lambda: lockstep.connect(directory), str(os.getpid())) == "55006"
        done = run(
            """
            import sys, lockstep
            try:
                lockstep.connect(sys.argv[1])
            except lockstep.Error as error:
                print(error.code, error.message)
            """,
            directory,
        )
        assert done.stdout.startswith("55006 "), done.stderr
        assert str(os.getpid()) in done.stdout
    lockstep.connect(directory).close()


def test_a_reader_changes_nothing(directory):
    reader = lambda: lockstep.connect(directory, read_only=True)  # noqa: E731
    assert code_of(reader, "does not contain a database") == "58P01"
    assert not directory.exists()
    with lockstep.connect(directory) as db:
        db.append("t", [{"a": 1}])
    with lockstep.connect(directory, read_only=True) as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]
        for use in (
            lambda: db.append("t", [{"a": 2}]),
            lambda: db.append("u", [{"a": 2}]),
            lambda: db.execute("INSERT INTO t VALUES (2)"),
            lambda: db.execute("CREATE TABLE u (a INT)"),
            lambda: db.execute("SET GLOBAL statement_timeout = '1s'"),
            lambda: db.execute("DROP TABLE t"),
        ):
            assert code_of(use, "read.only") == "25006"
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]
    with lockstep.connect(directory) as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]


FORKED = """
    import gc, os, sys, lockstep

    db = lockstep.connect(sys.argv[1])
    db.append("t", [{"a": 1}])
    db.execute("DEPLOY d AS SELECT a FROM t")
    prepared, relation = db.prepare("d"), db.sql("SELECT a FROM t")
    child = os.fork()
    if child == 0:
        uses = [
            lambda: db.append("t", [{"a": 2}]),
            lambda: db.execute("INSERT INTO t VALUES (3)"),
            lambda: db.execute("CREATE TABLE u (a INT)"),
            lambda: prepared((1,)),
            lambda: relation.fetchall(),
        ]
        for use in uses:
            try:
                use()
                os._exit(1)
            except lockstep.Error as error:
                if error.code != "08003" or str(os.getppid()) not in error.message:
                    os._exit(2)
        if sys.argv[2] == "close":
            db.close()
        if sys.argv[2] == "drop":
            del db, prepared, relation, uses, use
            gc.collect()
        # Its own databases work.
        with lockstep.connect(sys.argv[1] + ".child") as own:
            own.append("t", [{"a": 9}])
        sys.exit(0) if sys.argv[2] == "exit" else os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    try:
        lockstep.connect(sys.argv[1])
        raise SystemExit("the lock is gone")
    except lockstep.Error as error:
        assert error.code == "55006"
    db.append("t", [{"a": 4}])
    assert db.sql("SELECT a FROM t").fetchall() == [(1,), (4,)]
    db.close()
    with lockstep.connect(sys.argv[1]) as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(1,), (4,)]
"""


@pytest.mark.parametrize("end", ["close", "drop", "exit", "nothing"])
def test_a_forked_child_has_no_part_in_a_directory(directory, end):
    done = run(FORKED, directory, end)
    assert done.returncode == 0, done.stderr
    with lockstep.connect(f"{directory}.child") as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(9,)]


def test_a_child_that_outlasts_its_parent_does_not_keep_the_directory_locked(directory):
    code = """
        import os, sys, lockstep
        db = lockstep.connect(sys.argv[1])
        db.append("t", [{"a": 1}])
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            sys.stdin.read()
            os._exit(0)
        os.kill(os.getpid(), 9)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(directory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        child = int(process.stdout.readline())
        process.wait(WAIT_S)
        os.kill(child, 0)
        with lockstep.connect(directory) as db:
            assert db.sql("SELECT a FROM t").fetchall() == [(1,)]
    finally:
        process.stdin.close()
        process.stdout.close()


# What cannot be opened.


def test_what_is_no_directory_of_a_database_is_refused(directory, tmp_path):
    file = tmp_path / "file"
    file.write_text("text")
    assert code_of(lambda: lockstep.connect(file), "not a directory").startswith(("42", "58", "22"))
    assert file.read_text() == "text"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    assert code_of(lambda: lockstep.connect(tmp_path / "full"), "full").startswith(("42", "58"))
    assert os.listdir(tmp_path / "full") == ["letter.txt"]
    assert code_of(lambda: lockstep.connect(tmp_path / "no" / "db"), "does not exist") == "58P01"
    assert code_of(lambda: lockstep.connect(""), "empty") == "22023"
    assert code_of(lambda: lockstep.connect(read_only=True), "in-memory database") == "22023"
    nobody = "lockstep://127.0.0.1:1"
    assert code_of(lambda: lockstep.connect(nobody), "cannot connect to") == "08001"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_refused(directory):
    lockstep.connect(directory).close()
    directory.chmod(0o500)
    try:
        (directory / "LOCK").chmod(0o400)
        code_of(lambda: lockstep.connect(directory), "is not writable")
    finally:
        directory.chmod(0o700)


def test_a_newer_format_is_refused(directory):
    with lockstep.connect(directory) as db:
        db.append("t", [{"a": 1}])
    (segment,) = sorted((directory / "log").glob("*.wal"))[:1]
    data = bytearray(segment.read_bytes())
    data[8:12] = struct.pack("<I", 7)
    data[12:16] = struct.pack("<I", crc32c(bytes(data[:12] + data[16:64])))
    segment.write_bytes(data)
    with pytest.raises(lockstep.Error, match="version 7") as caught:
        lockstep.connect(directory)
    assert caught.value.code == "58L02"
    assert segment.read_bytes() == data


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_cut_end_is_reported(directory):
    with lockstep.connect(directory) as db:
        db.append("t", [{"a": 1}])
    # As if the process had ended while it wrote the next record.
    segments = sorted((directory / "log").glob("*.wal"))
    segment = [path for path in segments if any(path.read_bytes()[64:104])][-1]
    data = bytearray(segment.read_bytes())
    end = len(bytes(data).rstrip(b"\0")) + 15 & ~7
    data[end : end + 8] = b"\x30\0\0\0\1\2\3\4"
    segment.write_bytes(data)
    with pytest.warns(lockstep.LockstepWarning, match=r"removed .* of an incomplete write .*\.wal"):
        db = lockstep.connect(directory)
    with db:
        assert db.opened.cut_bytes > 0 and db.opened.cut_file == str(segment)
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]


# Durability, passwords.


def test_the_levels_of_durability(db_of_either_kind):
    db = db_of_either_kind
    for level in ("disk", "os", "memory", None):
        assert db.append("t", [{"a": 1}], durability=level) == 1
        assert db.append("t", pa.table({"a": [1]}), durability=level) == 1
    expected = r"'quorum' \(expected 'disk', 'os' or 'memory'\)"
    rows, table = [{"a": 1}], pa.table({"a": [1]})
    for data, name in [(rows, "t"), (table, "t"), (rows, "new"), (table, "new")]:
        with pytest.raises(lockstep.Error, match=expected) as caught:
            db.append(name, data, durability="quorum")
        assert caught.value.code == "22023"
    assert code_of(lambda: db.sql("SELECT * FROM new"), "new") == "42P01"
    assert len(db.sql("SELECT a FROM t")) == 8


OTHER_MODE = (
    "invalid value for parameter `storage_mode`: 'tape' (expected 'memory', 'disk', 'ssd' or 'hdd')"
)


def mode_of(db: lockstep.Connection, table: str) -> str:
    [(_, statement)] = db.sql(f"SHOW CREATE TABLE {table}").fetchall()
    return statement.split("STORAGE_MODE='")[1].split("'")[0]


def test_an_append_creates_a_disk_table(directory, tmp_path):
    rows, table = [{"a": 1}], pa.table({"a": [1]})
    file = tmp_path / "rows.csv"
    file.write_text("a\n1\n")
    with lockstep.connect(directory) as db:
        for number, data in enumerate([rows, table, file]):
            name = f"t{number}"
            assert db.append(name, data, storage_mode="disk") == 1
            # It exists: it stays where it is.
            assert db.append(name, data, storage_mode="memory") == 1
            assert mode_of(db, name) == "disk"
            assert db.append(name, data, replace=True, storage_mode="memory") == 1
            assert mode_of(db, name) == "memory"
            assert db.append(name, data, replace=True, storage_mode="ssd") == 1
            assert mode_of(db, name) in ("disk", "ssd")
            refused = functools.partial(db.append, "new", data, storage_mode="tape")
            of_option = "option `storage_mode` must be one of memory, disk, ssd, hdd"
            message = of_option if data is file else OTHER_MODE
            assert code_of(refused, re.escape(message)) == ("42P16" if data is file else "22023")
        message = "only to a table that the call creates"
        calls = [
            lambda: db.append("t0", rows, create=False, storage_mode="disk"),
            lambda: db.append({"t0": rows}, storage_mode="disk"),
        ]
        for call in calls:
            assert code_of(call, message) == "0A000"
        assert ("new",) not in db.sql("SHOW TABLES").fetchall()
        db.execute("CHECKPOINT")
    with lockstep.connect(directory) as db:
        assert mode_of(db, "t0") in ("disk", "ssd")
        assert db.sql("SELECT a FROM t0").fetchall() == [(1,)]


def test_a_server_creates_a_disk_table(server):
    with lockstep.connect(f"lockstep://{server.flight}") as db:
        db.execute("CREATE DATABASE storage_modes")
        db.execute("USE storage_modes")
        for number, data in enumerate([[{"a": 1}], pa.table({"a": [1]})]):
            with warnings.catch_warnings(record=True):
                assert db.append(f"t{number}", data, storage_mode="disk") == 1
            assert mode_of(db, f"t{number}") == "disk"
            refused = functools.partial(db.append, "new", data, storage_mode="tape")
            assert code_of(refused, re.escape(OTHER_MODE)) == "22023"


def test_a_database_in_memory_warns_of_a_disk_table():
    with lockstep.connect() as db, pytest.warns(lockstep.LockstepWarning, match="no effect"):
        assert db.append("t", [{"a": 1}], storage_mode="disk") == 1


def test_passwords_are_nowhere(directory):
    with lockstep.connect(directory) as db:
        db.execute("SET @@execute_mode = 'offline'")
        db.execute("CREATE USER ann OPTIONS(password='hush1')")
        db.execute("ALTER USER ann SET OPTIONS(password='hush2')")
        wrong = [
            "CREATE USER ann OPTIONS(password='hush3')",
            "CREATE USER bob OPTIONS(pasword='hush4')",
            "CREATE USER bob OPTIONS(password=hush5)",
            "CREATE USER bob OPTIONS(password 'hush6')",
            "CREATE USER bob OPTIONS(password='hush7'",
            "ALTER USER bob SET OPTIONS(password='hush8')",
        ]
        for sql in wrong:
            with pytest.raises(lockstep.Error) as caught:
                db.execute(sql)
            assert "hush" not in str(caught.value) + repr(vars(caught.value))
        shows = ["SHOW USERS", "SHOW GRANTS FOR ann", "SHOW JOBS", "SHOW GLOBAL VARIABLES"]
        assert not any("hush" in repr(db.execute(show).fetchall()) for show in shows)
        assert ("ann", "true") in db.execute("SHOW USERS").fetchall()
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert any(b"SCRAM-SHA-256$4096:" in path.read_bytes() for path in files)
    assert not any(b"hush" in path.read_bytes() for path in files)
    with lockstep.connect(directory) as db:
        assert ("ann", "true") in db.execute("SHOW USERS").fetchall()
