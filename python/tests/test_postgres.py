"""Clients of PostgreSQL against a served directory: psql, psycopg, asyncpg, SQLAlchemy, pandas.

Each is left out where it is not installed; `make test` installs all but psql.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import pty
import select
import shutil
import signal
import subprocess

import pytest

UTC = datetime.timezone.utc
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def port(served):
    """The port of a server with two tables and a deployment."""
    return served.postgres_port


def psql(port: int, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(port), "-U", "root", *arguments]
    environment = {**os.environ, "PGCONNECT_TIMEOUT": "20", "PAGER": ""}
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, env=environment
    )


needs_psql = pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")


@pytest.mark.client("psql", "statements and errors")
@needs_psql
def test_psql_runs_statements_and_shows_errors(port):
    done = psql(port, "-At", "-c", "SELECT user, price, ts FROM orders WHERE user = 'ann'")
    assert done.stdout == "ann|1.5|2024-01-01 11:30:00+00\n", done.stderr
    call = "SELECT * FROM total('ann', 2, '2024-01-01 12:00:00', NULL, NULL)"
    assert psql(port, "-At", "-c", call).stdout == "ann|3.5\n"
    failed = psql(port, "-c", "SELECT pric FROM orders")
    assert failed.returncode == 1
    assert "LINE 1: SELECT pric FROM orders\n               ^" in failed.stderr
    assert "HINT:  Did you mean `price`?" in failed.stderr


@pytest.mark.client("psql", "\\copy")
@needs_psql
def test_psql_copies_files(port, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('user,price\n\'x,1\n"y,z",\n')
    assert psql(port, "-c", "CREATE TABLE copied (user STRING, price DOUBLE)").returncode == 0
    done = psql(port, "-c", f"\\copy copied FROM '{path}' CSV HEADER")
    assert done.stdout == "COPY 2\n", done.stderr
    out = psql(port, "-c", "\\copy (SELECT * FROM copied) TO STDOUT CSV HEADER")
    assert out.stdout == 'user,price\n\'x,1\n"y,z",\n'


@pytest.mark.client("psql", "SUBSCRIBE as COPY, cancelled with Ctrl+C")
@needs_psql
def test_psql_subscribes_until_it_is_interrupted(port):
    assert psql(port, "-c", "CREATE TABLE heard (n INT)").returncode == 0
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(port), "-U", "root"]
    # On a terminal psql prints each row at once.
    terminal, printed = pty.openpty()
    subscribed = subprocess.Popen(
        [*command, "-c", "COPY (SUBSCRIBE TO heard) TO STDOUT"],
        stdout=printed,
        stderr=subprocess.PIPE,
        text=True,
    )
    numbers = []
    for number in range(100):
        assert psql(port, "-c", f"INSERT INTO heard VALUES ({number})").returncode == 0
        while select.select([terminal], [], [], 0.3)[0]:
            numbers += [int(line) for line in os.read(terminal, 1 << 16).split()]
        if len(numbers) >= 3:
            break
    assert numbers == list(range(numbers[0], number + 1))
    subscribed.send_signal(signal.SIGINT)
    _, errors = subscribed.communicate(timeout=60)
    assert "ERROR:  the statement was cancelled" in errors
    os.close(terminal)
    os.close(printed)


@pytest.mark.client("psql", "what \\d and the like list")
@needs_psql
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("\\d", " orders"),
        ("\\dt", " numbers"),
        ("\\dt ord*", "public | orders | table | root"),
        ("\\di", "| index | root  | orders"),
        ("\\df", "TABLE(user text, spent double precision)"),
        ("\\dn", " public | root"),
        ("\\du", " root      | Superuser"),
        ("\\d+ numbers", " number | integer |"),
        ("\\dt+", "| permanent   | memory"),
        ("\\di+ *", "| orders"),
        ("\\df+", "| SELECT user, sum(price) OVER w AS spent"),
        ("\\df total", "ok boolean, day date"),
        ("\\sf total", "RETURNS TABLE(user text"),
        ("\\dn+", " public "),
        ("\\dT int4", " integer |"),
        ("\\dx", "(0 rows)"),
        ("\\dv", ""),
        ("\\ds", ""),
        ("\\dp", " public | numbers"),
        ("\\db", "pg_default"),
        ("\\dd", ""),
        ("\\dC", ""),
        ("\\do", ""),
        ("\\l+", "UTF8"),
        ("\\conninfo", "You are connected"),
        ("\\l", " default "),
        ("\\d orders", " ts     | timestamp with time zone |"),
        ("\\d+ orders", '"index0" memory (user, ts)'),
        ("\\d nothing", ""),
    ],
)
def test_psql_describes(port, command, expected):
    done = psql(port, "-P", "pager=off", "-c", command)
    assert "ERROR" not in done.stderr, done.stderr
    assert expected in done.stdout, done.stdout


@pytest.mark.client("psycopg", "statements in text and binary")
def test_psycopg(port):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(host="127.0.0.1", port=port, user="root", dbname="default") as db:
        cursor = db.cursor()
        sql = "SELECT user, price, ts, ok, day FROM orders WHERE user = %s AND price > %s LIMIT %s"
        row = ("ann", 1.5, NOON - datetime.timedelta(minutes=30), True, datetime.date(2020, 1, 1))
        assert cursor.execute(sql, ("ann", 1, 10)).fetchall() == [row]
        binary = db.cursor(binary=True)
        assert binary.execute(sql, ("ann", 1, 10)).fetchall() == [row]
        call = "SELECT spent FROM total(user => %s, price => %s, ts => %s, ok => %s, day => %s)"
        assert cursor.execute(call, ("ann", 2.5, NOON, True, None)).fetchone() == (4.0,)
        odd = "o'b\\x\n\"é"
        cursor.execute("INSERT INTO orders (user, price, ts) VALUES (%s, %s, %s)", (odd, 7, NOON))
        assert cursor.execute("SELECT user FROM orders WHERE price = 7").fetchone() == (odd,)
        with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
            cursor.execute("SELECT nothing FROM orders")
        assert caught.value.diag.statement_position == "8"
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            cursor.execute("SELECT 1")
        db.rollback()
        assert cursor.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.client("psycopg", "COPY and pipelines")
def test_psycopg_copies_and_pipelines(port):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(host="127.0.0.1", port=port, user="root", autocommit=True) as db:
        db.execute("CREATE TABLE bulk (user STRING, price DOUBLE, ts TIMESTAMP)")
        with db.cursor().copy("COPY bulk FROM STDIN") as copy:
            for number in range(1_000):
                copy.write_row((f"u{number}", number / 2, NOON))
        with db.cursor().copy("COPY bulk (user, price) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["text", "float8"])
            copy.write_row(("binary", 0.25))
        with db.cursor().copy("COPY (SELECT * FROM bulk) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["text", "float8", "timestamptz"])
            rows = list(copy.rows())
        assert len(rows) == 1_001
        assert ("u3", 1.5, NOON) in rows and ("binary", 0.25, None) in rows
        with db.pipeline():
            cursors = [db.execute("SELECT %s + 1", (number,)) for number in range(20)]
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(1, 21))


@pytest.mark.client("psycopg", "subscriptions")
def test_psycopg_follows_a_table(port):
    psycopg = pytest.importorskip("psycopg")
    address = f"host=127.0.0.1 port={port} user=root"
    follow = "SUBSCRIBE TO followed OPTIONS(start='earliest')"
    with (
        psycopg.connect(address, autocommit=True) as writer,
        psycopg.connect(address, autocommit=True) as reader,
    ):
        writer.execute("CREATE TABLE followed (a INT, b STRING)")
        writer.execute("INSERT INTO followed VALUES (1, 'x')")
        rows = reader.cursor().stream(follow)
        assert next(rows) == (1, "x")
        writer.execute("INSERT INTO followed VALUES (2, NULL)")
        assert next(rows) == (2, None)
        reader.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            next(rows)
        with reader.cursor().copy(f"COPY ({follow}) TO STDOUT") as copy:
            copied = copy.rows()
            assert [next(copied), next(copied)] == [("1", "x"), ("2", None)]
            reader.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                next(copied)
        assert reader.execute("SELECT count(*) FROM followed").fetchone() == (2,)


def test_copy_takes_a_backslash_as_the_escape_of_csv(port):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(f"host=127.0.0.1 port={port} user=root", autocommit=True) as db:
        db.execute("CREATE TABLE escaped (a INT, t STRING)")
        options = "(FORMAT csv, ESCAPE '\\')"
        with db.cursor().copy(f"COPY escaped FROM STDIN {options}") as copy:
            copy.write(b'1,"say \\"hi\\""\n2,\n3,""\n')
        rows = [(1, 'say "hi"'), (2, None), (3, "")]
        assert db.execute("SELECT a, t FROM escaped ORDER BY a").fetchall() == rows
        with db.cursor().copy(f"COPY (SELECT a, t FROM escaped) TO STDOUT {options}") as copy:
            assert b"".join(copy) == b'1,"say \\"hi\\""\n2,\n3,""\n'
        with pytest.raises(psycopg.Error, match='COPY delimiter cannot be "n"'):
            db.execute("COPY escaped FROM STDIN (DELIMITER 'n')")


@pytest.mark.client("asyncpg", "statements, COPY, cursors")
def test_asyncpg(port):
    asyncpg = pytest.importorskip("asyncpg")

    async def run():
        db = await asyncpg.connect(host="127.0.0.1", port=port, user="root", database="default")
        sql = "SELECT user, price, ts FROM orders WHERE price > $1 AND user = $2"
        found = await db.fetch(sql, 1.0, "ann")
        assert [tuple(row) for row in found] == [
            ("ann", 1.5, NOON - datetime.timedelta(minutes=30))
        ]
        call = "SELECT * FROM total($1, $2, $3, $4, $5)"
        for price in (1.0, 2.5):
            answer = await db.fetchrow(call, "ann", price, NOON, True, None)
            assert tuple(answer) == ("ann", 1.5 + price)
        await db.execute("CREATE TABLE rows (user STRING, price DOUBLE)")
        await db.executemany("INSERT INTO rows VALUES ($1, $2)", [("a", 1.0), ("b", 2.0)])
        assert await db.copy_records_to_table("rows", records=[("c", None)]) == "COPY 1"
        async with db.transaction():
            names = [row["user"] async for row in db.cursor("SELECT user FROM rows", prefetch=2)]
        assert sorted(names) == ["a", "b", "c"]
        with pytest.raises(asyncpg.UndefinedColumnError):
            await db.fetch("SELECT nothing FROM rows")
        await db.close()

    asyncio.run(run())


@pytest.mark.client("SQLAlchemy", "inspector and statements")
def test_sqlalchemy_reads_the_catalogs(port):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://root@127.0.0.1:{port}/default")
    inspector = sqlalchemy.inspect(engine)
    assert "orders" in inspector.get_table_names()
    assert inspector.get_schema_names()
    found = inspector.get_columns("orders")
    columns = {column["name"]: str(column["type"]) for column in found}
    assert columns == {
        "user": "TEXT",
        "price": "DOUBLE PRECISION",
        "ts": "TIMESTAMP",
        "ok": "BOOLEAN",
        "day": "DATE",
    }
    typed = [sqlalchemy.column(column["name"], column["type"]) for column in found]
    table = sqlalchemy.table("orders", *typed)
    with engine.begin() as db:
        query = sqlalchemy.select(table.c.user).where(table.c.user == "ann").limit(1)
        assert db.execute(query).all() == [("ann",)]
        rows = [{"user": user, "price": 9.0, "ts": NOON} for user in ("sa", "sb")]
        db.execute(table.insert(), rows)
        count = sqlalchemy.text("SELECT count(*) FROM orders WHERE price = :price")
        assert db.execute(count, {"price": 9.0}).scalar() == 2


@pytest.mark.client("pandas", "read_sql")
def test_pandas_reads_rows(port):
    pandas = pytest.importorskip("pandas")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://root@127.0.0.1:{port}/default")
    frame = pandas.read_sql("SELECT user, price FROM orders WHERE user = 'ann'", engine)
    assert frame.to_dict("records") == [{"user": "ann", "price": 1.5}]


@pytest.mark.client("SQLAlchemy", "reflection (autoload_with)")
def test_sqlalchemy_reflects_tables(port):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://root@127.0.0.1:{port}/default")
    table = sqlalchemy.Table("orders", sqlalchemy.MetaData(), autoload_with=engine)
    inspector = sqlalchemy.inspect(engine)
    found = [
        [(column.name, str(column.type), column.nullable) for column in table.columns],
        [[column.name for column in index.columns] for index in table.indexes],
        inspector.get_pk_constraint("orders")["constrained_columns"],
        inspector.get_foreign_keys("orders"),
        inspector.get_unique_constraints("orders"),
        inspector.get_check_constraints("orders"),
        inspector.get_table_comment("orders"),
        inspector.get_view_names(),
        inspector.get_sequence_names(),
        inspector.get_schema_names(),
        inspector.has_table("orders"),
        inspector.has_table("nothing"),
    ]
    columns = [
        ("user", "TEXT", False),
        ("price", "DOUBLE PRECISION", True),
        ("ts", "TIMESTAMP", True),
        ("ok", "BOOLEAN", True),
        ("day", "DATE", True),
    ]
    schemas = ["information_schema", "public"]
    empty: list[object] = []
    expected = [columns, [["user", "ts"]], empty, empty, empty, empty, {"text": None}]
    assert found == [*expected, empty, empty, schemas, True, False]


@pytest.mark.client("SQLAlchemy", "reflection of a whole database")
def test_sqlalchemy_reflects_a_database(port):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://root@127.0.0.1:{port}/default")
    metadata = sqlalchemy.MetaData()
    # The statements are prepared when they come again and again.
    for _ in range(7):
        metadata.clear()
        metadata.reflect(engine)
    assert {"orders", "numbers"} <= set(metadata.tables)
    with engine.connect() as db:
        numbers = metadata.tables["numbers"]
        rows = db.execute(sqlalchemy.select(numbers).where(numbers.c.number < 3))
        assert sorted(rows) == [(1,), (2,)]


@pytest.mark.client("asyncpg", "pools, replaced deployments")
def test_asyncpg_gives_connections_back_and_follows_deployments(port):
    asyncpg = pytest.importorskip("asyncpg")

    async def run():
        where = {"host": "127.0.0.1", "port": port, "user": "root", "database": "default"}
        async with asyncpg.create_pool(**where, min_size=1, max_size=1) as pool:
            for _ in range(2):
                assert await pool.fetchval("SELECT 1") == 1
            deploy = (
                "DEPLOY OR REPLACE replaced AS SELECT {} OVER w AS found FROM orders WINDOW w AS "
                "(PARTITION BY user ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
            )
            call = "SELECT found FROM replaced(user => 'nobody', price => 1.5, ts => $1)"
            async with pool.acquire() as db:
                await db.execute(deploy.format("sum(price)"))
                assert await db.fetchval(call, NOON) == 1.5
                await db.execute(deploy.format("count(price)"))
                # The driver prepares the call again where the server says that it has other types.
                assert await db.fetchval(call, NOON) == 1
                await db.execute("DROP DEPLOYMENT replaced")

    asyncio.run(run())


@pytest.mark.client("asyncpg", "types that it looks up")
def test_asyncpg_looks_types_up(port):
    asyncpg = pytest.importorskip("asyncpg")

    async def run():
        db = await asyncpg.connect(host="127.0.0.1", port=port, user="root", database="default")
        found = await db.fetchrow("SELECT proallargtypes FROM pg_proc WHERE proname = 'total'")
        assert found["proallargtypes"] == [25, 701, 1184, 16, 1082, 25, 701]
        statement = await db.prepare("SELECT relname FROM pg_class WHERE oid = ANY($1::oid[])")
        tables = await db.fetch("SELECT oid, relname FROM pg_class WHERE relkind = $1", "r")
        numbers = [row["oid"] for row in tables]
        assert sorted(row[0] for row in await statement.fetch(numbers)) == sorted(
            row["relname"] for row in tables
        )
        await db.reload_schema_state()
        await db.close()

    asyncio.run(run())


@pytest.mark.client("pandas", "to_sql and read_sql_table")
def test_pandas_writes_rows(port):
    pandas = pytest.importorskip("pandas")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://root@127.0.0.1:{port}/default")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE frames (name STRING, price DOUBLE)"))
    frame = pandas.DataFrame({"name": ["a", "b"], "price": [1.5, None]})
    frame.to_sql("frames", engine, if_exists="append", index=False)
    found = pandas.read_sql_table("frames", engine).sort_values("name")
    pandas.testing.assert_frame_equal(found.reset_index(drop=True), frame, check_dtype=False)
