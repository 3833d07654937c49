"""The shell at a terminal: Ctrl-C and Ctrl-D, history, completion, the pager and wide results."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from clients.terminal import PROGRAM, WAIT_S, shell_terminal

ROWS = ", ".join(f"(1, {value})" for value in range(100))
JOINS = " ".join(f"JOIN t AS t{i} ON t.k = t{i}.k" for i in range(6))
LONG = f"SELECT count(*) AS n FROM t {JOINS}"
"""Runs for hours, where it is not cancelled."""

CANCELLED = "error[57014]: the statement was cancelled"


def test_the_history_has_an_entry_for_each_statement_and_no_password(tmp_path):
    with shell_terminal(tmp_path) as shell:
        shell.run("SELECT 1;", "(1 row)")
        shell.type("CREATE USER ann\r")
        shell.wait_for("...> ")
        shell.run("OPTIONS(password='hush');", "CREATE USER\n")
        shell.type("SELECT 40\r")
        shell.wait_for("...> ")
        shell.run("+ 1 AS two_lines;", "(1 row)")
        shell.run("\\dt", "(0 rows)")
    history = (tmp_path / ".lockstep_history").read_text()
    assert "SELECT 1;" in history and "\\dt" in history.replace("\\\\", "\\")
    assert "hush" not in history and "ann" not in history
    assert len([line for line in history.splitlines() if "SELECT" in line or "+ 1" in line]) == 2
    # The next session has it: two steps back is the statement of two lines.
    with shell_terminal(tmp_path) as shell:
        shell.type("\x1b[A\x1b[A\r")
        assert "two_lines" in shell.wait_for("(1 row)")


def test_ctrl_c_cancels_a_statement_and_keeps_the_tables(tmp_path):
    with shell_terminal(tmp_path) as shell:
        shell.run("CREATE TABLE t (k INT, v INT);", "CREATE TABLE\n")
        shell.run(f"INSERT INTO t VALUES {ROWS};", "INSERT (100 rows)")
        shell.type(f"{LONG};\r")
        # Repeated, since no output shows when the statement has begun.
        shell.wait_for(CANCELLED, meanwhile=lambda: os.kill(shell.process, signal.SIGINT))
        shell.wait_for("lockstep> ")
        shell.run("SELECT count(*) + 4000 AS n FROM t;", "4100")


def test_ctrl_c_clears_the_line_and_ctrl_d_ends_the_shell(tmp_path):
    with shell_terminal(tmp_path) as shell:
        shell.type("SELECT nonsense")
        shell.wait_for("nonsense")
        shell.type("\x03")
        shell.wait_for("lockstep> ")
        shell.type("SELECT\r")
        shell.wait_for("...> ")
        shell.type("\x03")
        shell.wait_for("lockstep> ")
        assert "error" not in shell.run("SELECT 7 * 6 AS n;", "42")
        shell.type("\x04")
        assert shell.exit_code() == 0


def test_ctrl_c_cancels_a_statement_of_a_server(tmp_path, server):
    with shell_terminal(tmp_path, f"lockstep://{server.flight}") as shell:
        shell.run("CREATE DATABASE ctrl_c;", "CREATE DATABASE\n")
        shell.run("USE ctrl_c;", "Time: ")
        shell.run("CREATE TABLE t (k INT, v INT);", "CREATE TABLE\n")
        shell.run(f"INSERT INTO t VALUES {ROWS};", "INSERT (100 rows)")
        shell.type(f"{LONG};\r")
        shell.wait_for("error[57014]", meanwhile=lambda: os.kill(shell.process, signal.SIGINT))
        shell.wait_for("lockstep> ")
        shell.run("SELECT count(*) + 4000 AS n FROM t;", "4100")
        shell.run("DROP TABLE t;", "DROP TABLE\n")
        shell.run("DROP DATABASE ctrl_c;", "DROP DATABASE\n")


def test_ctrl_c_ends_watching(tmp_path):
    with shell_terminal(tmp_path) as shell:
        shell.type("SELECT 11 AS eleven \\watch 0.05\r")
        for _ in range(3):
            shell.wait_for("(1 row)")
        os.kill(shell.process, signal.SIGINT)
        shell.wait_for("lockstep> ")
        shell.run("SELECT 7 * 6 AS n;", "42")


def test_ctrl_c_ends_a_script(tmp_path):
    script = f"""CREATE TABLE t (k INT, v INT); INSERT INTO t VALUES {ROWS};
        SELECT 1 AS begun; {LONG}; SELECT 1 AS never;"""
    path = tmp_path / "script.sql"
    path.write_text(script)
    process = subprocess.Popen(
        [*PROGRAM, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while "begun" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    assert "never" not in out


def test_tab_completes_what_fits(tmp_path):
    with shell_terminal(tmp_path) as shell:
        shell.run("CREATE TABLE orders (price_of_it INT, k STRING);", "CREATE TABLE\n")
        shell.run("DEPLOY cheap_ones AS SELECT k FROM orders;", "DEPLOY\n")
        for typed, completed in [
            ("SELECT * FROM or\t", "SELECT * FROM orders"),
            ("SELECT 1 FROM orders AS o WHERE o.pr\t", "o.price_of_it"),
            ("SHOW DEPLOYMENT ch\t", "SHOW DEPLOYMENT cheap_ones"),
            ("SELECT topn_f\t", "topn_frequency"),
            ("\\tim\t", "\\timing"),
            ("\\d or\t", "\\d orders"),
        ]:
            shell.type(typed)
            shell.wait_for(completed)
            shell.type("\x03")
            shell.wait_for("lockstep> ")
        shell.type("SELECT 'topn_f\tx")
        assert "topn_frequency" not in shell.wait_for("topn_fx")


def test_tab_completes_names_of_a_server(tmp_path, server):
    with shell_terminal(tmp_path, f"lockstep://{server.flight}") as shell:
        shell.run("CREATE DATABASE tab;", "CREATE DATABASE\n")
        shell.run("USE tab;", "Time: ")
        shell.run("CREATE TABLE remote_orders (price_of_it INT);", "CREATE TABLE\n")
        shell.type("SELECT 1 FROM rem\t AS o WHERE o.pri\t = 0;\r")
        shell.wait_for("FROM remote_orders AS o WHERE o.price_of_it = 0;")
        shell.wait_for("(0 rows)")
        shell.run("DROP TABLE remote_orders;", "DROP TABLE\n")
        shell.run("DROP DATABASE tab;", "DROP DATABASE\n")


def test_a_long_result_is_shown_in_the_pager(tmp_path):
    (tmp_path / "pager").write_text("#!/bin/sh\necho paged; cat; echo left\n")
    (tmp_path / "pager").chmod(0o755)
    pager = f"{tmp_path}/pager"
    values = ", ".join(f"({value})" for value in range(40))
    with shell_terminal(tmp_path, PAGER=pager) as shell:
        shell.run("CREATE TABLE t (v INT);", "CREATE TABLE\n")
        shell.run(f"INSERT INTO t VALUES {values};", "INSERT (40 rows)")
        shell.type("SELECT v FROM t;\r")
        shell.wait_for("paged")
        shell.wait_for("(40 rows)")
        shell.wait_for("left")
        shell.wait_for("lockstep> ")
        assert "paged" not in shell.run("SELECT v FROM t LIMIT 3;", "(3 rows)")
        shell.run("\\pager off", "The pager is off.")
        assert "paged" not in shell.run("SELECT v FROM t;", "(40 rows)")
    with shell_terminal(tmp_path, PAGER="no-such-pager") as shell:
        shell.run("SHOW FUNCTIONS;", " rows")


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_the_pager_is_less_unless_another_is_named(tmp_path):
    values = ", ".join(f"({value})" for value in range(1_000, 1_040))
    with shell_terminal(tmp_path, PAGER="", LESS="") as shell:
        shell.run("CREATE TABLE t (v INT);", "CREATE TABLE\n")
        shell.run(f"INSERT INTO t VALUES {values};", "INSERT (40 rows)")
        shell.type("SELECT v FROM t ORDER BY v;\r")
        # It waits at the end of the screen.
        assert "1021" not in shell.wait_for("1020\n:")
        shell.type("q")
        assert "1021" not in shell.wait_for("lockstep> ")
        shell.run("SELECT 7 * 6 AS n;", "42")


def test_a_pasted_statement_of_several_lines_runs_once(tmp_path):
    with shell_terminal(tmp_path) as shell:
        shell.type("\x1b[200~SELECT\n  40 + 2 AS pasted\n;\x1b[201~\r")
        shell.wait_for("pasted\n------\n    42\n(1 row)")
        shell.wait_for("lockstep> ")
    assert "pasted" in (tmp_path / ".lockstep_history").read_text()


def test_wide_results_have_the_columns_that_fit(tmp_path):
    with shell_terminal(tmp_path, columns=40) as shell:
        columns = ", ".join(f"'{'x' * 10}' AS c{number}" for number in range(8))
        shell.type(f"SELECT {columns};\r")
        shell.wait_for("c0         | c1         | c2\n")
        shell.wait_for("(1 row; 5 of 8 columns hidden")
        shell.run("\\x", "Expanded output is on.")
        shell.type(f"SELECT {columns};\r")
        shell.wait_for("\nc7 | xxxxxxxxxx\n(1 row)\n")


def test_times_are_shown_at_the_prompt_until_they_are_off(tmp_path):
    with shell_terminal(tmp_path) as shell:
        shell.run("SELECT 1 AS a;", "(1 row)\n\nTime: ")
        shell.run("\\timing off", "Timing is off.")
        shell.type("SELECT 1 AS a;\r")
        shell.wait_for("(1 row)")
        assert "Time" not in shell.wait_for("lockstep> ")
