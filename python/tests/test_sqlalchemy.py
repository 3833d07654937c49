"""The dialect of SQLAlchemy: its own tests of dialects, and what Lockstep adds."""

from __future__ import annotations

import datetime
import decimal
import re
import subprocess
import sys
import threading
from pathlib import Path

import pandas
import pytest
import sqlalchemy as sa
import tomllib
from sqlalchemy import orm

import lockstep
import lockstep.sqlalchemy
from lockstep.sqlalchemy import last_join
from remote import new_database

ROOT = Path(__file__).parents[2]

NOON = datetime.datetime(2020, 5, 1, 12)


@pytest.fixture(params=["embedded", "remote"])
def engine(request):
    """An engine of an empty database: in the process, or on a server."""
    address = "lockstep://"
    if request.param == "remote":
        address = "/".join(new_database(request))
    engine = sa.create_engine(address)
    yield engine
    engine.dispose()


@pytest.fixture
def clicks(engine):
    table = sa.Table(
        "clicks",
        sa.MetaData(),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("price", sa.Float),
        sa.Column("ts", sa.DateTime),
        sa.Index("by_user", "user", lockstep_ts="ts", lockstep_ttl="9000d"),
    )
    table.metadata.create_all(engine)
    rows = [("ann", 2.5), ("bob", 4.0), ("ann", 3.5), ("eve", None)]
    with engine.begin() as connection:
        values = [
            {"user": user, "price": price, "ts": NOON + datetime.timedelta(seconds=second)}
            for second, (user, price) in enumerate(rows)
        ]
        assert connection.execute(table.insert(), values).rowcount == 4
    return table


def sql_of(statement, engine) -> str:
    return re.sub(r"\s+", " ", str(statement.compile(engine))).strip()


# SQLAlchemy's tests.


@pytest.mark.parametrize("where", ["embedded", "remote"])
def test_the_tests_of_sqlalchemy_pass(where, request):
    address = "lockstep://" if where == "embedded" else "/".join(new_database(request))
    command = ["-m", "pytest", "-c", "setup.cfg", "--rootdir", ".", "-q", "--dburi", address]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=Path(__file__).parent / "sqlalchemy_suite",
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 350, done.stdout[-500:]
    assert "failed" not in done.stdout.splitlines()[-1]


# Engines.


def test_the_package_declares_its_dialects():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, target in project["entry-points"]["sqlalchemy.dialects"].items():
        module, _, class_name = target.partition(":")
        declared = getattr(sys.modules[module], class_name)
        assert sa.dialects.registry.load(name) is declared


def test_a_directory_is_an_engine(tmp_path):
    path = tmp_path / "features.lockstep"
    engine = sa.create_engine(f"lockstep+embedded:///{path}?max_memory=1GB")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a INT)")
        connection.exec_driver_sql("INSERT INTO t VALUES (?)", [(1,), (2,)])
    # Two engines of one directory share it.
    reader = sa.create_engine(f"lockstep+embedded:///{path}")
    with reader.connect() as connection:
        assert connection.exec_driver_sql("SELECT a FROM t").all() == [(1,), (2,)]
    engine.dispose()
    reader.dispose()
    engine = sa.create_engine(f"lockstep+embedded:///{path}?read_only=true")
    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError) as raised:
        connection.exec_driver_sql("INSERT INTO t VALUES (3)")
    assert raised.value.orig.code == "25006"
    engine.dispose()
    lockstep.connect(path).close()


def test_urls_say_where_the_database_is(tmp_path, monkeypatch):
    def arguments(text: str):
        url = sa.make_url(text)
        return url.get_dialect()().create_connect_args(url)

    assert arguments("lockstep://") == ([None], {})
    login = {"host": "h", "port": 7433, "user": "app", "password": "s@t", "database": "shop"}
    assert arguments("lockstep://app:s%40t@h:7433/shop?tls=true&ca=x.pem") == (
        [],
        {**login, "tls": True, "ca": "x.pem"},
    )
    monkeypatch.chdir(tmp_path)
    assert arguments("lockstep+embedded:///a/b") == ([str(tmp_path / "a/b")], {})
    assert arguments("lockstep+embedded:////a/b?database=x") == (["/a/b"], {"database": "x"})
    for wrong in ("lockstep:///directory", "lockstep+embedded://host/x"):
        with pytest.raises(sa.exc.ArgumentError):
            arguments(wrong)


def test_threads_share_an_engine_in_memory(engine, clicks):
    found = []

    def count() -> None:
        with engine.connect() as connection:
            found.append(connection.scalar(sa.select(sa.func.count()).select_from(clicks)))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [4] * 8


# Queries.


