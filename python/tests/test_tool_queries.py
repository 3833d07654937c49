"""What Metabase, Superset and Grafana ask of tables, over PostgreSQL's protocol; and what SQLAlchemy and pandas write.

The statements of `clients/queries` have the forms of those programs' own; their answers stand behind them in
comments, as those of `clients/introspection` do.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from clients.served import serve
from test_introspection import statements

FOLDER = Path(__file__).parent / "clients" / "queries"
UTC = datetime.timezone.utc

SETUP = """
CREATE TABLE "public"."sales" (id integer NOT NULL, product character varying(20), amount double precision,
    sold_at timestamp with time zone);
CREATE TABLE "public"."products" (code text, title character varying);
INSERT INTO "public"."sales" VALUES (1, 'pen', 2.5, '2024-01-31 03:30:00+00'), (2, 'book', 20.0, '2024-01-31 12:00:00+00'),
    (3, 'pen', 3.5, '2024-02-10 09:15:00+00'), (4, 'book', 25.0, '2024-02-29 23:59:59.999+00'), (5, NULL, NULL, NULL),
    (6, 'lamp', 19.0, '2024-03-09 00:00:00+00');
INSERT INTO "public"."products" VALUES ('pen', 'A pen'), ('book', 'A book');
"""

CASES = [
    pytest.param(statement, id=f"{path.stem}: {statement.title}")
    for path in sorted(FOLDER.glob("*.sql"))
    for statement in statements(path)
]


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of a server with two tables."""
    psycopg = pytest.importorskip("psycopg")
    with serve(tmp_path_factory.mktemp("queries") / "features.lockstep") as served:
        port = served.postgres_port
        address = f"host=127.0.0.1 port={port} user=root dbname=default"
        with psycopg.connect(address, autocommit=True) as db:
            db.execute(SETUP)
        yield port


@pytest.fixture(scope="module")
def db(port):
    psycopg = pytest.importorskip("psycopg")
    address = f"host=127.0.0.1 port={port} user=root dbname=default"
    with psycopg.connect(address, autocommit=True) as db:
        yield db


@pytest.fixture(scope="module")
def engine(port):
    """An engine of SQLAlchemy."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    return sqlalchemy.create_engine(f"postgresql+psycopg://root@127.0.0.1:{port}/default")


@pytest.mark.parametrize("statement", CASES)
@pytest.mark.parametrize("protocol", ["simple", "extended"])
def test_query(db, statement, protocol):
    """The answer is the same in each protocol."""
    import psycopg

    cursor = psycopg.ClientCursor(db) if protocol == "simple" else db.cursor()
    cursor.execute(statement.sql)
    assert cursor.description is not None
    rows = ["|".join("" if value is None else str(value) for value in row) for row in cursor]
    columns = "|".join(column.name for column in cursor.description)
    assert [columns, *rows] == statement.answer


def test_pandas_stores_what_it_sends(engine):
    """Numbers of 64 bits, times with and without a zone, dates and long texts come back as they were sent."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "name": ["a", "é" * 300],
            "value": [0.1, 1e300],
            "whole": [2**53 + 1, -1],
            "is_new": [True, False],
            "at": pandas.to_datetime(["2024-01-31 12:00:00.123", "1969-12-31 23:59:59"]).tz_localize("UTC"),
            "day": [datetime.date(2024, 2, 29), datetime.date(1999, 12, 31)],
        }
    )
    for schema in (None, "public"):
        frame.to_sql("frames", engine, schema=schema, if_exists="replace", index=False)
        found = pandas.read_sql_table("frames", engine, schema=schema)
        assert found["value"].tolist() == [0.1, 1e300]
        assert found["whole"].tolist() == [2**53 + 1, -1]
        assert [at.to_pydatetime() for at in found["at"]] == [at.to_pydatetime() for at in frame["at"]]
        assert found[["name", "is_new", "day"]].to_dict() == frame[["name", "is_new", "day"]].to_dict()


def test_sqlalchemy_makes_tables(engine):
    """`create_all` with the usual types, rows of them, and a text that is too long."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    metadata = sqlalchemy.MetaData()
    events = sqlalchemy.Table(
        "events",
        metadata,
        sqlalchemy.Column("id", sqlalchemy.BigInteger, nullable=False),
        sqlalchemy.Column("name", sqlalchemy.String(5)),
        sqlalchemy.Column("note", sqlalchemy.Text),
        sqlalchemy.Column("ratio", sqlalchemy.Float),
        sqlalchemy.Column("precise", sqlalchemy.Double),
        sqlalchemy.Column("small", sqlalchemy.REAL),
        sqlalchemy.Column("at", sqlalchemy.DateTime(timezone=True)),
        sqlalchemy.Column("local", sqlalchemy.DateTime),
        sqlalchemy.Column("day", sqlalchemy.Date),
        sqlalchemy.Column("is_new", sqlalchemy.Boolean),
    )
    metadata.create_all(engine)
    noon = datetime.datetime(2024, 1, 31, 12, tzinfo=UTC)
    row = (1, "abcde", "n", 0.1, 0.1, 0.5, noon, noon, datetime.date(2024, 1, 31), True)
    with engine.begin() as connection:
        values = dict(zip(events.columns.keys(), row, strict=True))
        connection.execute(events.insert(), [{**values, "local": datetime.datetime(2024, 1, 31, 12)}])
        assert connection.execute(events.select()).one() == row
    with pytest.raises(sqlalchemy.exc.DataError, match="at most 5 characters, the value has 6"), engine.begin() as connection:
        connection.execute(events.insert(), [{"id": 2, "name": "abcdef"}])
    metadata.drop_all(engine)


def test_every_file_has_statements():
    assert {path.stem for path in FOLDER.glob("*.sql")} == {"metabase", "superset", "grafana"}
    assert len(CASES) >= 29
