"""DB-API 2.0: every point of PEP 249, and what Lockstep adds to it."""

from __future__ import annotations

import datetime
import threading

import pytest

import lockstep
from lockstep import dbapi
from remote import new_database


@pytest.fixture(params=["embedded", "remote"])
def connection(request):
    """A connection to an empty database: in the process, or on a server."""
    if request.param == "embedded":
        target, options = None, {}
    else:
        target, name = new_database(request)
        options = {"database": name}
    with dbapi.connect(target, **options) as connection:
        yield connection


@pytest.fixture
def drinks(connection):
    """A connection with a table of six drinks, as the well-known checks of PEP 249 have it."""
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE drinks (name STRING NOT NULL, price DOUBLE, INDEX(KEY=name))")
    rows = [("ale", 1.5), ("beer", 2.5), ("cider", None), ("gin", 4.5), ("milk", 0.5), ("tea", 1.0)]
    cursor.executemany("INSERT INTO drinks VALUES (?, ?)", rows)
    assert cursor.rowcount == 6
    return connection


NAMES = ["ale", "beer", "cider", "gin", "milk", "tea"]


# The module.


def test_the_globals_of_the_module():
    assert dbapi.apilevel == "2.0"
    assert dbapi.threadsafety in (0, 1, 2, 3)
    assert dbapi.paramstyle == "qmark"


def test_the_hierarchy_of_exceptions():
    assert issubclass(dbapi.Warning, Exception) and issubclass(dbapi.Error, Exception)
    assert not issubclass(dbapi.Warning, dbapi.Error)
    assert issubclass(dbapi.InterfaceError, dbapi.Error)
    assert not issubclass(dbapi.InterfaceError, dbapi.DatabaseError)
    assert issubclass(dbapi.DatabaseError, dbapi.Error)
    for name in (
        "DataError",
        "OperationalError",
        "IntegrityError",
        "InternalError",
        "ProgrammingError",
        "NotSupportedError",
    ):
        assert issubclass(getattr(dbapi, name), dbapi.DatabaseError), name


def test_every_error_is_also_the_error_of_the_package():
    assert issubclass(dbapi.Error, lockstep.Error)


