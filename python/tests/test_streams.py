"""Commands of the program without a terminal: each ends, whatever its streams are, and no stream
is a file of the database.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

import lockstep
from clients.terminal import PROGRAM, WAIT_S

REDIRECTIONS = ("</dev/null", "<&-", ">&-", "2>&-", "<&- >&- 2>&-", "| true")
"""Streams that a script, a container or a service manager may give a program."""


def run(
    arguments: list[str], redirection: str = "", text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the program with redirected streams; fails if it does not end."""
    command = ["sh", "-c", f'"$@" {redirection}', "sh", *PROGRAM, *arguments]
    given = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, **given)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.lockstep")
    assert (
        run(["-q", "-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (7)", path]).returncode == 0
    )
    return path


def test_users_are_made_by_a_script(directory):
    base = ["--database", directory]
    added = run(["user", "add", "app", *base])
    assert added.returncode == 0, added.stderr
    assert added.stdout.startswith("added app\npassword: ")
    given = run(["user", "password", "root", "--password-stdin", *base], text="secret\n")
    assert (given.returncode, given.stdout) == (0, "set the password of root\n")
    listed = run(["user", "list", *base])
    assert listed.returncode == 0 and "app" in listed.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "SELECT 1"],
        ["-f", "{script}"],
        ["-f", "-"],
        [],
        ["{directory}"],
        ["--read-only", "-c", "SELECT * FROM t", "{directory}"],
        ["check", "{directory}"],
        ["user", "list", "--database", "{directory}"],
        ["user", "list", "root", "--database", "{directory}"],
        ["doctor", "{directory}"],
        ["demo", "--help"],
        ["serve", "--print-config"],
        ["serve", "{directory}", "--config", "{script}"],
    ],
    ids=lambda arguments: " ".join(arguments) or "(none)",
)
def test_a_command_ends_without_a_terminal(arguments, directory, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text("SELECT 1;\n")
    given = [part.format(script=script, directory=directory) for part in arguments]
    codes = {redirection: run(given, redirection).returncode for redirection in REDIRECTIONS}
    # The configuration of the last one is wrong, and the doctor finds what it finds.
    expected = 2 if "--config" in arguments else 0
    allowed = {0, 1} if arguments[:1] == ["doctor"] else {expected}
    assert {code for key, code in codes.items() if key != "| true"} <= allowed, codes


def test_a_closed_stream_is_no_file_of_the_database(directory):
    script = "INSERT INTO t VALUES (8); SELECT * FROM t; SELECT nowhere"
    for redirection in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        run(["-c", script, directory], redirection)
    checked = run(["check", directory])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with lockstep.connect(directory) as db:
        assert db.sql("SELECT count(*) AS n FROM t").fetchall() == [(5,)]


def test_a_server_without_streams_serves(directory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*PROGRAM, "serve", directory, "--http", f"127.0.0.1:{port}"]
    command += ["--postgres", "off", "--flight", "off"]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    with subprocess.Popen(closed) as process:
        try:
            deadline = time.monotonic() + WAIT_S
            while not is_alive(port):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
    assert run(["check", directory]).returncode == 0


def is_alive(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=WAIT_S) as reply:
            return reply.status == 200
    except OSError:
        return False


def test_a_server_whose_output_is_not_read_serves(directory):
    command = [*PROGRAM, "serve", directory, "--http", "127.0.0.1:0"]
    command += ["--postgres", "off", "--flight", "off"]
    out = os.pipe()
    os.close(out[0])
    with subprocess.Popen(command, stdout=out[1], stderr=subprocess.PIPE, text=True) as process:
        os.close(out[1])
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("listening on 127.0.0.1:" in line for line in lines)
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(WAIT_S) == 0


def test_a_server_says_what_it_creates(tmp_path):
    wrong = run(["serve", str(tmp_path / "shop")])
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(
        f"error: database `{tmp_path}/shop` does not exist\nhint: Use --create "
    )
    (tmp_path / "shop.lockstep").mkdir()
    mistyped = run(["serve", str(tmp_path / "shpo.lockstep")])
    assert mistyped.returncode == 2
    assert f"but `{tmp_path}/shop.lockstep` does" in mistyped.stderr
    ports = [f"--{name}=127.0.0.1:0" for name in ("http", "postgres", "flight")]
    for path, more in (("new/a.lockstep", []), ("new/b", ["--create"])):
        (tmp_path / "new").mkdir(exist_ok=True)
        command = [*PROGRAM, "serve", str(tmp_path / path), *ports, *more]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            line = next(line for line in lines if not line.startswith("open"))
            process.terminate()
            process.stderr.read()
        assert line == f"created database `{tmp_path}/{path}`\n"


def test_a_server_checks_its_files_before_it_opens_the_database(directory, tmp_path):
    missing = str(tmp_path / "missing")
    for key, text in (
        (
            "server.file_folders",
            f"error: server.file_folders: could not access directory `{missing}`: ",
        ),
        (
            "server.temp_folders",
            f"error: server.temp_folders: could not access directory `{missing}`: ",
        ),
        ("tls.certificate", f"error: could not read file `{missing}`: "),
    ):
        more = ["--set", f"tls.key={missing}"] if key.startswith("tls") else []
        # A second process could not open the directory: it is not tried.
        with lockstep.connect(directory):
            done = run(["serve", directory, "--set", f"{key}={missing}", *more])
        assert done.returncode == 1 and done.stderr.startswith(text), done.stderr
