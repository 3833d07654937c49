"""pgx and lib/pq against a served directory: a Go program, compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients.programs import call, installed, lines, needs

pytestmark = needs("go")


def install(folder: Path) -> None:
    call(["go", "build", "-o", "client", "."], folder, GOFLAGS="-mod=readonly")


@pytest.fixture(scope="module")
def client(served):
    """Runs a scenario of the program and returns what it prints."""
    folder = installed("go", ["go.mod", "go.sum", "main.go"], install)
    port = str(served.postgres_port)

    def run(scenario: str) -> list[str]:
        return lines(["./client", port, scenario], folder)

    return run


ROW = "ann 1.5 2024-01-01T11:30:00Z true"
QUERIES = [ROW, ROW, "4", "[1 2 3]", "orders"]


@pytest.mark.client("pgx", "extended protocol")
def test_extended(client):
    assert client("extended") == QUERIES


@pytest.mark.client("pgx", "extended protocol without descriptions")
def test_extended_without_descriptions(client):
    assert client("exec") == QUERIES


@pytest.mark.client("pgx", "simple protocol")
def test_simple(client):
    assert client("simple") == QUERIES


@pytest.mark.client("pgx", "CopyFrom")
def test_copy(client):
    assert client("copy") == ["1000 1000 499500"]


@pytest.mark.client("pgx", "batches")
def test_batches(client):
    assert client("batch") == ["1 2 3 4 5 "]


@pytest.mark.client("pgx", "errors and cancellation")
def test_errors(client):
    assert client("errors") == ["42703 8", "true true", "1"]


@pytest.mark.client("lib/pq", "database/sql and COPY")
def test_libpq(client):
    assert client("lib/pq") == ["ann 1.5", "100", "42703"]