def test_queries_of_a_table(engine, clicks):
    spent = sa.func.sum(clicks.c.price).label("spent")
    query = sa.select(clicks.c.user, spent).group_by(clicks.c.user).order_by(clicks.c.user)
    with engine.connect() as connection:
        assert connection.execute(query).all() == [("ann", 6.0), ("bob", 4.0), ("eve", None)]
        limited = sa.select(clicks.c.price).order_by(clicks.c.ts)
        # The limit is a number in the statement, and not kept for the next one.
        for limit in (1, 3):
            assert len(connection.execute(limited.limit(limit)).all()) == limit
        among = sa.select(clicks.c.price).where(clicks.c.user.in_(["bob", "eve"]))
        assert connection.execute(among).all() == [(4.0,), (None,)]
        assert connection.execute(sa.select(clicks).where(clicks.c.user.in_([]))).all() == []


def test_a_query_skips_rows(engine, clicks):
    query = sa.select(clicks.c.user).order_by(clicks.c.ts)
    users = ["ann", "bob", "ann", "eve"]
    given = {"limit": 1, "offset": 3}
    limit, offset = map(sa.bindparam, given)
    cases = [
        (query.offset(1), users[1:]),
        (query.offset(0), users),
        (query.offset(4), []),
        (query.limit(2).offset(1), users[1:3]),
        (query.fetch(2).offset(1), users[1:3]),
        (query.limit(0).offset(1), []),
        (query.slice(2, 3), users[2:3]),
        (query.limit(limit).offset(offset), users[3:]),
        (sa.select(query.limit(2).offset(2).subquery()), users[2:]),
        (sa.union_all(query, query).order_by("user").limit(2).offset(3), ["ann", "bob"]),
    ]
    with engine.connect() as connection:
        for statement, expected in cases:
            parameters = given if limit.key in statement.compile().params else {}
            assert connection.scalars(statement, parameters).all() == expected, str(statement)
        with pytest.raises(sa.exc.DataError, match="OFFSET must not be negative"):
            connection.execute(query.offset(-1))
    literal = query.limit(2).offset(1).compile(engine, compile_kwargs={"literal_binds": True})
    assert re.sub(r"\s+", " ", str(literal)).endswith("LIMIT 2 OFFSET 1")


def test_a_window_has_the_frame_of_its_range(engine, clicks):
    def spent(**frame):
        window = {"partition_by": clicks.c.user, "order_by": clicks.c.ts, **frame}
        total = sa.func.sum(clicks.c.price).over(**window).label("spent")
        return sa.select(clicks.c.user, total).order_by(clicks.c.ts)

    with engine.connect() as connection:
        near = connection.execute(spent(range_=(-1000, 0))).all()
        far = connection.execute(spent(range_=(-5000, 0))).all()
        rows = connection.execute(spent(rows=(-1, 0))).all()
    assert near == [("ann", 2.5), ("bob", 4.0), ("ann", 3.5), ("eve", None)]
    assert far == rows == [("ann", 2.5), ("bob", 4.0), ("ann", 6.0), ("eve", None)]


def test_a_last_join_finds_the_newest_row(engine, clicks):
    users = sa.table("users", sa.column("name"), sa.column("city"), sa.column("at"))
    joined = last_join(users, clicks, users.c.name == clicks.c.user, order_by=clicks.c.ts)
    query = sa.select(users.c.name, clicks.c.price).select_from(joined)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE users (name STRING, city STRING, at TIMESTAMP)")
        connection.exec_driver_sql("INSERT INTO users (name) VALUES ('ann'), ('nobody')")
        assert connection.execute(query).all() == [("ann", 3.5), ("nobody", None)]


def test_conditions_that_are_no_operators_here(engine):
    t = sa.table("t", sa.column("a", sa.Boolean), sa.column("b", sa.Boolean))
    conditions = [
        t.c.a.is_(True),
        t.c.a.is_(False),
        t.c.a.is_not(True),
        t.c.a.is_not(False),
        t.c.a.is_(None),
        t.c.a.is_distinct_from(t.c.b),
        t.c.a.is_not_distinct_from(t.c.b),
    ]
    tests = [
        lambda a, b: a is True,
        lambda a, b: a is False,
        lambda a, b: a is not True,
        lambda a, b: a is not False,
        lambda a, b: a is None,
        lambda a, b: a is not b,
        lambda a, b: a is b,
    ]
    values = [(a, b) for a in (True, False, None) for b in (True, False, None)]
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a BOOL, b BOOL)")
        connection.exec_driver_sql("INSERT INTO t VALUES (?, ?)", values)
        for condition, test in zip(conditions, tests, strict=True):
            found = connection.execute(sa.select(t.c.a, t.c.b).where(condition)).all()
            assert found == [row for row in values if test(*row)], str(condition)


