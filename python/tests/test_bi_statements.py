"""Statements of charts as Metabase, Superset and Grafana write them, over PostgreSQL's protocol."""

from __future__ import annotations

import datetime

import pytest

DATA = """
CREATE TABLE buyers (id INT, name STRING, country STRING, INDEX(KEY=id));
CREATE TABLE sales (id INT, buyer_id INT, status STRING, total DOUBLE, created_at TIMESTAMP,
    INDEX(KEY=buyer_id, TS=created_at));
INSERT INTO buyers VALUES (1, 'ann', 'NO'), (2, 'bob', 'DE'), (3, 'eva', 'NO');
INSERT INTO sales VALUES
    (1, 1, 'paid', 10.5, '2024-01-03 10:15:00'), (2, 1, 'open', 20, '2024-01-03 10:17:00'),
    (3, 2, 'paid', 5, '2024-01-20 23:59:59'), (4, 3, 'void', 7.25, '2024-02-01 00:00:00'),
    (5, 2, 'paid', 30, '2024-02-11 08:00:00'), (6, NULL, NULL, NULL, '2024-02-12 08:00:00')
"""

PAID = """CASE WHEN "public"."sales"."status" = 'paid' THEN 1 ELSE 0.0 END"""
MONTH = """DATE_TRUNC('month', "public"."sales"."created_at")"""
WEEK = (
    """(DATE_TRUNC('week', ("public"."sales"."created_at" + INTERVAL '1 day')) """
    """+ INTERVAL '-1 day')"""
)
BIN = """FLOOR((("public"."sales"."total" - 0.0) / 10.0)) * 10.0 + 0.0"""
WEEKDAY = """(CAST(extract(dow from "public"."sales"."created_at") AS integer) + 1)"""
UNTIL = "TO_TIMESTAMP('2024-02-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')"
FROM = "TO_TIMESTAMP('2024-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')"
SLOT = "TO_TIMESTAMP(FLOOR(EXTRACT(EPOCH FROM created_at) / 300) * 300)"


def at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=datetime.timezone.utc)