def test_the_connection_has_the_exceptions_of_the_module(connection):
    for name in dbapi.__all__:
        value = getattr(dbapi, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert getattr(connection, name) is value, name


def test_the_constructors_of_types():
    assert dbapi.Date(2002, 12, 25) == datetime.date(2002, 12, 25)
    assert dbapi.Time(13, 45, 30) == datetime.time(13, 45, 30)
    assert dbapi.Timestamp(2002, 12, 25, 13, 45, 30).second == 30
    assert dbapi.DateFromTicks(86_400) == datetime.date(1970, 1, 2)
    assert dbapi.TimeFromTicks(86_461) == datetime.time(0, 1, 1)
    assert dbapi.TimestampFromTicks(1.5) == datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert dbapi.Binary(b"x") == b"x"


def test_the_type_objects_equal_the_types_of_their_columns():
    assert dbapi.NUMBER == "BIGINT" and dbapi.NUMBER == "DOUBLE" and dbapi.NUMBER != "STRING"
    text = "STRING"
    assert text == dbapi.STRING and dbapi.STRING != dbapi.NUMBER
    assert dbapi.DATETIME == "TIMESTAMP" and dbapi.DATETIME == "DATE"
    assert dbapi.BINARY != "STRING" and dbapi.ROWID != "BIGINT"
    assert len({dbapi.STRING, dbapi.BINARY, dbapi.NUMBER, dbapi.DATETIME, dbapi.ROWID}) == 5


# Connections.


def test_commit_does_nothing(drinks):
    drinks.commit()
    assert drinks.execute("SELECT count(*) AS n FROM drinks").fetchall() == [(6,)]


def test_rollback_is_refused_only_where_something_was_changed(drinks):
    with pytest.raises(dbapi.NotSupportedError) as raised:
        drinks.rollback()
    assert raised.value.sqlstate == "0A000"
    drinks.commit()
    drinks.execute("SELECT name FROM drinks")
    drinks.execute("SET time_zone = 'UTC'")
    drinks.rollback()


def test_there_are_no_transactions_to_switch_on(connection):
    assert connection.autocommit is True
    connection.autocommit = True
    with pytest.raises(dbapi.NotSupportedError):
        connection.autocommit = False


def test_a_closed_connection_refuses_everything():
    connection = dbapi.connect()
    cursor = connection.cursor()
    cursor.execute("SELECT 1")
    connection.close()
    connection.close()
    for call in (
        connection.cursor,
        connection.commit,
        connection.rollback,
        lambda: connection.lockstep,
        lambda: cursor.execute("SELECT 1"),
        lambda: cursor.executemany("SELECT ?", [(1,)]),
        lambda: cursor.callproc("d", (1,)),
        cursor.fetchall,
        cursor.fetchone,
        cursor.fetchmany,
        cursor.nextset,
    ):
        with pytest.raises(dbapi.InterfaceError) as raised:
            call()
        assert raised.value.code == "08003"
    assert "closed" in repr(connection)


def test_the_context_manager_closes_the_connection():
    with dbapi.connect() as connection, connection.cursor() as cursor:
        assert cursor.connection is connection
    with pytest.raises(dbapi.InterfaceError):
        connection.cursor()
    with pytest.raises(dbapi.InterfaceError):
        cursor.fetchone()


# Cursors.


def test_description_has_seven_items_for_each_column(drinks):
    cursor = drinks.cursor()
    assert cursor.description is None
    cursor.execute("SELECT name, price, price > 1.0 AS dear FROM drinks")
    assert [len(column) for column in cursor.description] == [7, 7, 7]
    assert [column[0] for column in cursor.description] == ["name", "price", "dear"]
    assert cursor.description[0][1] == dbapi.STRING
    assert cursor.description[1][1] == dbapi.NUMBER
    assert [column[1] for column in cursor.description] == ["STRING", "DOUBLE", "BOOL"]
    cursor.execute("SET time_zone = 'UTC'")
    assert cursor.description is None


def test_rowcount(drinks):
    cursor = drinks.cursor()
    assert cursor.rowcount == -1
    cursor.execute("SELECT name FROM drinks")
    assert cursor.rowcount == 6
    cursor.execute("INSERT INTO drinks VALUES ('rum', 5.0), ('ouzo', 6.0)")
    assert cursor.rowcount == 2
    cursor.execute("DELETE FROM drinks WHERE name = ?", ("rum",))
    assert cursor.rowcount == 1
    cursor.execute("CREATE TABLE other (a INT)")
    assert cursor.rowcount == -1
    assert cursor.lastrowid is None


def test_the_three_ways_to_fetch(drinks):
    cursor = drinks.cursor()
    assert cursor.rownumber is None
    cursor.execute("SELECT name FROM drinks ORDER BY name")
    assert cursor.rownumber == 0
    assert cursor.fetchone() == ("ale",)
    assert cursor.arraysize == 1
    assert cursor.fetchmany() == [("beer",)]
    cursor.arraysize = 2
    assert cursor.fetchmany() == [("cider",), ("gin",)]
    assert cursor.rownumber == 4
    assert cursor.fetchmany(1) == [("milk",)]
    assert cursor.fetchmany(0) == []
    assert cursor.fetchall() == [("tea",)]
    assert cursor.fetchall() == [] and cursor.fetchmany(3) == [] and cursor.fetchone() is None
    assert cursor.rowcount == 6


def test_a_cursor_is_an_iterator(drinks):
    cursor = drinks.cursor()
    cursor.execute("SELECT name FROM drinks ORDER BY name")
    assert next(cursor) == ("ale",)
    assert [name for (name,) in cursor] == NAMES[1:]
    with pytest.raises(StopIteration):
        next(cursor)


def test_fetching_without_rows_is_an_error(drinks):
    cursor = drinks.cursor()
    for statement in (None, "CREATE TABLE other (a INT)", "INSERT INTO drinks VALUES ('x', 1.0)"):
        if statement is not None:
            cursor.execute(statement)
        for fetch in (cursor.fetchone, cursor.fetchmany, cursor.fetchall):
            with pytest.raises(dbapi.ProgrammingError):
                fetch()


def test_a_query_without_rows_has_columns(drinks):
    cursor = drinks.cursor()
    cursor.execute("SELECT name FROM drinks WHERE name = ?", ["water"])
    assert cursor.rowcount == 0 and len(cursor.description) == 1
    assert cursor.fetchone() is None and cursor.fetchall() == []


def test_what_need_not_do_anything_does_nothing(drinks):
    cursor = drinks.cursor()
    cursor.setinputsizes([25])
    cursor.setoutputsize(1000)
    cursor.setoutputsize(2000, 0)
    cursor.execute("SELECT name FROM drinks")
    assert cursor.nextset() is None


def test_each_cursor_has_its_own_rows(drinks):
    first, second = drinks.cursor(), drinks.cursor()
    first.execute("SELECT name FROM drinks ORDER BY name")
    second.execute("SELECT name FROM drinks ORDER BY name DESC")
    assert first.fetchone() == ("ale",) and second.fetchone() == ("tea",)
    second.close()
    assert first.fetchone() == ("beer",)
    with pytest.raises(dbapi.InterfaceError):
        second.fetchone()


def test_values_come_back_as_they_went(connection):
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE v (b BOOL, i BIGINT, d DOUBLE, s STRING, t TIMESTAMP, y DATE)")
    time = dbapi.Timestamp(2002, 12, 25, 13, 45, 30, 250_000)
    row = (True, 2**40, 0.1, "it's \\ `?` é", time, dbapi.Date(2002, 12, 25))
    nothing = (None,) * 6
    cursor.execute("INSERT INTO v VALUES (?, ?, ?, ?, ?, ?)", row)
    cursor.execute("INSERT INTO v VALUES (?, ?, ?, ?, ?, ?)", list(nothing))
    cursor.executemany("INSERT INTO v VALUES (?, ?, ?, ?, ?, ?)", [row, nothing])
    assert cursor.execute("SELECT * FROM v").fetchall() == [row, nothing, row, nothing]
    assert cursor.execute("SELECT i FROM v WHERE s = ? AND t = ?", row[3:5]).rowcount == 2


# Parameters.


@pytest.mark.parametrize("wrong", ["ann", b"ann", {"name": "ann"}, 7])
def test_parameters_are_a_sequence(drinks, wrong):
    cursor = drinks.cursor()
    with pytest.raises(dbapi.ProgrammingError):
        cursor.execute("SELECT name FROM drinks WHERE name = ?", wrong)
    with pytest.raises(dbapi.ProgrammingError):
        cursor.executemany("INSERT INTO drinks VALUES (?, ?)", [("x", 1.0), wrong])
    assert cursor.execute("SELECT name FROM drinks").rowcount == 6


@pytest.mark.parametrize("values", [(), ("a",), ("a", 1.0, 2.0)])
def test_a_wrong_number_of_parameters_is_the_programs_error(drinks, values):
    cursor = drinks.cursor()
    with pytest.raises(dbapi.ProgrammingError):
        cursor.execute("INSERT INTO drinks VALUES (?, ?)", values)
    with pytest.raises(dbapi.ProgrammingError) as raised:
        cursor.executemany("INSERT INTO drinks VALUES (?, ?)", [("b", 1.0), values])
    assert raised.value.code == "22023" and "row 1" in str(raised.value)
    assert cursor.execute("SELECT name FROM drinks").rowcount == 6


# executemany.


@pytest.mark.parametrize(
    "insert",
    [
        "INSERT INTO drinks VALUES (?, ?)",
        "insert into `DATABASE`.`drinks` (`name`, price) value ( ? ,? ) ;",
        "INSERT INTO DATABASE.drinks (price, name) VALUES (?, ?)",
        "INSERT INTO drinks VALUES (?, ?) -- in a loop",
    ],
)
def test_executemany_inserts(drinks, insert):
    rows = [("water", 0.25), ("soda", None)]
    insert = insert.replace("DATABASE", drinks.database)
    if "(price, name)" in insert:
        rows = [(price, name) for name, price in rows]
    cursor = drinks.cursor()
    assert cursor.executemany(insert, iter(rows)) is None
    assert cursor.rowcount == 2 and cursor.description is None
    cursor.execute("SELECT name, price FROM drinks WHERE name IN ('water', 'soda') ORDER BY name")
    assert cursor.fetchall() == [("soda", None), ("water", 0.25)]


def test_executemany_leaves_out_columns_that_have_a_default(connection):
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE t (a INT, b STRING DEFAULT 'x')")
    cursor.executemany("INSERT INTO t (a) VALUES (?)", [(1,), (2,)])
    assert cursor.execute("SELECT a, b FROM t").fetchall() == [(1, "x"), (2, "x")]


def test_executemany_of_an_insert_is_all_or_nothing(drinks):
    cursor = drinks.cursor()
    with pytest.raises(dbapi.IntegrityError) as raised:
        cursor.executemany("INSERT INTO drinks VALUES (?, ?)", [("water", 0.0), (None, 1.0)])
    assert raised.value.code == "23502"
    with pytest.raises(dbapi.DataError):
        cursor.executemany("INSERT INTO drinks VALUES (?, ?)", [("water", 0.0), ("x", "dear")])
    assert cursor.execute("SELECT name FROM drinks").rowcount == 6


def test_executemany_runs_other_statements_one_by_one(drinks):
    cursor = drinks.cursor()
    cursor.executemany("DELETE FROM drinks WHERE name = ?", [("ale",), ("gin",), ("nothing",)])
    assert cursor.rowcount == 2
    cursor.executemany("INSERT INTO drinks VALUES (?, ?), ('plain', 1.0)", [("a", 1.0), ("b", 2.0)])
    assert cursor.rowcount == 4
    cursor.executemany("DELETE FROM drinks WHERE name = ?", [])
    assert cursor.rowcount == 0


def test_executemany_does_not_create_tables(connection):
    with pytest.raises(dbapi.ProgrammingError) as raised:
        connection.cursor().executemany("INSERT INTO nowhere (a) VALUES (?)", [(1,)])
    assert raised.value.code == "42P01"


# callproc.


def test_callproc_calls_deployments_and_procedures(drinks):
    cursor = drinks.cursor()
    cursor.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP)")
    cursor.execute("INSERT INTO t VALUES ('a', 1, 1000)")
    features = """SELECT k, sum(v) OVER w AS total FROM t
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW)"""
    cursor.execute(f"DEPLOY total AS {features}")
    cursor.execute(f"CREATE PROCEDURE p (k STRING, v INT, ts TIMESTAMP) BEGIN {features}; END;")
    row = ("a", 2, 2000)
    database = drinks.database
    for name in ("total", "p", f"{database}.total", f"`{database}`.`p`"):
        assert cursor.callproc(name, row) == row
        assert [column[0] for column in cursor.description] == ["k", "total"]
        assert cursor.fetchall() == [("a", 3)]
    named = {"ts": 2000, "k": "a", "v": None, "other": 1}
    assert cursor.callproc("total", named) is named
    assert cursor.fetchone() == ("a", 1)
    assert cursor.callproc("p", named) is named
    assert cursor.fetchone() == ("a", 1)
    with pytest.raises(dbapi.ProgrammingError, match="missing value in the request row of `total`"):
        cursor.callproc("total", {"k": "a", "ts": 1})
    with pytest.raises(dbapi.ProgrammingError) as raised:
        cursor.callproc("nothing", (1,))
    assert raised.value.code == "42704"
    with pytest.raises(dbapi.ProgrammingError) as raised:
        cursor.callproc("nothing", {"v": 1})
    assert raised.value.code == "42704"


