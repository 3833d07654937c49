"""Programs written for OpenMLDB's Python package."""

from __future__ import annotations

import datetime
import subprocess
import sys
import types

import pytest
import sqlalchemy as sa

import lockstep
import lockstep.compat.openmldb as openmldb
from lockstep.compat.openmldb import _cluster, _insert
from lockstep.compat.openmldb.sdk import sdk as sdk_module
from remote import new_database

COLUMNS = "c1 bigint, c2 date, c3 string, c4 string, c5 int, index(key=c3, ts=c1)"
NAMES = ["c1", "c2", "c3", "c4", "c5"]
ROWS = [
    (1000, "2020-12-25", "guangdong", "广州", 1),
    (1001, "2020-12-26", "hefei", "anhui", 2),
    (1002, "2020-12-27", "fujian", "fuzhou", 3),
]


@pytest.fixture
def cluster(request):
    """The address of a cluster of its own, in memory."""
    address = {"zk": "127.0.0.1:2181", "zkPath": f"/{request.node.name}"}
    openmldb.map_cluster(":memory:", **address)
    yield address
    shared = _cluster._in_memory.pop((address["zk"], address["zkPath"]), None)
    if shared is not None:
        shared.database.close()


@pytest.fixture
def cursor(cluster):
    cursor = openmldb.dbapi.connect(**cluster).cursor()
    cursor.execute("CREATE DATABASE db1")
    cursor.execute("USE db1")
    cursor.execute(f"CREATE TABLE t1 ({COLUMNS})")
    return cursor


def by_name(row: tuple) -> dict:
    return dict(zip(NAMES, row, strict=True))


def stored(cursor) -> list[tuple]:
    return sorted(cursor.execute("SELECT * FROM t1;").fetchall())


# The quick start of its documentation, step by step.


def test_the_quick_start_of_dbapi(cluster):
    db = openmldb.dbapi.connect(**cluster, user="root", password="", requestTimeout=60_000)
    cursor = db.cursor()
    cursor.execute("CREATE DATABASE db1")
    cursor.execute("USE db1")
    cursor.execute(f"CREATE TABLE t1 ({COLUMNS})")
    assert cursor.execute("INSERT INTO t1 VALUES(1000, '2020-12-25', 'gd', 'sz', 1)") is None
    result = cursor.execute("SELECT * FROM t1")
    assert result.fetchone() == (1000, "2020-12-25", "gd", "sz", 1)
    assert result.fetchmany(10) == [] and result.fetchall() == []
    request = {"c1": 2000, "c2": "2020-12-22", "c3": "fujian", "c4": "xiamen", "c5": 2}
    result = cursor.batch_row_request("SELECT * FROM t1", ["c1", "c2"], (request))
    assert result.fetchone() == tuple(request.values())
    cursor.execute("DEPLOY d1 SELECT c1 FROM t1")
    result = cursor.callproc("d1", {"c1": 1000, "c2": None, "c3": None, "c4": None, "c5": None})
    assert result.fetchall() == [(1000,)]
    assert cursor.callproc("d1", (1001, "2023-07-20", "abc", "def", 1)).fetchall() == [(1001,)]
    cursor.execute("DROP DEPLOYMENT d1")
    cursor.execute("DROP TABLE t1")
    cursor.execute("DROP DATABASE db1")
    cursor.close()


def test_the_quick_start_of_sqlalchemy(cluster):
    query = "&".join(f"{name}={value}" for name, value in cluster.items())
    engine = sa.create_engine(f"openmldb:///?{query}")
    with engine.connect() as connection:
        run = connection.exec_driver_sql
        run("CREATE DATABASE db1")
        run("USE db1")
        run(f"CREATE TABLE t1 ({COLUMNS})")
        assert connection.dialect.has_table(connection, "t1")
        run("INSERT INTO t1 VALUES(1000, '2020-12-25', 'gd', 'sz', 1);")
        insert = "INSERT INTO t1 VALUES(1002, '2020-12-27', ?, ?, 3);"
        run(insert, ({"c3": "fujian", "c4": "fuzhou"}))
        run(insert, [{"c3": "jiangsu", "c4": "nanjing"}, {"c3": "hefei", "c4": "hangzhou"}])
        assert len(list(run("SELECT * FROM t1"))) == 4
        found = run("SELECT * FROM t1 WHERE c3 = ?;", ("hefei",)).all()
        assert found == [(1002, "2020-12-27", "hefei", "hangzhou", 3)]
        request = (9999, "2020-12-27", "zhejiang", "hangzhou", 100)
        assert run("SELECT * FROM t1", (by_name(request))).all() == [request]
        assert run("SELECT * FROM t1", [by_name(request)]).all() == [request]
        run("DROP TABLE t1")
        run("DROP DATABASE db1")
        connection.commit()