METABASE = [
    (
        'SELECT "source"."id" AS "id", "source"."substring7" AS "substring7" FROM '
        '(SELECT "public"."sales"."id" AS "id", SUBSTRING("public"."sales"."status", 1, 1234) '
        'AS "substring7" FROM "public"."sales") AS "source" LIMIT 2',
        [(1, "paid"), (2, "open")],
    ),
    (
        f'SELECT {MONTH} AS "created_at", COUNT(*) AS "count" FROM "public"."sales" '
        f"GROUP BY {MONTH} ORDER BY {MONTH} ASC",
        [(at(2024, 1, 1), 3), (at(2024, 2, 1), 3)],
    ),
    (
        f'SELECT CAST({MONTH} AS date) AS "created_at", SUM("public"."sales"."total") AS "sum" '
        f'FROM "public"."sales" GROUP BY CAST({MONTH} AS date) ORDER BY CAST({MONTH} AS date) ASC',
        [(datetime.date(2024, 1, 1), 35.5), (datetime.date(2024, 2, 1), 37.25)],
    ),
    (
        f'SELECT {WEEK} AS "created_at", COUNT(*) AS "count" FROM "public"."sales" '
        f"GROUP BY {WEEK} ORDER BY {WEEK} ASC LIMIT 2",
        [(at(2023, 12, 31), 2), (at(2024, 1, 14), 1)],
    ),
    (
        'SELECT COUNT(*) AS "count" FROM "public"."sales" WHERE ("public"."sales"."created_at" >= '
        "timestamp with time zone '2024-01-01 00:00:00.000Z') AND "
        '("public"."sales"."created_at" < '
        "timestamp with time zone '2024-02-01 00:00:00.000+00:00')",
        [(3,)],
    ),
    (
        'SELECT COUNT(*) AS "count" FROM "public"."sales" WHERE ("public"."sales"."created_at" >= '
        "DATE_TRUNC('month', (NOW() + INTERVAL '-1 month'))) AND "
        '("public"."sales"."created_at" < DATE_TRUNC(\'month\', NOW()))',
        [(0,)],
    ),
    (
        'SELECT COUNT(*) AS "count" FROM "public"."sales" WHERE ("public"."sales"."created_at" >= '
        "CAST((NOW() + INTERVAL '-30 day') AS date)) AND "
        '("public"."sales"."created_at" < CAST(NOW() AS date))',
        [(0,)],
    ),
    (
        'SELECT COUNT(*) AS "count" FROM "public"."sales" WHERE "public"."sales"."created_at" '
        "BETWEEN date '2024-01-03' AND date '2024-02-01'",
        [(4,)],
    ),
    (
        'SELECT "Buyers"."country" AS "Buyers__country", COUNT(*) AS "count" '
        'FROM "public"."sales" LEFT JOIN "public"."buyers" AS "Buyers" '
        'ON "public"."sales"."buyer_id" = "Buyers"."id" GROUP BY "Buyers"."country" '
        'ORDER BY "count" DESC, "Buyers"."country" ASC',
        [("NO", 3), ("DE", 2), (None, 1)],
    ),
    (
        f'SELECT SUM({PAID}) AS "count-where", '
        f'CAST(SUM({PAID}) AS float) / NULLIF(COUNT(*), 0) AS "share" FROM "public"."sales"',
        [(3.0, 0.5)],
    ),
    (
        f'SELECT {BIN} AS "total", COUNT(*) AS "count" FROM "public"."sales" '
        f'WHERE "public"."sales"."total" IS NOT NULL GROUP BY {BIN} ORDER BY {BIN} ASC',
        [(0.0, 2), (10.0, 1), (20.0, 1), (30.0, 1)],
    ),
    (
        f'SELECT {WEEKDAY} AS "created_at", COUNT(*) AS "count" FROM "public"."sales" '
        f"GROUP BY {WEEKDAY} ORDER BY {WEEKDAY} ASC",
        [(1, 1), (2, 1), (4, 2), (5, 1), (7, 1)],
    ),
    (
        'SELECT COUNT(*) AS "count" FROM "public"."sales" '
        'WHERE (LOWER("public"."sales"."status") LIKE \'%pai%\')',
        [(3,)],
    ),
    (
        'SELECT AVG("source"."sum") AS "avg" FROM (SELECT "public"."sales"."buyer_id" AS '
        '"buyer_id", SUM("public"."sales"."total") AS "sum" FROM "public"."sales" '
        'GROUP BY "public"."sales"."buyer_id" ORDER BY "public"."sales"."buyer_id" ASC) '
        'AS "source"',
        [(24.25,)],
    ),
    (
        'SELECT PERCENTILE_CONT(0.5) within group (order by "public"."sales"."total") AS "median" '
        'FROM "public"."sales"',
        [(10.5,)],
    ),
    (
        'SELECT "source"."created_at" AS "created_at", SUM("source"."sum") OVER '
        '(ORDER BY "source"."created_at" ASC ROWS UNBOUNDED PRECEDING) AS "sum" FROM '
        f'(SELECT {MONTH} AS "created_at", SUM("public"."sales"."total") AS "sum" '
        f'FROM "public"."sales" GROUP BY {MONTH}) AS "source" '
        'ORDER BY "source"."created_at" ASC',
        [(at(2024, 1, 1), 35.5), (at(2024, 2, 1), 72.75)],
    ),
    ('SELECT TRUE AS "_" FROM "public"."sales" WHERE 1 <> 1 LIMIT 0', []),
]

SUPERSET = [
    (
        "SELECT DATE_TRUNC('day', created_at) AS created_at, sum(total) AS \"SUM(total)\" "
        f"FROM public.sales WHERE created_at >= {FROM} AND created_at < {UNTIL} "
        "GROUP BY DATE_TRUNC('day', created_at) ORDER BY \"SUM(total)\" DESC\nLIMIT 10000",
        [(at(2024, 1, 3), 30.5), (at(2024, 1, 20), 5.0)],
    ),
    (
        "SELECT status AS status, count(*) AS count, COUNT(DISTINCT buyer_id) AS "
        '"COUNT_DISTINCT(buyer_id)" FROM public.sales GROUP BY status ORDER BY count DESC LIMIT 1',
        [("paid", 3, 2)],
    ),
    (
        "SELECT DATE_TRUNC('month', created_at) AS created_at, status AS status, count(*) AS count "
        "FROM public.sales JOIN (SELECT status AS status__, count(*) AS mme_inner__ "
        f"FROM public.sales WHERE created_at >= {FROM} GROUP BY status "
        "ORDER BY mme_inner__ DESC LIMIT 1) AS anon_1 ON status = status__ "
        f"WHERE created_at >= {FROM} GROUP BY DATE_TRUNC('month', created_at), status "
        "ORDER BY count DESC LIMIT 10000",
        [(at(2024, 1, 1), "paid", 2), (at(2024, 2, 1), "paid", 1)],
    ),
    (
        f'SELECT {SLOT} AS __timestamp, AVG(total) AS "AVG(total)" FROM public.sales '
        f'WHERE created_at < {UNTIL} GROUP BY {SLOT} ORDER BY "AVG(total)" DESC LIMIT 100',
        [(at(2024, 1, 3, 10, 15), 15.25), (at(2024, 1, 20, 23, 55), 5.0)],
    ),
    (
        "SELECT status AS status, sum(total) AS total FROM (SELECT s.status, s.total, b.country "
        "FROM sales s JOIN buyers b ON s.buyer_id = b.id) AS virtual_table "
        "WHERE country IN ('NO') GROUP BY status ORDER BY total DESC LIMIT 100",
        [("open", 20.0), ("paid", 10.5), ("void", 7.25)],
    ),
    (
        "SELECT count(*) AS count FROM public.sales WHERE status IN ('paid', 'open') AND "
        "status IS NOT NULL AND status ILIKE '%P%' AND total > 4 LIMIT 50000",
        [(4,)],
    ),
    ("SELECT DISTINCT status AS status FROM public.sales ORDER BY status LIMIT 1", [("open",)]),
    (
        "SELECT min(created_at), max(created_at) FROM public.sales",
        [(at(2024, 1, 3, 10, 15), at(2024, 2, 12, 8))],
    ),
]

