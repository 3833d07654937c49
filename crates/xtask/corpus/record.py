"""Records the conversations that `cargo xtask fuzz` changes: what real clients send to a server.

    python record.py path/to/lockstep

Needs curl, psql, psycopg, asyncpg if it is there, pyarrow and adbc_driver_flightsql. The tables are
those of crates/xtask/src/fuzz/sessions.rs.
"""

import io
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).parent
SESSIONS = HERE.parent / "src" / "fuzz" / "sessions.rs"


class Proxy:
    """Passes connections on to a server, and keeps what clients send."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()[1]
        self.sent: list[bytearray] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.port))
            kept = bytearray()
            self.sent.append(kept)
            for source, target, keep in [(client, server, kept), (server, client, None)]:
                threading.Thread(target=self.copy, args=(source, target, keep), daemon=True).start()

    @staticmethod
    def copy(source: socket.socket, target: socket.socket, keep: bytearray | None) -> None:
        try:
            while part := source.recv(65536):
                if keep is not None:
                    keep += part
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def record(protocol: str, name: str, port: int, use) -> None:
    proxy = Proxy(port)
    use(proxy.address)
    folder = HERE / protocol
    folder.mkdir(exist_ok=True)
    sent = [bytes(kept) for kept in proxy.sent if kept]
    for number, kept in enumerate(sent):
        suffix = f"-{number}" if len(sent) > 1 else ""
        (folder / f"{name}{suffix}.bin").write_bytes(kept)


def run(*arguments: str, **options) -> None:
    done = subprocess.run(arguments, capture_output=True, timeout=60, **options)
    print(arguments[0], done.returncode, done.stdout[-200:], done.stderr[-300:])


def arrow_body() -> bytes:
    import pyarrow

    rows = pyarrow.table({
        "k": ["a", None], "v": [1, 2], "d": [0.5, None],
        "ts": pyarrow.array([1, 2], pyarrow.timestamp("ms")),
    })
    body = io.BytesIO()
    with pyarrow.ipc.new_stream(body, rows.schema) as writer:
        writer.write_table(rows)
    return body.getvalue()


def http(port: int) -> None:
    arrow = "application/vnd.apache.arrow.stream"
    with tempfile.NamedTemporaryFile() as body:
        body.write(arrow_body())
        body.flush()
        file = f"@{body.name}"
        calls = {
            "row": ["/v1/deployments/features", "-d", '{"k":"a","v":3,"d":0.25,"ts":5}'],
            "rows": ["/v1/deployments/features", "-d", '[["a",3,0.25,5],["b",null,1e300,"2020-01-01"]]'],
            "rows-arrow": ["/v1/deployments/plain", "--data-binary", file, "-H", f"Content-Type: {arrow}"],
            "append": ["/v1/tables/t?durability=memory", "-d", '[{"k":"c","v":-1,"d":null,"ts":9}]'],
            "append-lines": ["/v1/tables/t", "-H", "Content-Type: application/x-ndjson", "-H",
                             "X-Request-Id: some-id", "--data-binary",
                             '{"k":"c","v":1,"d":0,"ts":9}\n["d",2,"NaN",10]\n'],
            "append-csv": ["/v1/tables/u", "-H", "Content-Type: text/csv", "--data-binary",
                           'k,v,d,ts\n"a ""b""",1,0.5,7\n,,,8\n'],
            "append-arrow": ["/v1/tables/t", "--data-binary", file, "-H", f"Content-Type: {arrow}"],
            "sql": ["/v1/sql?timeout_ms=2000", "-d",
                    '{"sql":"SELECT k, v FROM t WHERE v > ? AND k = ?","parameters":[0,"fixed"]}'],
            "sql-csv": ["/v1/sql", "-H", "Accept: text/csv", "-d", '{"sql":"SELECT * FROM t"}'],
            "sql-arrow": ["/v1/sql", "-H", f"Accept: {arrow}", "-d", '{"sql":"SELECT * FROM u; SHOW TABLES"}'],
            "openmldb": ["/dbs/default/deployments/features", "-d",
                         '{"input": [["a", 3, 0.25, 5]], "need_schema": true}'],
            "openmldb-put": ["/dbs/default/tables/t", "-X", "PUT", "-d", '{"value": [["a", 3, 0.25, 5]]}'],
            "openmldb-sql": ["/dbs/default", "-d",
                             '{"mode": "online", "sql": "SELECT v FROM t WHERE k = ?", '
                             '"input": {"schema": ["String"], "data": ["fixed"]}}'],
        }
        for name, (path, *rest) in calls.items():
            for version, flag in [("1", "--http1.1"), ("2", "--http2-prior-knowledge")]:
                def use(at: int, path=path, rest=rest, flag=flag) -> None:
                    run("curl", "-s", flag, "-u", "app:secret", f"http://127.0.0.1:{at}{path}", *rest)
                record("http", f"{name}-{version}", port, use)
        several = [f"http://127.0.0.1:{{at}}/{path}" for path in ("healthz", "metrics", "openapi.json", "")]
        record("http", "several", port,
               lambda at: run("curl", "-s", *[url.format(at=at) for url in several]))
        chunked = ["-H", "Transfer-Encoding: chunked", "-d", '["a",3,0.25,5]']
        record("http", "chunked", port, lambda at: run(
            "curl", "-s", f"http://127.0.0.1:{at}/v1/deployments/features", *chunked))


