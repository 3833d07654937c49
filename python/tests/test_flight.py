"""The server's Flight SQL, with clients of other makers: ADBC and pyarrow."""

from __future__ import annotations

import contextlib
import datetime
import signal
import socket
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest
from pyarrow import flight

import lockstep

dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
manager = pytest.importorskip("adbc_driver_manager")

ROWS = 500_000

REFUSED = (pa.ArrowException, flight.FlightError, NotImplementedError)


@pytest.fixture
def adbc(server):
    connection = dbapi.connect(f"grpc://{server.flight}", autocommit=True)
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS adbc")
        yield cursor
        for table in ("t", "made", "big"):
            cursor.execute(f"DROP TABLE IF EXISTS adbc.{table}")


def test_adbc_runs_statements(adbc):
    adbc.execute("CREATE TABLE adbc.t (a INT, b STRING, ts TIMESTAMP)")
    adbc.execute("INSERT INTO adbc.t VALUES (1, 'x', 1000), (2, NULL, 2000)")
    adbc.execute("SELECT a, b, ts FROM adbc.t ORDER BY a")
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1)
    later = datetime.datetime(1970, 1, 1, 0, 0, 2)
    assert adbc.fetchall() == [(1, "x", moment), (2, None, later)]
    adbc.execute("SHOW DATABASES")
    assert ("adbc",) in adbc.fetchall()
    adbc.execute("SELECT 1 AS a WHERE 1 = 2")
    assert adbc.fetchall() == []


def test_adbc_binds_parameters(adbc):
    adbc.execute("CREATE TABLE adbc.t (a INT, b STRING)")
    adbc.executemany("INSERT INTO adbc.t VALUES (?, ?)", [(n, f"row {n}") for n in range(20)])
    adbc.execute("SELECT b FROM adbc.t WHERE a > ? AND a < ? ORDER BY a", (16, 19))
    assert adbc.fetchall() == [("row 17",), ("row 18",)]


def test_adbc_ingests_and_reads_many_rows(adbc):
    table = pa.table({"k": pa.array(range(ROWS), pa.int64()), "v": pa.array([1.5] * ROWS)})
    assert adbc.adbc_ingest("big", table, mode="create", db_schema_name="adbc") == ROWS
    more = pa.table({"k": pa.array([7], pa.int64()), "v": pa.array([2.5])})
    assert adbc.adbc_ingest("big", more, mode="append", db_schema_name="adbc") == 1
    with pytest.raises(manager.Error):
        adbc.adbc_ingest("big", more, mode="create", db_schema_name="adbc")
    adbc.execute("SELECT k, v FROM adbc.big")
    read = adbc.fetch_arrow_table()
    assert read.num_rows == ROWS + 1
    assert sorted(read["k"].to_pylist())[-1] == ROWS - 1
    wrong = pa.table({"k": pa.array(["x"]), "v": pa.array([2.5])})
    with pytest.raises(manager.Error):
        adbc.adbc_ingest("big", wrong, mode="append", db_schema_name="adbc")
    adbc.execute("SELECT count(*) AS n FROM adbc.big")
    assert adbc.fetchall() == [(ROWS + 1,)]


def test_adbc_reads_the_catalog(server, adbc):
    adbc.execute("CREATE TABLE adbc.t (a INT, b STRING)")
    with dbapi.connect(f"grpc://{server.flight}", autocommit=True) as connection:
        assert connection.adbc_get_info()["vendor_name"] == "Lockstep"
        assert connection.adbc_get_table_types() == ["SYSTEM TABLE", "TABLE", "VIEW"]
        objects = connection.adbc_get_objects(depth="all", db_schema_filter="adbc")
        catalogs = objects.read_all().to_pylist()
        assert [catalog["catalog_name"] for catalog in catalogs] == ["lockstep"]
        [schema] = catalogs[0]["catalog_db_schemas"]
        [table] = [one for one in schema["db_schema_tables"] if one["table_name"] == "t"]
        names = [column["column_name"] for column in table["table_columns"]]
        assert names == ["a", "b"]
        found = connection.adbc_get_table_schema("t", db_schema_filter="adbc")
        assert found.field("a").type == pa.int32()


def test_adbc_errors_have_a_code_and_a_reason(adbc):
    with pytest.raises(manager.Error, match="42P01") as error:
        adbc.execute("SELECT a FROM adbc.missing")
    assert "missing" in str(error.value)
    with pytest.raises(manager.Error, match="42601"):
        adbc.execute("SELEC 1")


def test_adbc_says_that_there_are_no_transactions(server):
    with pytest.warns(match="autocommit"):
        connection = dbapi.connect(f"grpc://{server.flight}")
    connection.close()


def test_adbc_logs_in_and_its_session_lasts(server):
    root = lockstep.connect(f"lockstep://{server.flight}")
    del root
    options = {"username": "root", "password": "any: it is not read here"}
    connection = dbapi.connect(f"grpc://{server.flight}", db_kwargs=options, autocommit=True)
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS adbc")
        cursor.execute("CREATE TABLE adbc.session_t (a INT)")
        cursor.execute("USE adbc")
        cursor.execute("SELECT a FROM session_t")
        assert cursor.fetchall() == []
        cursor.execute("DROP TABLE session_t")