# Errors.


@pytest.mark.parametrize(
    ("sql", "class_name", "code"),
    [
        ("SELEKT 1", "ProgrammingError", "42601"),
        ("SELECT * FROM nowhere", "ProgrammingError", "42P01"),
        ("SELECT nothing FROM drinks", "ProgrammingError", "42703"),
        ("CREATE TABLE drinks (a INT)", "ProgrammingError", "42P07"),
        ("INSERT INTO drinks VALUES (NULL, 1.0)", "IntegrityError", "23502"),
        ("SELECT CAST('x' AS INT) AS a FROM drinks WHERE price = 'x'", "DataError", "22P02"),
        ("UPDATE drinks SET price = 1", "NotSupportedError", "0A000"),
        ("BEGIN", "NotSupportedError", "0A000"),
    ],
)
def test_an_error_has_the_class_of_its_code_and_a_caret(drinks, sql, class_name, code):
    with pytest.raises(getattr(dbapi, class_name)) as raised:
        drinks.cursor().execute(sql)
    error = raised.value
    assert type(error) is getattr(dbapi, class_name)
    assert (error.code, error.sqlstate) == (code, code)
    assert str(error).startswith(f"error[{code}]: {error.message}")
    assert error.position is None or "^" in str(error)


def test_the_position_and_the_hint_are_those_of_the_package(drinks):
    sql = "SELECT prise FROM drinks"
    with pytest.raises(dbapi.ProgrammingError) as raised:
        drinks.execute(sql)
    with pytest.raises(lockstep.Error) as expected:
        drinks.lockstep.execute(sql)
    assert str(raised.value) == str(expected.value)
    assert raised.value.position == 7 and raised.value.hint == "Did you mean `price`?"


