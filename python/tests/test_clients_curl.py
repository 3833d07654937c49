"""curl against a served directory: the calls that `docs/server.md` shows."""

from __future__ import annotations

import json
import subprocess

import pytest

from clients.programs import needs

pytestmark = needs("curl")


def curl(served, path: str, *arguments: str) -> tuple[int, str]:
    """Returns the status and the body of an answer."""
    command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", *arguments]
    done = subprocess.run(
        [*command, f"http://{served.http}{path}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


@pytest.mark.client("curl", "request rows of a deployment")
def test_requests(served):
    row = {"user": "ann", "price": 2, "ts": "2024-01-01 12:00:00", "ok": None, "day": None}
    status, body = curl(served, "/v1/deployments/total", "--data", json.dumps(row))
    assert (status, json.loads(body)) == (200, {"user": "ann", "spent": 3.5})
    status, body = curl(served, "/v1/deployments/total", "--data", json.dumps([row, row]))
    assert (status, json.loads(body)) == (200, [{"user": "ann", "spent": 3.5}] * 2)


@pytest.mark.client("curl", "SQL")
def test_sql(served):
    sql = "SELECT user FROM orders WHERE user = ? AND price > ?"
    call = json.dumps({"sql": sql, "parameters": ["ann", 1]})
    status, body = curl(served, "/v1/sql", "--data", call)
    assert (status, json.loads(body)["rows"]) == (200, [["ann"]])
    status, body = curl(served, "/v1/sql", "--data", json.dumps({"sql": "SELECT nothing"}))
    assert status == 400, body


@pytest.mark.client("curl", "appends of CSV and NDJSON")
def test_appends(served):
    made = json.dumps({"sql": "CREATE TABLE curl_rows (name STRING, price DOUBLE)"})
    assert curl(served, "/v1/sql", "--data", made)[0] == 200
    csv = ["--header", "Content-Type: text/csv", "--data-binary", "name,price\na,1.5\nb,\n"]
    assert curl(served, "/v1/tables/curl_rows", *csv)[0] == 200
    lines = '{"name": "c", "price": 2}\n{"name": "d", "price": 3}\n'
    ndjson = ["--header", "Content-Type: application/x-ndjson", "--data-binary", lines]
    assert curl(served, "/v1/tables/curl_rows", *ndjson)[0] == 200
    call = json.dumps({"sql": "SELECT count(*), sum(price) FROM curl_rows"})
    assert json.loads(curl(served, "/v1/sql", "--data", call)[1])["rows"] == [[4, 6.5]]


def test_bodies_that_are_no_rows(served):
    """What is wrong is said, and nothing is stored."""
    made = json.dumps({"sql": "CREATE TABLE curl_refused (name STRING, n SMALLINT)"})
    assert curl(served, "/v1/sql", "--data", made)[0] == 200
    csv, lines = "text/csv", "application/x-ndjson"
    for kind, body, message in [
        (csv, "name,name\na,b\n", "column `name` specified more than once in the header"),
        (csv, "name,n\na\n", "line 2 of the body: expected 2 fields, found 1"),
        (lines, '{"n": 1, "n": 2}', "column `n` specified more than once in the row"),
        (lines, '{"n": 40000}', "column `n`: value 40000 is out of range for type SMALLINT"),
        (lines, "[1]", "column `name` is of type STRING but the value is the number 1"),
        (lines, '["a", 1, 2]', "the row has 3 values but 2 columns are expected"),
    ]:
        given = ["--header", f"Content-Type: {kind}", "--data-binary", body]
        status, answer = curl(served, "/v1/tables/curl_refused", *given)
        assert status == 400, answer
        assert json.loads(answer)["error"]["message"] == message
    call = json.dumps({"sql": "SELECT count(*) FROM curl_refused"})
    assert json.loads(curl(served, "/v1/sql", "--data", call)[1])["rows"] == [[0]]


@pytest.mark.client("curl", "health and metrics")
def test_health(served):
    assert curl(served, "/healthz")[0] == 200
    assert curl(served, "/readyz")[0] == 200
    status, body = curl(served, "/metrics")
    assert status == 200
    assert "# TYPE" in body