def postgres(port: int) -> None:
    def psql(at: int, script: str) -> None:
        run("psql", f"host=127.0.0.1 port={at} user=root dbname=default sslmode=prefer", "-v",
            "ON_ERROR_STOP=0", input=script.encode())

    scripts = {
        "psql": "SELECT k, v, d, ts FROM t;\n\\d\n\\d t\n\\df\nSELECT * FROM features(k => 'a', v => 1, d => 0.5, ts => 1);\n",
        "psql-copy": "COPY t FROM STDIN;\na\t1\t0.5\t1970-01-01 00:00:01\n\\N\t\\N\t\\N\t\\N\n\\.\nCOPY t TO STDOUT WITH (FORMAT csv, HEADER);\n",
        "psql-script": "BEGIN; INSERT INTO t VALUES ('z', 1, 2, 3); SELECT 1 AS a; COMMIT;\nSELECT nothing;\nSET time_zone = 'UTC';\n",
    }
    for name, script in scripts.items():
        record("postgres", name, port, lambda at, script=script: psql(at, script))

    import psycopg

    def connected(use):
        def run_it(at: int) -> None:
            url = f"host=127.0.0.1 port={at} user=root dbname=default"
            with psycopg.connect(url, autocommit=True) as connection:
                use(connection)
        return run_it

    def extended(connection) -> None:
        for binary in (False, True):
            cursor = connection.cursor(binary=binary)
            for value in (1, 2, 3, 4, 5, 6):
                cursor.execute("SELECT k, v, d, ts FROM t WHERE v >= %s AND k = %s", (value, "fixed"),
                               prepare=True)
                cursor.fetchall()
        connection.execute("INSERT INTO u VALUES (%s, %s, %s, %s)", ("k", 1, None, 7))
        connection.execute("SELECT * FROM plain(k => %s, v => %s, d => %s, ts => 5)", ("a", 1, 0.5))

    def copying(connection) -> None:
        cursor = connection.cursor()
        with cursor.copy("COPY t FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["text", "int8", "float8", "timestamp"])
            import datetime
            for number in range(4):
                copy.write_row(("a", number, 0.5, datetime.datetime(2020, 1, 1)))
        with cursor.copy("COPY (SELECT k, v FROM t) TO STDOUT (FORMAT binary)") as copy:
            for _ in copy:
                pass
        with cursor.copy("COPY u (k, v) FROM STDIN (FORMAT csv)") as copy:
            copy.write('"a,b",1\n,2\n')

    def pipelined(connection) -> None:
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::bigint AS a", (number,)) for number in range(4)]
            connection.execute("INSERT INTO t VALUES ('p', 1, 2, 3)")
        for cursor in cursors:
            cursor.fetchall()

    def portal(connection) -> None:
        with connection.transaction(), connection.cursor(name="c") as cursor:
            cursor.itersize = 1
            cursor.execute("SELECT k, v FROM t")
            cursor.fetchmany(1)

    for name, use in {"psycopg": extended, "psycopg-copy": copying, "psycopg-pipeline": pipelined}.items():
        record("postgres", name, port, connected(use))
    try:
        record("postgres", "psycopg-cursor", port, connected(portal))
    except psycopg.Error as error:
        print("no cursor:", error)


def flight(port: int) -> None:
    import adbc_driver_flightsql.dbapi as adbc
    import pyarrow

    def adbc_use(at: int) -> None:
        with adbc.connect(f"grpc://127.0.0.1:{at}") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT k, v, d, ts FROM t")
            cursor.fetchall()
            cursor.execute("SELECT k FROM t WHERE v > ?", (0,))
            cursor.fetchall()
            connection.adbc_get_objects().read_all()
            connection.adbc_get_table_types()
            rows = pyarrow.table({"k": ["a"], "v": [1], "d": [0.5],
                                  "ts": pyarrow.array([5], pyarrow.timestamp("ms"))})
            cursor.adbc_ingest("t", rows, mode="append")

    record("flight", "adbc", port, adbc_use)

    from pyarrow import flight as arrow_flight

    def any_message(name: str, body: bytes) -> bytes:
        url = f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()
        return b"\x0a" + bytes([len(url)]) + url + b"\x12" + bytes([len(body)]) + body

    def text(number: int, value: str) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value.encode()

    def pyarrow_use(at: int) -> None:
        client = arrow_flight.FlightClient(f"grpc://127.0.0.1:{at}")
        commands = {
            "CommandStatementQuery": text(1, "SELECT k, sum(v) AS s FROM t GROUP BY k"),
            "CommandGetTables": b"\x28\x01" + text(3, "%"),
            "CommandGetDbSchemas": b"",
            "CommandGetCatalogs": b"",
            "CommandGetSqlInfo": b"",
            "CommandGetXdbcTypeInfo": b"",
            "CommandGetPrimaryKeys": text(3, "t"),
        }
        for name, body in commands.items():
            descriptor = arrow_flight.FlightDescriptor.for_command(any_message(name, body))
            info = client.get_flight_info(descriptor)
            client.do_get(info.endpoints[0].ticket).read_all()
        rows = pyarrow.table({"k": ["a"], "v": [1], "d": [0.5],
                              "ts": pyarrow.array([5], pyarrow.timestamp("ms"))})
        ingest = any_message("CommandStatementIngest", text(2, "u"))
        writer, _ = client.do_put(arrow_flight.FlightDescriptor.for_command(ingest), rows.schema)
        writer.write_table(rows)
        writer.done_writing()
        writer.close()
        list(client.do_action(("CreatePreparedStatement", any_message(
            "ActionCreatePreparedStatementRequest", text(1, "SELECT v FROM t WHERE k = ?")))))
        list(client.list_actions())
        client.close()

    record("flight", "pyarrow", port, pyarrow_use)


def main() -> None:
    binary = sys.argv[1]
    tables = re.search(r'TABLES: &str = "(.*?)";\n', SESSIONS.read_text(), re.S).group(1)
    for protocol in ("http", "postgres", "flight"):
        shutil.rmtree(HERE / protocol, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        directory = f"{folder}/recorded.lockstep"
        run(binary, "-c", tables, directory)
        arguments = [binary, "serve", directory, "--set", "server.authentication=none"]
        for name in ("http", "postgres", "flight"):
            arguments += ["--set", f"{name}.listen=127.0.0.1:0"]
        server = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        ports = []
        for line in server.stdout:
            if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                ports.append(int(found.group(1)))
            if len(ports) == 3:
                break
        try:
            http(ports[0])
            postgres(ports[1])
            flight(ports[2])
        finally:
            server.terminate()
            server.wait()


main()