def test_sqlalchemys_tables_over_the_engine(cluster, cursor):
    query = "&".join(f"{name}={value}" for name, value in cluster.items())
    engine = sa.create_engine(f"openmldb:///db1?{query}&zkLogLevel=0")
    table = sa.Table("t2", sa.MetaData(), sa.Column("x", sa.String), sa.Column("y", sa.Integer))
    table.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(table.insert().values(x="first", y=100))
        connection.execute(table.insert(), [{"x": "second", "y": 200}, {"x": "third", "y": None}])
        rows = connection.execute(sa.select(table).order_by(table.c.x)).all()
        assert rows == [("first", 100), ("second", 200), ("third", None)]
        with pytest.raises(sa.exc.DatabaseError):
            connection.exec_driver_sql("SELECT nothing FROM t2")
    mouse = engine.raw_connection().cursor()
    assert mouse.batch_row_request("SELECT * FROM t2", (), [{"x": "a", "y": 1}]).fetchall() == [
        ("a", 1)
    ]
    assert mouse.get_tables("db1") == ["t1", "t2"]


def test_a_program_runs_as_it_is(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import sys
import openmldb
import openmldb.dbapi
from openmldb.dbapi import connect, DatabaseError
from openmldb.sdk import sdk as sdk_module

db = openmldb.dbapi.connect(database="db1", zk="127.0.0.1:2181", zkPath="/openmldb")
cursor = db.cursor()
cursor.execute("CREATE DATABASE IF NOT EXISTS db1")
cursor.execute("CREATE TABLE t1 (x string, y int)")
cursor.executemany("INSERT INTO t1 VALUES (?, ?)", [("a", 1), ("b", 2)])
other = connect(database="db1", zk="127.0.0.1:2181", zkPath="/openmldb").cursor()
print(sys.argv[1:], sorted(other.execute("SELECT * FROM t1").fetchall()))
try:
    cursor.execute("DROP TABLE t2")
except DatabaseError as error:
    print(type(error).__name__)
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "lockstep.compat.openmldb", str(program), "--fast"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"LOCKSTEP_OPENMLDB": ":memory:"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['--fast'] [('a', 1), ('b', 2)]", "ProgrammingError"]


# Connections.


def test_a_cluster_that_nothing_is_said_of_is_refused(monkeypatch):
    monkeypatch.delenv("LOCKSTEP_OPENMLDB", raising=False)
    with pytest.raises(openmldb.dbapi.DatabaseError) as raised:
        openmldb.dbapi.connect(zk="nowhere:2181", zkPath="/nothing")
    assert raised.value.code == "08001" and "LOCKSTEP_OPENMLDB" in raised.value.hint
    with pytest.raises(openmldb.dbapi.DatabaseError, match="address of the cluster is missing"):
        openmldb.dbapi.connect("db1")
    assert not sdk_module.OpenMLDBSdk(zk="nowhere:2181", zkPath="/nothing").init()


def test_a_cluster_is_a_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_OPENMLDB", str(tmp_path / "d"))
    first = openmldb.dbapi.connect(zk="a:2181", zkPath="/b")
    first.cursor().execute("CREATE DATABASE db1; CREATE TABLE db1.t1 (a int)")
    second = openmldb.dbapi.connect("db1", "a:2181", "/b")
    second.cursor().execute("INSERT INTO t1 VALUES (7)")
    first.close()
    second.close()
    with lockstep.connect(tmp_path / "d") as db:
        assert db.sql("SELECT a FROM db1.t1").fetchall() == [(7,)]


def test_a_cluster_is_a_server(request):
    url, name = new_database(request)
    openmldb.map_cluster(url, zk="server:2181", zkPath="/x")
    cursor = openmldb.dbapi.connect(name, zk="server:2181", zkPath="/x", user="root").cursor()
    cursor.execute(f"CREATE TABLE t1 ({COLUMNS})")
    cursor.executemany("INSERT INTO t1 VALUES (?, ?, ?, ?, ?)", [by_name(row) for row in ROWS])
    assert stored(cursor) == ROWS and cursor.get_tables(name) == ["t1"]
    cursor.execute("DEPLOY d1 SELECT c1, c2 FROM t1")
    assert cursor.callproc("d1", by_name(ROWS[2])).fetchall() == [ROWS[2][:2]]
    answers = cursor.batch_row_request("SELECT c3 FROM t1", [], ROWS[:2]).fetchall()
    assert answers == [("guangdong",), ("hefei",)]
    with pytest.raises(openmldb.dbapi.DatabaseError) as raised:
        cursor.execute("SELECT nothing FROM t1")
    assert "^" in str(raised.value)


def test_host_and_port_are_a_server_unless_they_are_mapped(monkeypatch):
    opened = []

    def connect(url, **options):
        opened.append(url)
        raise lockstep.Error("refused", code="08001")

    monkeypatch.delenv("LOCKSTEP_OPENMLDB", raising=False)
    monkeypatch.setattr(_cluster._connection, "connect", connect)
    with pytest.raises(openmldb.dbapi.OperationalError):
        openmldb.dbapi.connect("db1", host="h", port="7433", user="a", password="p@w")
    with pytest.raises(openmldb.dbapi.OperationalError):
        openmldb.dbapi.connect("db1", "h", 7433)
    openmldb.map_cluster("lockstep://x:y@other", host="h", port=9)
    with pytest.raises(openmldb.dbapi.OperationalError):
        openmldb.dbapi.connect("db1", host="h", port=9, user="a", password="b")
    assert opened == ["lockstep://a:p%40w@h:7433", "lockstep://h:7433", "lockstep://x:y@other"]


def test_the_database_of_a_connection_may_be_created_later(cluster):
    cursor = openmldb.dbapi.connect(database="db_later", **cluster).cursor()
    with pytest.raises(openmldb.dbapi.DatabaseError) as raised:
        cursor.execute("CREATE TABLE t1 (a int)")
    assert raised.value.code == "3D000"
    cursor.execute("create database if not exists db_later;")
    cursor.execute("CREATE TABLE t1 (a int)")
    assert cursor.get_tables("db_later") == ["t1"] and cursor.get_tables("default") == []
    assert "db_later" in cursor.get_databases() and "t1" in cursor.get_all_tables()
    other = openmldb.dbapi.connect(**cluster).cursor()
    with pytest.raises(openmldb.dbapi.DatabaseError):
        other.execute("SELECT * FROM t1")
    other.execute("USE db_later")
    assert other.execute("SELECT * FROM t1").fetchall() == []


def test_what_is_closed_says_so(cursor):
    connection = cursor.connection
    other = connection.cursor()
    cursor.close()
    with pytest.raises(openmldb.dbapi.CursorClosedException):
        cursor.execute("SELECT 1")
    connection.rollback()
    connection.close()
    for call in (connection.cursor, other.fetchall, lambda: other.execute("SELECT 1")):
        with pytest.raises(openmldb.dbapi.ConnectionClosedException):
            call()


# Statements.


def test_rows_are_inserted_as_tuples_and_dicts(cursor):
    every = "insert into t1 values (?, ?, ?, ?, ?);"
    cursor.execute(every, ROWS[0])
    cursor.executemany(every, [by_name(ROWS[1])])
    cursor.execute("insert into t1 values (?, '2020-12-27', ?, ?, 3)", (1002, "fujian", "fuzhou"))
    assert stored(cursor) == ROWS
    more = [(2000 + n, "2022-05-01", f"p{n % 4}", "it's (a, ?) \\ `x`", n) for n in range(9)]
    cursor.executemany(every, more[:4], batch_number=2)
    cursor.executemany(every, [by_name(row) for row in more[4:]])
    assert stored(cursor) == ROWS + more
    cursor.execute("INSERT INTO t1 (c5, c3, c1) VALUES (?, ?, ?)", {"c1": 1, "c3": "x", "c5": 2})
    assert (1, None, "x", None, 2) in cursor.execute("SELECT * FROM t1").fetchall()


def test_placeholders_belong_to_columns():
    def names(sql: str) -> list[str]:
        found = _insert.placeholders_of(sql)
        return found.names(["a", "b", "c"])

    assert names("INSERT INTO t VALUES (1, ?, ?)") == ["b", "c"]
    assert names("insert or ignore into db.`t` (`c`, a) value ( ? , 'x, ?)' );") == ["c"]
    assert names("INSERT INTO t VALUES ('it''s, ?', \"\\\", ?\", ?)") == ["c"]
    assert names("INSERT INTO t VALUES (map('x', 1, 'y'), ?, f(?, 2))") == ["b", "c"]
    assert _insert.placeholders_of("SELECT 1") is None


def test_a_row_without_a_value_for_a_placeholder_is_refused(cursor):
    for wrong in ({"c3": "x"}, {}):
        with pytest.raises(openmldb.dbapi.DatabaseError):
            cursor.execute("INSERT INTO t1 VALUES (1, '2020-12-27', ?, ?, 3)", wrong)
    with pytest.raises(openmldb.dbapi.DatabaseError):
        cursor.execute("INSERT INTO t1 VALUES ('x', 1)")
    assert stored(cursor) == []


def test_a_query_with_a_dict_is_a_request(cursor):
    cursor.executemany("INSERT INTO t1 VALUES (?, ?, ?, ?, ?)", ROWS)
    sql = """SELECT c3, sum(c5) OVER w AS total FROM t1
        WINDOW w AS (PARTITION BY c3 ORDER BY c1 ROWS BETWEEN 9 PRECEDING AND CURRENT ROW);"""
    request = (9999, "2020-12-27", "hefei", "x", 100)
    assert cursor.execute(sql, by_name(request)).fetchall() == [("hefei", 102)]
    assert cursor.executeRequest(sql, request).fetchone() == ("hefei", 102)
    assert [column[0] for column in cursor.description] == ["c3", "total"]
    batch = [request, (9999, None, "nowhere", None, None)]
    assert cursor.batch_row_request(sql, [], batch).fetchall() == [
        ("hefei", 102),
        ("nowhere", None),
    ]
    assert cursor.rowcount == 2
    cursor.execute("SELECT c3 FROM t1 WHERE c5 > 10", by_name((1, None, "x", None, 5)))
    assert cursor.fetchall() == []
    # A request row is not stored.
    assert stored(cursor) == ROWS


def test_procedures_and_deployments_are_called(cursor):
    types_of = "c1 bigint, c2 date, c3 string, c4 string, c5 int"
    cursor.execute(f"create procedure sp ({types_of}) begin select * from t1; end;")
    assert cursor.callproc("sp", by_name(ROWS[2])).fetchall() == [ROWS[2]]
    with pytest.raises(openmldb.dbapi.DatabaseError):
        cursor.callproc("sp", ())
    with pytest.raises(openmldb.dbapi.DatabaseError):
        cursor.callproc("nothing", (1,))


def test_times_are_milliseconds_and_given_ones_local(cursor):
    cursor.execute("CREATE TABLE times (k string, at timestamp, day date)")
    ms = 1_590_738_991_000
    at = datetime.datetime.fromtimestamp(ms / 1000)
    day = datetime.date(2020, 5, 29)
    cursor.executemany(
        "INSERT INTO times VALUES (?, ?, ?)", [("a", ms, "2020-05-29"), ("b", at, day)]
    )
    assert cursor.execute("SELECT * FROM times ORDER BY k").fetchall() == [
        ("a", ms, "2020-05-29"),
        ("b", ms, "2020-05-29"),
    ]
    assert cursor.get_resultset_schema() == [
        {"name": "k", "type": "string"},
        {"name": "at", "type": "timestamp"},
        {"name": "day", "type": "date"},
    ]
    assert cursor.description[1][1] == openmldb.dbapi.Type.Timestamp
    found = cursor.execute("SELECT k FROM times WHERE at = ? AND day = ?", (at, day))
    assert found.rowcount == 2
    with pytest.raises(openmldb.dbapi.DatabaseError):
        found.fetchmany(-1)


# The lower interface, and notebooks.


def test_the_sdk_returns_pairs(cluster):
    options = sdk_module.OpenMLDBClusterSdkOptions(cluster["zk"], cluster["zkPath"])
    sdk = sdk_module.OpenMLDBSdk(options, True)
    assert sdk.executeSQL("x", "SELECT 1")[0] is False
    assert sdk.init()
    assert sdk.executeSQL("db2", "create database db2;")[0]
    assert not sdk.executeSQL("db2", "create database db2;")[0]
    ddl = "create table t (c1 string, c2 int, c3 float, c4 bigint, index(key=c1, ts=c4));"
    assert sdk.executeSQL("db2", ddl)[0]
    ok, error = sdk.executeSQL("db2", ddl)
    assert not ok and "42P07" in error
    assert sdk.executeInsert("db2", "insert into t values('hello', 123, 3.5, 1000);") == (True, "")
    insert = "insert into t values(?, ?, ?, ?);"
    ok, row = sdk.getInsertBuilder("db2", insert)
    assert ok and row.Init(5) and row.AppendString("world") and row.AppendInt32(123)
    assert row.AppendFloat(2.5) and row.AppendInt64(1001) and row.Build()
    assert sdk.executeInsert("db2", insert, row)[0]
    ok, rows = sdk.getInsertBatchBuilder("db2", insert)
    for name, time in (("hi", 1002), ("word", 1003)):
        row = rows.NewRow()
        assert row.AppendString(name) and row.AppendNULL() and row.AppendNULL()
        assert row.AppendInt64(time)
    assert rows.GetCnt() == 2 and sdk.executeInsert("db2", insert, rows)[0]
    ok, found = sdk.executeSQL("db2", "select c1, c2 from t order by c4;")
    assert ok and found.Size() == 4 and found.GetSchema().GetColumnName(0) == "c1"
    assert found.Next() and found.GetStringUnsafe(0) == "hello" and found.GetInt32Unsafe(1) == 123
    assert found.Next() and found.Next() and found.IsNULL(1)
    assert found.GetAsStringUnsafe(1) == "NULL" and found.Next() and not found.Next()
    ok, row = sdk.getRequestBuilder("db2", "select c1 from t")
    assert ok and row.GetSchema().GetColumnCnt() == 4
    for append, value in zip(
        (row.AppendString, row.AppendInt32, row.AppendFloat, row.AppendInt64),
        ("r", 1, 1.0, 2),
        strict=True,
    ):
        assert append(value)
    ok, found = sdk.executeSQL("db2", "select c1 from t", row)
    assert ok and found.Next() and found.GetStringUnsafe(0) == "r"
    ok, found = sdk.doParameterizedQuery("db2", "select c1 from t where c4 = ?", (1001,))
    assert ok and found.Next() and found.GetStringUnsafe(0) == "world"
    assert sdk.getTables("db2") == ["t"] and "db2" in sdk.getDatabases()
    assert sdk.getAllTables() == ["t"] and sdk.isOnlineMode()
    assert not sdk.dropDB("db2")[0]
    assert sdk.executeSQL("db2", "drop table t;")[0] and sdk.dropDB("db2")[0]
    assert sdk.createDB("db3") == (True, "") and "db3" in sdk.getDatabases()


def test_the_magic_of_notebooks_prints_rows(cursor, monkeypatch, capsys):
    registered = {}

    class Shell:
        def register_magic_function(self, function, kind, name):
            registered[kind, name] = function

    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert openmldb.sql_magic.register(cursor.connection) is shell
    sql = registered["line_cell", "sql"]
    sql("INSERT INTO t1 VALUES (1, '2020-12-25', 'x', NULL, 2)")
    sql("", "SELECT c1, c4, c3 AS name FROM t1")
    assert capsys.readouterr().out.splitlines() == [
        "c1 | c4   | name",
        "---+------+-----",
        "1  | NULL | x",
    ]
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    with pytest.raises(RuntimeError):
        openmldb.sql_magic.register(cursor.connection)