def test_pyarrow_speaks_flight(server):
    client = flight.FlightClient(f"grpc://{server.flight}")
    names = {action.type for action in client.list_actions()}
    assert {"CreatePreparedStatement", "CloseSession", "lockstep.request"} <= names
    with pytest.raises(NotImplementedError):
        list(client.list_flights())
    for command in (b"", b"\xff\xff", b"\x0a\x03abc", bytes(range(256))):
        descriptor = flight.FlightDescriptor.for_command(command)
        with pytest.raises(REFUSED):
            client.get_flight_info(descriptor)
        with pytest.raises(REFUSED):
            client.do_get(flight.Ticket(command)).read_all()
        with pytest.raises(REFUSED):
            list(client.do_action(flight.Action("lockstep.append", command)))
    for name in sorted(names):
        for body in (b"", b"\xff\xff\xff", bytes(range(256)) * 10):
            with contextlib.suppress(*REFUSED):
                list(client.do_action(flight.Action(name, body)))
    assert lockstep.connect(f"lockstep://{server.flight}").execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) * 3,
        bytes(range(256)) * 40,
        b"",
    ],
)
def test_bytes_that_are_no_grpc_harm_nobody(server, sent):
    host, port = server.flight.rsplit(":", 1)
    # The server may close the connection before everything is sent.
    address = (host, int(port))
    with socket.create_connection(address, timeout=30) as stream, contextlib.suppress(OSError):
        stream.sendall(sent)
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(4096):
            pass
    assert lockstep.connect(f"lockstep://{server.flight}").execute("SELECT 1").fetchall() == [(1,)]


def test_ctrl_c_cancels_on_the_server(server):
    script = f"""
import lockstep, pyarrow as pa
db = lockstep.connect("lockstep://{server.flight}")
db.execute("CREATE DATABASE IF NOT EXISTS slow")
db.execute("USE slow")
db.execute("DROP TABLE IF EXISTS t")
db.append("t", pa.table({{"v": pa.array(range(200_000), pa.int64())}}))
print("ready", flush=True)
try:
    db.execute("SELECT count(*) AS n FROM t AS a JOIN t AS b ON a.v + b.v < 0")
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(db.execute("SELECT 1").fetchall(), flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    watcher = lockstep.connect(f"lockstep://{server.flight}")

    def running() -> int:
        rows = watcher.execute(
            "SELECT count(*) AS n FROM lockstep.sessions WHERE running_since IS NOT NULL"
        )
        return rows.fetchall()[0][0]

    # The watcher's own statement runs, too.
    deadline = time.monotonic() + 60
    while running() < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert child.stdout.readline() == "[(1,)]\n"
    assert child.wait(60) == 0
    while running() > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running() == 1


def test_many_threads_share_a_connection(server):
    db = lockstep.connect(f"lockstep://{server.flight}")
    found = []

    def ask(number: int) -> None:
        for _ in range(10):
            found.append(db.execute(f"SELECT {number} AS n").fetchall()[0][0] == number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80 and all(found)


def test_what_is_not_for_a_server_is_refused(server):
    url = f"lockstep://{server.flight}"
    for wrong in ({"read_only": True}, {"max_memory": "1GB"}, {"progress": print}):
        with pytest.raises(lockstep.Error, match="does not apply to a server"):
            lockstep.connect(url, **wrong)
    with pytest.raises(lockstep.Error, match="require a server address"):
        lockstep.connect(tls=True)
    with pytest.raises(lockstep.Error) as error:
        lockstep.connect("lockstep://127.0.0.1:1")
    assert error.value.code == "08001"
    with pytest.raises(lockstep.Error) as error:
        lockstep.connect("lockstep://user:secret@")
    assert error.value.code == "22023" and "secret" not in str(error.value)


def test_closing_ends_the_session(server):
    db = lockstep.connect(f"lockstep://{server.flight}")
    with db:
        assert db.opened is None
    with pytest.raises(lockstep.Error) as error:
        db.execute("SELECT 1")
    assert error.value.code == "08003"


def test_the_shell_speaks_to_a_server(server):
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "lockstep", *arguments]
        return subprocess.run(program, capture_output=True, text=True, timeout=60)

    url = f"lockstep://{server.flight}"
    done = run("-c", "SELECT 1 AS a; SELECT 'x' AS b", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "(1 row" in done.stdout and "x" in done.stdout
    failed = run("-c", "SELECT 1 AS a; SELECT nothing", url)
    assert failed.returncode == 1
    assert "error[42703]" in failed.stderr and "^" in failed.stderr
    absent = run("-c", "SELECT 1", "lockstep://127.0.0.1:1")
    assert absent.returncode == 1 and "08001" in absent.stderr