@pytest.mark.parametrize(
    ("value", "of"),
    [
        ("it's \\ `x` % é\n", sa.String()),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000), sa.DateTime()),
        (datetime.datetime(2020, 5, 1, 12), sa.DateTime()),
        (datetime.date(2020, 5, 1), sa.Date()),
        (True, sa.Boolean()),
        (2**40, sa.BigInteger()),
        (0.1, sa.Double()),
    ],
)
def test_literals_are_what_parameters_are(engine, value, of):
    with engine.connect() as connection:
        # Whatever the time zone of the session is.
        connection.exec_driver_sql("SET time_zone = 'Asia/Shanghai'")
        query = sa.select(sa.literal(value, of).label("x"))
        written = str(query.compile(engine, compile_kwargs={"literal_binds": True}))
        assert connection.exec_driver_sql(written).scalar() == value
        assert connection.execute(query).scalar() == value


def test_what_lockstep_does_not_have_is_said(engine, clicks):
    with pytest.raises(sa.exc.CompileError, match="WITH TIES"):
        sql_of(sa.select(clicks).fetch(1, with_ties=True).offset(1), engine)
    with pytest.raises(sa.exc.CompileError, match="no column type for"):
        blobs = sa.Table("b", sa.MetaData(), sa.Column("x", sa.LargeBinary))
        sql_of(sa.schema.CreateTable(blobs), engine)
    with engine.connect() as connection, pytest.raises(sa.exc.NotSupportedError) as raised:
        connection.execute(clicks.update().values(price=1.0))
    assert "UPDATE is not supported" in str(raised.value) and "^" in str(raised.value)


def test_deleting_everything_truncates(engine, clicks):
    assert sql_of(clicks.delete(), engine) == "TRUNCATE TABLE clicks"
    with engine.begin() as connection:
        connection.execute(clicks.delete().where(clicks.c.user == "ann"))
        assert connection.scalar(sa.select(sa.func.count()).select_from(clicks)) == 2
        connection.execute(clicks.delete())
        assert connection.scalar(sa.select(sa.func.count()).select_from(clicks)) == 0


# Transactions.


def test_a_rollback_after_a_change_warns_since_it_stays(engine, clicks):
    count = sa.select(sa.func.count()).select_from(clicks)
    with engine.connect() as connection:
        connection.execute(clicks.insert(), {"user": "zoe", "ts": NOON})
        with pytest.warns(lockstep.LockstepWarning, match="changes remain in effect"):
            connection.rollback()
        assert connection.scalar(count) == 5
        connection.rollback()
    with (
        pytest.warns(lockstep.LockstepWarning, match="changes remain in effect"),
        pytest.raises(ZeroDivisionError),
        engine.begin() as connection,
    ):
        connection.execute(clicks.insert(), {"user": "zoe", "ts": NOON})
        _ = 1 / 0


# Definitions and reflection.


def test_a_definition_is_written_with_its_indexes_and_options(engine):
    database = sa.inspect(engine).default_schema_name
    quoted = engine.dialect.identifier_preparer.quote(database)
    table = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("Name", sa.String(20), server_default="x\\y"),
        sa.Column("select", sa.SmallInteger, nullable=False),
        sa.Column("f", sa.REAL),
        sa.Column("d", sa.Numeric(10, 2)),
        sa.Column("ts", sa.DateTime),
        lockstep_index="KEY=id, TS=ts, TTL=30d",
        lockstep_options={"partitionnum": 1, "storage_mode": "memory"},
        schema=database,
    )
    assert sql_of(sa.schema.CreateTable(table), engine) == (
        f"CREATE TABLE {quoted}.t ( id INT NOT NULL, `Name` STRING DEFAULT 'x\\\\y', "
        "`select` SMALLINT NOT NULL, f FLOAT, d DOUBLE, ts TIMESTAMP, "
        "INDEX(KEY=id, TS=ts, TTL=30d) ) OPTIONS(partitionnum=1, storage_mode='memory')"
    )
    index = sa.Index("ix t", table.c.Name, table.c.id, lockstep_ts=table.c.ts, lockstep_ttl=100)
    index.dialect_kwargs["lockstep_ttl_type"] = "latest"
    assert sql_of(sa.schema.CreateIndex(index), engine) == (
        f"CREATE INDEX `ix t` ON {quoted}.t (`Name`, id) OPTIONS(ts=ts, ttl=100, ttl_type=latest)"
    )
    table.metadata.create_all(engine)
    inspector = sa.inspect(engine)
    assert {"index0", "ix t"} <= {index["name"] for index in inspector.get_indexes("t")}
    defaults = {column["name"]: column["default"] for column in inspector.get_columns("t")}
    assert defaults["Name"] == "'x\\\\y'"
    table.drop(engine)
    assert not sa.inspect(engine).has_table("t")