def test_a_timeout_is_operational(drinks):
    drinks.lockstep.append("big", [{"k": 1, "v": v} for v in range(20_000)])
    drinks.execute("SET statement_timeout = '20ms'")
    with pytest.raises(dbapi.OperationalError) as raised:
        drinks.execute("SELECT count(*) AS n FROM big AS a JOIN big AS b ON a.v + b.v < 0")
    assert raised.value.code == "57014"


# Targets.


def test_connections_to_a_directory_share_it_with_a_database_each(tmp_path):
    path = tmp_path / "features.lockstep"
    first = dbapi.connect(path)
    first.execute("CREATE DATABASE shop; CREATE TABLE t (a INT)")
    second = dbapi.connect(str(path), database="shop")
    second.execute("CREATE TABLE t (b STRING)")
    first.execute("INSERT INTO t VALUES (1)")
    second.cursor().executemany("INSERT INTO t VALUES (?)", [("x",)])
    assert first.execute("SELECT * FROM t").fetchall() == [(1,)]
    assert second.execute("SELECT * FROM t").fetchall() == [("x",)]
    first.execute("USE shop")
    assert first.execute("SELECT * FROM t").fetchall() == [("x",)]
    first.execute("CREATE TABLE u (a INT); USE `default`; INSERT INTO t VALUES (2)")
    assert first.execute("SELECT * FROM t").fetchall() == [(1,), (2,)]
    assert second.execute("SELECT * FROM t").fetchall() == [("x",)]
    with pytest.raises(dbapi.ProgrammingError):
        first.execute("USE nowhere")
    assert first.execute("SELECT * FROM t").rowcount == 2
    first.close()
    assert second.execute("SELECT * FROM t").fetchall() == [("x",)]
    second.close()
    # The last one has closed it: another process, or another connection, may open it.
    with lockstep.connect(path) as db:
        assert len(db.sql("SELECT * FROM t")) == 2


