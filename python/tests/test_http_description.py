"""Calls made up from the server's own description: each answer is one that it describes.

schemathesis draws paths, parameters, headers and bodies, right and wrong ones, from /openapi.json.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
import urllib.request

import pytest

# What the drawn calls are compared with.
CHECKS = ",".join(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
        "unsupported_method",
        "allow_header_conformance",
    ]
)

# Calls drawn for each operation.
EXAMPLES = 30

SETUP = """
CREATE DATABASE shop;
USE shop;
CREATE TABLE t (k STRING NOT NULL, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
DEPLOY d AS SELECT k, v FROM t;
"""


@pytest.fixture
def address():
    """The address of a server on a free port."""
    command = [sys.executable, "-m", "lockstep", "serve", ":memory:", "--http", "127.0.0.1:0"]
    command += ["--postgres", "off", "--flight", "off"]
    command += ["--set", "server.authentication=none", "--set", "log.level=error"]
    command += ["--set", "postgres.listen=off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield line.removeprefix("listening on ").strip()
        process.terminate()


@pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason="schemathesis is not installed"
)
def test_every_drawn_call_has_an_answer_that_is_described(address, tmp_path):
    body = json.dumps({"sql": SETUP}).encode()
    with urllib.request.urlopen(f"http://{address}/v1/sql", data=body) as reply:
        assert reply.status == 200
    config = pathlib.Path(__file__).with_name("http_checks.toml")
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    command += [f"http://{address}/openapi.json", "--checks", CHECKS, "--seed", "1"]
    command += ["--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES)]
    command += ["--continue-on-failure", "--no-color"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    print(done.stdout[-1_000:])
