"""What Grafana, Superset, Metabase and DBeaver ask of the catalogs, over the wire.

The statements of `clients/introspection` have the clauses, functions and casts of those programs'
own; their answers stand behind them in comments: `-- =` the names of the columns, then the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients.served import serve

FOLDER = Path(__file__).parent / "clients" / "introspection"
CLIENTS = {
    "dbeaver": "DBeaver",
    "grafana": "Grafana",
    "metabase": "Metabase",
    "superset": "Superset",
}


@dataclass(frozen=True)
class Statement:
    """A statement with its answer, line by line."""

    title: str
    sql: str
    answer: list[str]


def statements(path: Path) -> Iterator[Statement]:
    """Reads the statements of a file; its first paragraph says what it is."""
    for part in re.split(r"\n\n+", path.read_text().strip())[1:]:
        title, *rest = part.splitlines()
        sql = [line for line in rest if not line.startswith("-- =")]
        answer = [line.removeprefix("-- =").strip() for line in rest if line.startswith("-- =")]
        yield Statement(title.removeprefix("-- "), "\n".join(sql), answer)


CASES = [
    pytest.param(
        statement,
        id=f"{path.stem}: {statement.title}",
        marks=pytest.mark.client(CLIENTS[path.stem], statement.title),
    )
    for path in sorted(FOLDER.glob("*.sql"))
    for statement in statements(path)
]


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    """A connection to a server of its own: other tests make tables on theirs."""
    psycopg = pytest.importorskip("psycopg")
    with (
        serve(tmp_path_factory.mktemp("introspection") / "features.lockstep") as served,
        psycopg.connect(
            host="127.0.0.1",
            port=served.postgres_port,
            user="root",
            dbname="default",
            autocommit=True,
        ) as db,
    ):
        yield db


@pytest.mark.parametrize("statement", CASES)
@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
def test_statement(db, statement, protocol):
    """The answer is the same in each protocol, and where the statement was prepared before."""
    import psycopg

    cursor = psycopg.ClientCursor(db) if protocol == "simple" else db.cursor()
    cursor.execute(statement.sql, prepare=None if protocol == "simple" else protocol == "prepared")
    assert cursor.description is not None
    rows = ["|".join("" if value is None else str(value) for value in row) for row in cursor]
    columns = "|".join(column.name for column in cursor.description)
    assert [columns, *rows] == statement.answer


def test_every_file_has_statements():
    assert {path.stem for path in FOLDER.glob("*.sql")} == set(CLIENTS)
    assert len(CASES) >= 28
