"""The table of `docs/postgres.md` that says which clients were tested with what.

A test says it with `@pytest.mark.client("psycopg", "COPY")`; the name of the client is a key of
`CLIENTS`. `pytest --write-client-matrix` writes the table from the tests that passed.
`test_client_matrix.py` fails where the table is another than what has just been tested; of
clients of which nothing ran it says nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

CLIENTS_FOLDER = Path(__file__).parent
ROOT = CLIENTS_FOLDER.parents[2]
DOCUMENT = ROOT / "docs" / "postgres.md"
BEGIN = "<!-- clients: written by `pytest --write-client-matrix` -->"
END = "<!-- clients: end -->"


def _python(package: str) -> str:
    """Returns the version of a package that the tests install."""
    names = ["requirements.txt", "requirements-test.txt"]
    text = "\n".join((ROOT / "python" / name).read_text() for name in names)
    found = re.search(rf"^{re.escape(package)}(?:\[\w+\])?==(\S+)$", text, re.MULTILINE)
    assert found, package
    return found[1]


def _node(package: str) -> str:
    return json.loads((CLIENTS_FOLDER / "node" / "package.json").read_text())["dependencies"][
        package
    ]


def _go(module: str) -> str:
    text = (CLIENTS_FOLDER / "go" / "go.mod").read_text()
    found = re.search(rf"{re.escape(module)} v(\S+)", text)
    assert found, module
    return found[1]


def _java() -> str:
    text = (CLIENTS_FOLDER / "java" / "pom.xml").read_text()
    found = re.search(r"<artifactId>postgresql</artifactId>\s*<version>([^<]+)<", text)
    assert found
    return found[1]


SYSTEM = "the system's"

CLIENTS = {
    "psql": lambda: SYSTEM,
    "psycopg": lambda: _python("psycopg"),
    "asyncpg": lambda: _python("asyncpg"),
    "SQLAlchemy": lambda: _python("sqlalchemy"),
    "pandas": lambda: _python("pandas"),
    "pgJDBC": _java,
    "node-postgres": lambda: _node("pg"),
    "pgx": lambda: _go("github.com/jackc/pgx/v5"),
    "lib/pq": lambda: _go("github.com/lib/pq"),
    "Grafana": lambda: "queries of its form",
    "Superset": lambda: "queries of its form",
    "Metabase": lambda: "queries of its form",
    "DBeaver": lambda: "queries of its form",
    "ADBC Flight SQL": lambda: _python("adbc-driver-flightsql"),
    "pyarrow.flight": lambda: _python("pyarrow"),
    "curl": lambda: SYSTEM,
}
"""The clients in the order of the table, and how their versions are found."""


@dataclass
class Matrix:
    """What has been tested in this run."""

    passed: dict[str, set[str]] = field(default_factory=dict)
    """For each client the features whose tests have all passed."""
    others: dict[str, set[str]] = field(default_factory=dict)
    """For each client the features of which a test was left out or failed."""

    def note(self, client: str, feature: str, *, has_passed: bool) -> None:
        """Notes the outcome of a test."""
        assert client in CLIENTS, f"{client} is not a client of the matrix"
        place = self.passed if has_passed else self.others
        place.setdefault(client, set()).add(feature)

    def features(self, client: str) -> set[str]:
        """Returns the features of a client of which all tests have passed."""
        return self.passed.get(client, set()) - self.others.get(client, set())

    def is_whole(self, client: str) -> bool:
        """Returns whether every test of a client that was collected has passed."""
        return client in self.passed and not self.others.get(client)


def row(client: str, features: set[str]) -> str:
    """Returns the row of a client."""
    return f"| {client} | {CLIENTS[client]()} | {'; '.join(sorted(features))} |"


def read() -> dict[str, str]:
    """Returns the rows of the document by the names of the clients."""
    text = DOCUMENT.read_text()
    between = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    rows = [line for line in between.splitlines() if line.startswith("| ")][1:]
    return {line.split("|")[1].strip(): line for line in rows}


def write(matrix: Matrix) -> None:
    """Writes the rows of the clients that were tested; those of the others stay."""
    rows = read()
    for client in CLIENTS:
        if matrix.features(client):
            rows[client] = row(client, matrix.features(client))
    lines = ["| client | version | tested |", "|---|---|---|"]
    lines += [rows[client] for client in CLIENTS if client in rows]
    text = DOCUMENT.read_text()
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    DOCUMENT.write_text("\n".join([before, "", *lines, "", after]))


def differences(matrix: Matrix, *, is_complete: bool) -> list[str]:
    """Returns what the document says otherwise than this run; `is_complete`: all tests ran."""
    rows, found = read(), []
    for client in CLIENTS:
        features = matrix.features(client)
        if not features:
            continue
        if is_complete and matrix.is_whole(client):
            if rows.get(client) != row(client, features):
                found.append(f"{client}: {rows.get(client)} is not {row(client, features)}")
            continue
        written = rows.get(client, "|||").split("|")[3].strip().split("; ")
        found += [f"{client}: {feature} is not in the table" for feature in features - set(written)]
    return found