def test_a_statement_that_selects_a_database_is_recognised(tmp_path):
    first, second = dbapi.connect(tmp_path / "d"), dbapi.connect(tmp_path / "d")
    first.execute("CREATE DATABASE x; CREATE TABLE t (a STRING); CREATE TABLE x.t (a STRING)")
    text = "'; USE nowhere; \\"
    for connection in (first, dbapi.connect()):
        connection.execute("CREATE TABLE u (a STRING)")
        connection.execute("INSERT INTO u VALUES ('\\'; USE nowhere; \\\\')")
        assert connection.execute("SELECT a FROM u /* ; USE nowhere */").fetchall() == [(text,)]
        connection.execute("SELECT 1; -- ; USE nowhere\nSELECT 2")
        assert connection.database == "default"
    first.execute("-- why\n /* x */ use `x` ; -- so")
    first.execute("INSERT INTO t VALUES ('in x')")
    assert (first.database, second.database) == ("x", "default")
    assert second.execute("SELECT a FROM t").fetchall() == []
    second.execute("INSERT INTO t VALUES ('a'); /* ; */ USE x; SELECT a FROM t")
    assert second.database == "x" and second.execute("SELECT a FROM t").fetchall() == [("in x",)]
    first.close()
    second.close()


def test_hosts_and_logins_are_an_address():
    address = dbapi._connection._url
    assert address("h", None, None, None, None) == "lockstep://h"
    assert address("::1", 7433, "a@b", "p/w", None) == "lockstep://a%40b:p%2Fw@[::1]:7433"
    assert address("h", 1, None, None, "t k") == "lockstep://h:1?token=t%20k"