def test_constraints_that_are_not_enforced_are_warned_of(engine):
    table = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("a", sa.Integer, unique=True),
        sa.Column("b", sa.Integer, sa.CheckConstraint("b > 0"), nullable=False),
        sa.CheckConstraint("a > 0"),
    )
    with pytest.warns(lockstep.LockstepWarning, match="does not enforce") as warned:
        table.create(engine)
    said = {str(one.message).removeprefix("Lockstep does not enforce the ") for one in warned}
    assert said == {
        "UniqueConstraint of table 't'",
        "CheckConstraint of table 't'",
        "CheckConstraint of column 'b' of table 't'",
    }
    with engine.begin() as connection:
        connection.execute(table.insert(), {"a": -1, "b": -1})
        assert connection.execute(sa.select(table)).all() == [(-1, -1)]


def test_what_was_created_is_reflected_and_created_again(engine, clicks):
    reflected = sa.Table("clicks", sa.MetaData(), autoload_with=engine)
    assert [(c.name, str(c.type), c.nullable) for c in reflected.columns] == [
        ("user", "VARCHAR", False),
        ("price", "DOUBLE", True),
        ("ts", "TIMESTAMP", True),
    ]
    (index,) = reflected.indexes
    assert index.name == "by_user" and [column.name for column in index.columns] == ["user"]
    options = index.dialect_options["lockstep"]
    assert (options["ts"], options["ttl_type"]) == ("ts", "absolute")
    again = sa.create_engine("lockstep://")
    reflected.metadata.create_all(again)
    (other,) = sa.inspect(again).get_indexes("clicks")
    (found,) = sa.inspect(engine).get_indexes("clicks")
    assert other == found


def test_databases_are_schemas(engine):
    default = sa.inspect(engine).default_schema_name
    shop = f"{default}_shop"
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(shop))
        table = sa.Table("t", sa.MetaData(schema=shop), sa.Column("a", sa.Integer))
        table.create(connection)
        inspector = sa.inspect(connection)
        assert {default, shop} <= set(inspector.get_schema_names())
        assert inspector.get_table_names() == []
        assert inspector.get_table_names(schema=shop) == ["t"]
        assert inspector.has_table("t", schema=shop) and not inspector.has_table("t")
        with pytest.raises(sa.exc.NoSuchTableError):
            inspector.get_columns("t")
        assert inspector.get_pk_constraint("t", shop)["constrained_columns"] == []
        table.drop(connection)
        connection.execute(sa.schema.DropSchema(shop))


# The object-relational mapper.


def test_objects_are_stored_and_found(engine):
    class Base(orm.DeclarativeBase):
        pass

    class User(Base):
        __tablename__ = "users"
        id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, primary_key=True)
        name: orm.Mapped[str]
        born: orm.Mapped[datetime.date | None]
        balance: orm.Mapped[decimal.Decimal | None] = orm.mapped_column(sa.Numeric(10, 2))

    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        day = datetime.date(1990, 5, 1)
        balance = decimal.Decimal("10.25")
        session.add_all([User(id=n, name=f"u{n}", born=day, balance=balance) for n in range(5)])
        session.commit()
        user = session.get(User, 3)
        assert (user.name, user.born, user.balance) == ("u3", day, balance)
        names = session.scalars(sa.select(User.name).where(User.id > 2).order_by(User.id)).all()
        assert names == ["u3", "u4"]


# pandas.


def test_pandas_writes_and_reads_tables(engine, tmp_path):
    frame = pandas.DataFrame(
        {
            "user": ["ann", "bob", None],
            "n": [1, 2**40, 3],
            "price": [2.5, None, 0.1],
            "ok": [True, False, True],
            "ts": pandas.to_datetime(["2020-05-01 00:00", "2020-05-02 10:30", None]),
        }
    )
    directory = sa.create_engine(f"lockstep+embedded:///{tmp_path}/d")
    for database in (engine, directory):
        assert frame.to_sql("frames", database, index=False) == 3
        with pytest.raises(ValueError, match="already exists"):
            frame.to_sql("frames", database, index=False)
        frame.to_sql("frames", database, index=False, if_exists="append", method="multi")
        found = pandas.read_sql("SELECT * FROM frames", database)
        assert found["user"].tolist()[:2] == ["ann", "bob"] and len(found) == 6
        assert found["n"].tolist() == [1, 2**40, 3] * 2
        assert found["ok"].tolist() == [True, False, True] * 2
        assert found["ts"][1] == frame["ts"][1] and pandas.isna(found["ts"][2])
        table = pandas.read_sql_table("frames", database, columns=["n", "price"])
        assert list(table.columns) == ["n", "price"] and table["price"][0] == 2.5
        query = sa.text("SELECT n FROM frames WHERE price > :least LIMIT 1")
        assert pandas.read_sql(query, database, params={"least": 1.0})["n"].tolist() == [1]
        frame.to_sql("frames", database, index=False, if_exists="replace")
        assert len(pandas.read_sql("frames", database)) == 3
    directory.dispose()
