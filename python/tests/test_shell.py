"""The program that the package installs."""

from __future__ import annotations

import csv
import io
import json
import subprocess

import lockstep
from clients.terminal import PROGRAM


def shell(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)


def test_statements_from_the_command_line():
    done = shell("-c", "SELECT 1 AS one; SELECT NULL AS none, 'x' AS x")
    assert done.returncode == 0, done.stderr
    assert "one\n---\n  1\n(1 row)" in done.stdout
    assert "none | x\n-----+--\nNULL | x\n" in done.stdout


def test_statements_from_a_file_and_from_the_input(tmp_path):
    script = "CREATE TABLE t (a INT);\nINSERT INTO t VALUES (7);\nSELECT a FROM t;\n"
    path = tmp_path / "script.sql"
    path.write_text(script)
    for done in (shell(str(path)), shell(text=script)):
        assert done.returncode == 0, done.stderr
        assert "a\n-\n7\n(1 row)" in done.stdout


def test_an_error_goes_to_stderr_with_exit_code_1():
    done = shell("-c", "SELECT 1;\nSELECT nowhere.a")
    assert done.returncode == 1
    assert done.stderr.startswith("error[")
    assert "line 2: SELECT nowhere.a\n" in done.stderr and "^" in done.stderr


def test_an_output_that_cannot_be_written_is_reported():
    command = [*PROGRAM, "-c", "SELECT 1"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("error[53100]: could not write the output\ndetail: No space left")


def test_a_comment_that_does_not_end_is_an_error():
    for done in (shell("-c", "/* SELECT 1"), shell(text="SELECT 1 AS a /* b;")):
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error[42601]: unterminated comment")


def notes(done: subprocess.CompletedProcess[str]) -> str:
    """What is on the standard error, without how long opening took, which a busy machine says."""
    lines = done.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("open"))


def test_a_directory_is_a_database(tmp_path):
    directory = str(tmp_path / "features.lockstep")
    done = shell("-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (7)", directory)
    assert (done.returncode, done.stdout) == (0, "")
    assert notes(done) == "CREATE TABLE\nINSERT (1 row)\n"
    done = shell(directory, text="SELECT a FROM t;")
    assert (done.returncode, notes(done)) == (0, "")
    assert "a\n-\n7\n(1 row)" in done.stdout
    done = shell("--read-only", "-c", "INSERT INTO t VALUES (8)", directory)
    assert done.returncode == 1 and notes(done).startswith("error[25006]")
    with lockstep.connect(directory) as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(7,)]
        done = shell(directory, text="SELECT 1;")
        assert done.returncode == 1 and notes(done).startswith("error[55006]")


def test_formats_for_programs_are_read_by_programs():
    sql = "SELECT 'a,\"b\"\nc' AS k, 0.1 + 0.2 AS x, cast('nan' AS double) AS n, NULL AS none"
    done = shell("--csv", "-c", "CREATE TABLE t (a INT)", "-c", sql)
    assert list(csv.DictReader(io.StringIO(done.stdout, newline=""))) == [
        {"k": 'a,"b"\nc', "x": "0.30000000000000004", "n": "NaN", "none": ""}
    ]
    done = shell("--json", "-q", "-c", "CREATE TABLE t (a INT)", "-c", sql)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [
        {"k": 'a,"b"\nc', "x": 0.30000000000000004, "n": "NaN", "none": None}
    ]
    done = shell("--markdown", "-c", "SELECT 1 AS one")
    assert done.stdout == "| one |\n|---:|\n| 1 |\n"


def test_scripts_of_windows_and_commands_in_them(tmp_path):
    path = tmp_path / "script.sql"
    path.write_bytes(
        b"\xef\xbb\xbfCREATE TABLE t (a INT);\r\n\\dt\r\n.mode csv\r\nSHOW TABLES;\r\n"
    )
    for done in (shell("-f", str(path)), shell("-", text=path.read_text("utf-8"))):
        assert done.returncode == 0, done.stderr
        assert "table\n-----\nt\n(1 row)\n" in done.stdout
    done = shell("-c", "\\tables")
    assert done.returncode == 1
    assert "did you mean `.tables`? `\\?` lists the commands" in done.stderr


def test_version_help_and_what_is_not_there():
    assert shell("--version").stdout.strip() == f"lockstep {lockstep.__version__}"
    assert "Usage" in shell("--help").stdout
    assert shell("serve").returncode == 2
    if PROGRAM[1:] == ["-m", "lockstep"]:
        # The program without the package has no demonstrations.
        assert "usage: lockstep demo flights" in shell("demo").stdout
        assert shell("demo", "nothing").returncode == 2