RANGE = "BETWEEN '2024-01-01T00:00:00Z' AND '2024-02-01T00:00:00.999Z'"
GRAFANA = [
    (
        'SELECT\n  floor(extract(epoch from created_at)/300)*300 AS "time",\n'
        '  avg(total) AS "total"\nFROM sales\n'
        f"WHERE\n  created_at {RANGE}\nGROUP BY 1\nORDER BY 1",
        [(1_704_276_900.0, 15.25), (1_705_794_900.0, 5.0), (1_706_745_600.0, 7.25)],
    ),
    (
        'SELECT floor(extract(epoch from "created_at")/86400)*86400 AS "time", status AS metric, '
        f'sum(total) AS "value" FROM sales WHERE "created_at" {RANGE} GROUP BY 1,2 ORDER BY 1,2',
        [
            (1_704_240_000.0, "open", 20.0),
            (1_704_240_000.0, "paid", 10.5),
            (1_705_708_800.0, "paid", 5.0),
            (1_706_745_600.0, "void", 7.25),
        ],
    ),
    (
        f'SELECT created_at AS "time", total FROM public.sales WHERE created_at {RANGE} '
        "ORDER BY created_at LIMIT 1",
        [(at(2024, 1, 3, 10, 15), 10.5)],
    ),
    (
        'SELECT extract(epoch from created_at) AS "time", total FROM sales WHERE '
        "extract(epoch from created_at) >= 1706745600 AND "
        "extract(epoch from created_at) <= 1706832000 ORDER BY 1",
        [(1_706_745_600.0, 7.25)],
    ),
    ("SELECT name AS __text, id AS __value FROM buyers WHERE id = 2", [("bob", 2)]),
]

STATEMENTS = [
    pytest.param(sql, rows, id=f"{tool}-{number}")
    for tool, statements in (("metabase", METABASE), ("superset", SUPERSET), ("grafana", GRAFANA))
    for number, (sql, rows) in enumerate(statements)
]


@pytest.fixture(scope="module")
def connection(served):
    """A connection to a server that has the tables."""
    psycopg = pytest.importorskip("psycopg")
    address = f"host=127.0.0.1 port={served.postgres_port} user=root"
    with psycopg.connect(address, autocommit=True) as opened:
        for statement in DATA.split(";"):
            opened.execute(statement)
        yield opened


def test_names_of_columns_match_in_any_capitals(connection):
    """As go-ycsb writes them: PostgreSQL has a name without quotes in lower case."""
    connection.execute("CREATE TABLE usertable (YCSB_KEY VARCHAR(64) PRIMARY KEY, FIELD0 TEXT)")
    insert = "INSERT INTO usertable (ycsb_key, Field0) VALUES (%s, %s) ON CONFLICT"
    assert connection.execute(f"{insert} DO NOTHING", ("u1", "a")).rowcount == 1
    assert connection.execute(f"{insert} (YCSB_key) DO NOTHING", ("u1", "b")).rowcount == 0
    read = "SELECT usertable.field0 AS f FROM usertable WHERE ycsb_key = %s AND Field0 > ''"
    assert connection.execute(read, ("u1",)).fetchall() == [("a",)]
    alias = "SELECT DATE_TRUNC('month', created_at) AS \"Created_At\", COUNT(*) AS n FROM sales"
    months = [(at(2024, 1, 1), 3), (at(2024, 2, 1), 3)]
    grouped = connection.execute(f'{alias} GROUP BY "Created_At" ORDER BY 1')
    assert grouped.fetchall() == months, "an alias as it is written is before a column"
    connection.execute('CREATE TABLE twice (a INT, "A" INT)')
    connection.execute('INSERT INTO twice (a, "A") VALUES (1, 2)')
    assert connection.execute('SELECT a, "A" FROM twice').fetchall() == [(1, 2)]


@pytest.mark.parametrize(("sql", "rows"), STATEMENTS)
def test_the_statement_of_a_chart_gives_its_rows(connection, sql, rows):
    assert connection.execute(sql).fetchall() == rows
