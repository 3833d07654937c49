"""node-postgres against a served directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clients.programs import call, installed, lines, needs

pytestmark = needs("node", "npm")


def install(folder: Path) -> None:
    call(["npm", "ci", "--silent", "--no-audit", "--no-fund"], folder)


@pytest.fixture(scope="module")
def client(served):
    """Runs a scenario of the program and returns what it prints."""
    folder = installed("node", ["package.json", "package-lock.json", "client.js"], install)
    port = str(served.postgres_port)

    def run(scenario: str) -> list[object]:
        return [json.loads(line) for line in lines(["node", "client.js", port, scenario], folder)]

    return run


ANN = {"user": "ann", "price": 1.5}


@pytest.mark.client("node-postgres", "queries")
def test_queries(client):
    rows, columns, both, command, count = client("query")
    assert rows == [{**ANN, "ts": "2024-01-01T11:30:00.000Z", "ok": True}]
    assert columns == [["user", 25], ["price", 701], ["ts", 1184], ["ok", 16]]
    assert both == [[{"a": 1}], [{"b": "x"}]]
    assert (command, count) == ("CREATE", 3)


@pytest.mark.client("node-postgres", "parameters")
def test_parameters(client):
    rows, call_rows, constants, binary = client("parameters")
    assert (rows, call_rows) == ([ANN], [{"user": "ann", "spent": 4}])
    assert constants == [["o'b\\\"é", None]]
    assert sorted(row["number"] for row in binary) == [1, 2]


@pytest.mark.client("node-postgres", "named statements")
def test_named_statements(client):
    assert client("named") == [[{"spent": 1.5 + price}] for price in range(1, 6)]


@pytest.mark.client("node-postgres", "cursors")
def test_cursors(client):
    assert client("cursor") == [[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]], 1, [{"after": 1}]]


@pytest.mark.client("node-postgres", "errors in transactions")
def test_errors(client):
    found = client("errors")
    assert found[0] == ["42703", "8", "ERROR"]
    assert found[1][0] == "42601"
    assert found[2:] == ["42703", "25P02", [{"after": 1}]]
