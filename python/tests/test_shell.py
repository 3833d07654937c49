"""The program that the package installs."""

from __future__ import annotations

import subprocess
import sys

import lockstep


def shell(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lockstep", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)


def test_statements_from_the_command_line():
    done = shell("-c", "SELECT 1 AS one; SELECT NULL AS none, 'x' AS x")
    assert done.returncode == 0, done.stderr
    assert "one\n---\n  1\n(1 row, " in done.stdout
    assert "none | x\n-----+--\nNULL | x\n" in done.stdout


def test_statements_from_a_file_and_from_the_input(tmp_path):
    script = "CREATE TABLE t (a INT);\nINSERT INTO t VALUES (7);\nSELECT a FROM t;\n"
    path = tmp_path / "script.sql"
    path.write_text(script)
    for done in (shell(str(path)), shell(text=script)):
        assert done.returncode == 0, done.stderr
        assert "a\n-\n7\n(1 row, " in done.stdout


def test_an_error_goes_to_stderr_with_exit_code_1():
    done = shell("-c", "SELECT 1;\nSELECT nowhere.a")
    assert done.returncode == 1
    assert done.stderr.startswith("error[")
    assert "line 2: SELECT nowhere.a\n" in done.stderr and "^" in done.stderr


def test_a_directory_is_a_database(tmp_path):
    directory = str(tmp_path / "features.lockstep")
    done = shell("-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (7)", directory)
    assert (done.returncode, done.stderr) == (0, "")
    done = shell(directory, text="SELECT a FROM t;")
    assert (done.returncode, done.stderr) == (0, "")
    assert "a\n-\n7\n(1 row, " in done.stdout
    done = shell("--read-only", "-c", "INSERT INTO t VALUES (8)", directory)
    assert done.returncode == 1 and done.stderr.startswith("error[25006]")
    with lockstep.connect(directory) as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(7,)]
        done = shell(directory, text="SELECT 1;")
        assert done.returncode == 1 and done.stderr.startswith("error[55006]")


def test_version_help_and_what_is_not_there():
    assert shell("--version").stdout.strip() == f"lockstep {lockstep.__version__}"
    assert "Usage" in shell("--help").stdout
    assert shell("serve").returncode == 2
    assert "usage: lockstep demo flights" in shell("demo").stdout
    assert shell("demo", "nothing").returncode == 2
