"""pgJDBC against a served directory: a small Java program, compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients.programs import call, installed, lines, needs

pytestmark = needs("java", "javac", "mvn")


def install(folder: Path) -> None:
    call(
        [
            "mvn",
            "--quiet",
            "--batch-mode",
            "dependency:copy-dependencies",
            "-DoutputDirectory=jars",
        ],
        folder,
    )
    call(["javac", "-cp", "jars/*", "-d", ".", "Client.java"], folder)


@pytest.fixture(scope="module")
def client(served):
    """Runs a scenario of the program and returns what it prints."""
    folder = installed("java", ["pom.xml", "Client.java"], install)
    port = str(served.postgres_port)

    def run(*arguments: str) -> list[str]:
        return lines(["java", "-cp", "jars/*:.", "Client", port, *arguments], folder)

    return run


@pytest.mark.client("pgJDBC", "statements")
@pytest.mark.parametrize("mode", ["extended", "simple"])
def test_statements(client, mode):
    found = client("statements", mode)
    rows = ["ann|1.5|t|2020-01-01", "ann|3.5", "2024-01-01T11:30:00Z"]
    assert found == [*rows, "0", "2"]


@pytest.mark.client("pgJDBC", "prepared statements")
@pytest.mark.parametrize("mode", ["extended", "simple", "extendedForPrepared"])
def test_prepared_statements(client, mode):
    found = client("prepared", mode)
    assert found[:7] == ["ann|1.5"] * 7
    assert found[7:14] == [f"ann|{price + 1.5}" for price in range(1, 8)]
    assert found[14:] == ["user|text", "spent|float8", "float8"]


@pytest.mark.client("pgJDBC", "batches")
def test_batches(client):
    assert client("batch") == ["300", "300|44850"]


@pytest.mark.client("pgJDBC", "COPY")
def test_copy(client):
    assert client("copy") == ["2", "a,1", "b,2.5"]


@pytest.mark.client("pgJDBC", "cursors")
def test_cursor(client):
    assert client("cursor") == ["55"]


@pytest.mark.client("pgJDBC", "errors in transactions")
def test_errors(client):
    assert client("errors") == ["42703", "25P02", "1"]


@pytest.mark.client("pgJDBC", "metadata")
def test_metadata(client):
    found = client("metadata")
    assert found[:1] == ["PostgreSQL|16"]
    of = {line.split("|")[0]: [] for line in found[1:]}
    for line in found[1:]:
        title, *values = line.split("|")
        of[title].append(tuple(values))
    assert ("default",) in of["catalogs"]
    assert ("public",) in of["schemas"]
    assert ("TABLE",) in of["types"]
    assert of["tables"] == [("public", "orders", "TABLE")]
    assert of["all tables"] == [("numbers",)]
    # The types are those of java.sql.Types.
    assert of["columns"] == [
        ("user", "12", "text", "2147483647", "0", "1", "NO"),
        ("price", "8", "float8", "17", "1", "2", "YES"),
        ("ts", "93", "timestamptz", "35", "1", "3", "YES"),
        ("ok", "-7", "bool", "1", "1", "4", "YES"),
        ("day", "91", "date", "13", "1", "5", "YES"),
    ]
    for empty in ("primary keys", "imported keys", "exported keys", "best row"):
        assert empty not in of
    assert of["indexes"] == [("t", "3", "1", "user"), ("t", "3", "2", "ts")]
    assert of["functions"] == [("public", "total")]
    assert of["function columns"] == [
        ("user", "text"),
        ("price", "float8"),
        ("ts", "timestamptz"),
        ("ok", "bool"),
        ("day", "date"),
        ("user", "text"),
        ("spent", "float8"),
    ]
    assert of["type info"] == [("4",)]
    assert of["name length"] == [("63",)]