def test_a_forgotten_connection_is_closed(tmp_path):
    dbapi.connect(tmp_path / "d").execute("CREATE TABLE t (a INT)")
    with lockstep.connect(tmp_path / "d") as db:
        assert len(db.sql("SELECT * FROM t")) == 0


def test_a_directory_that_is_read_only_here_cannot_be_opened_to_be_written(tmp_path):
    dbapi.connect(tmp_path / "d").close()
    with dbapi.connect(tmp_path / "d", read_only=True) as reader:
        with pytest.raises(dbapi.OperationalError) as refused:
            reader.execute("CREATE TABLE t (a INT)")
        assert refused.value.code == "25006"
        with pytest.raises(dbapi.InterfaceError):
            dbapi.connect(tmp_path / "d")


def test_a_database_that_does_not_exist_leaves_nothing_open(tmp_path):
    with pytest.raises(dbapi.ProgrammingError) as raised:
        dbapi.connect(tmp_path / "d", database="nowhere")
    assert raised.value.code == "3D000"
    lockstep.connect(tmp_path / "d").close()


def test_a_connection_of_the_package_is_used_and_left_open():
    with lockstep.connect() as db:
        db.append("t", [{"a": 1}])
        with dbapi.connect(db) as connection:
            assert connection.lockstep is db
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
        assert len(db.sql("SELECT a FROM t")) == 1


def test_databases_in_memory_are_apart():
    with dbapi.connect() as first, dbapi.connect(":memory:") as second:
        first.execute("CREATE TABLE t (a INT)")
        with pytest.raises(dbapi.ProgrammingError):
            second.execute("SELECT a FROM t")


# Threads.


def test_threads_share_a_connection_and_a_directory(tmp_path):
    connections = [dbapi.connect(tmp_path / "d") for _ in range(2)]
    connections[0].execute("CREATE DATABASE x; CREATE TABLE t (a INT); CREATE TABLE x.t (a INT)")
    connections[1].execute("USE x")
    failed = []

    def work(number: int) -> None:
        try:
            cursor = connections[number % 2].cursor()
            for value in range(50):
                cursor.execute("INSERT INTO t VALUES (?)", [number % 2])
                cursor.execute("SELECT a FROM t WHERE a = ?", [1 - number % 2])
                assert cursor.fetchall() == [], value
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for connection in connections:
        assert connection.execute("SELECT a FROM t").rowcount == 100
        connection.close()


# Programs that use the interface.


def test_pandas_reads_with_a_connection(drinks):
    pandas = pytest.importorskip("pandas")
    sql = "SELECT name, price FROM drinks WHERE price > ? ORDER BY name"
    # pandas warns that it has tested no module but sqlite3's.
    with pytest.warns(UserWarning, match="DBAPI2"):
        frame = pandas.read_sql(sql, drinks, params=[1.0])
    assert frame["name"].tolist() == ["ale", "beer", "gin"]
    assert frame["price"].tolist() == [1.5, 2.5, 4.5]
