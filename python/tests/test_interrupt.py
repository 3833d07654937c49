"""Ctrl-C, deadlines and forked processes: what ends a call, and its effects."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest

import lockstep

WAIT_S = 60
"""Much longer than a cancelled call takes, much shorter than the work would."""

SETUP = """
import os, signal, sys
import lockstep
import pyarrow as pa

def table(rows, keys=1):
    return pa.table({
        "k": pa.array((i % keys for i in range(rows)), pa.int32()),
        "v": pa.array(range(rows), pa.int64()),
    })

db = lockstep.connect()
db.append("t", table(300_000))
db.append("u", table(300_000))

def count(name):
    return db.sql(f"SELECT count(*) AS n FROM {name}").fetchall()[0][0]

def interrupted(work, after):
    '''Runs the work, presses Ctrl-C after so many seconds, and returns the outcome.'''
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, max(after, 0.001))
    try:
        outcome = work()
    except KeyboardInterrupt:
        return "interrupted"
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        # A Ctrl-C too late for a write ends the next statement.
        db.execute("SELECT 1")
    except KeyboardInterrupt:
        pass
    return outcome
"""


def child(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SETUP + script], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PAIRS = "FROM t AS a {} t AS b {} ON a.k = b.k AND a.v + b.v < 0"
JOIN = f"SELECT count(*) AS n {PAIRS.format('JOIN', '')}"
LAST_JOIN = f"SELECT a.v {PAIRS.format('LAST JOIN', 'ORDER BY b.v')}"
WINDOW = """SELECT ew_avg(v, 0.5) OVER w AS d FROM t
    WINDOW w AS (UNION u PARTITION BY k ORDER BY v
        ROWS BETWEEN 100000 PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW)"""

# Each would take minutes without an interrupt.
LONG = {
    "join": f"db.sql({JOIN!r}).fetchall()",
    "last join": f"db.execute({LAST_JOIN!r})",
    "window": f"db.execute({WINDOW!r})",
    "script": 'db.execute("SELECT count(*) AS n FROM t; " * 20_000)',
    "insert": 'db.execute("INSERT INTO t VALUES " + ", ".join(["(1, 1 + 1)"] * 20_000))',
    "whole request": f"db.request({JOIN!r}, dict(k=0, v=1))",
}


@pytest.mark.parametrize("what", LONG)
def test_a_call_that_lasts_is_interrupted(what):
    script = f"""
print(interrupted(lambda: {LONG[what]}, 0.5), count("t"))
"""
    assert child(script).split() == ["interrupted", "300000"]


def test_requests_and_verify_are_interrupted():
    script = """
# Each answer reads all rows before its own.
db.execute("SET pre_aggregation = 'off'")
db.execute('''DEPLOY d AS SELECT v, sum(v) OVER w AS s FROM t
    WINDOW w AS (PARTITION BY k ORDER BY v ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)''')
import pyarrow
rows = pyarrow.concat_tables([db.sql("SELECT * FROM t").arrow()] * 50)
print(interrupted(lambda: db.request("d", rows), 0.5))
print(interrupted(lambda: db.verify("d"), 0.5))
print(count("t"))
"""
    assert child(script).split() == ["interrupted", "interrupted", "300000"]


def test_an_interrupted_append_leaves_all_or_nothing():
    script = """
import warnings
warnings.simplefilter("ignore")
rows = table(400_000, keys=1_000)
for step in range(12):
    name = f"t{step}"
    if step % 2:
        db.execute(f"CREATE TABLE {name} (k INT, v BIGINT)")
    outcome = interrupted(lambda: db.append(name, rows), step * 0.03)
    try:
        print(outcome, count(name))
    except lockstep.Error as error:
        print(outcome, error.code)
"""
    outcomes = [line.split() for line in child(script).splitlines()]
    assert len(outcomes) == 12
    for step, (outcome, found) in enumerate(outcomes):
        # The table that the append would have created does not exist.
        nothing = "0" if step % 2 else "42P01"
        expected = ("interrupted", nothing), ("400000", "400000")
        assert (outcome, found) in expected, outcomes


@pytest.mark.parametrize(
    "write", ['db.execute("INSERT INTO w VALUES (1)")', 'db.append("w", chunk)']
)
def test_one_interrupt_ends_a_loop_of_writes_that_are_there_or_not(write):
    script = f"""
import warnings
warnings.simplefilter("ignore")
db.execute("CREATE TABLE w (v BIGINT)")
chunk = table(50_000).select(["v"])
rows = 1 if "INSERT" in {write!r} else 50_000
wrote = 0
def loop():
    global wrote
    while True:
        {write}
        wrote += rows
print(interrupted(loop, 0.7), (count("w") - wrote) // rows, (count("w") - wrote) % rows)
"""
    outcome, uncounted, parts = child(script).split()
    # Python itself may interrupt the loop after a write has returned and before it is counted.
    assert (outcome, parts) == ("interrupted", "0") and uncounted in ("0", "1")


def test_an_interrupted_export_leaves_no_file(tmp_path):
    script = f"""
sql = "SELECT a.v, b.v AS w FROM t AS a JOIN t AS b ON a.k = b.k INTO OUTFILE '{tmp_path}/x.csv'"
print(interrupted(lambda: db.execute(sql), 1.0))
"""
    assert child(script).split() == ["interrupted"]
    assert os.listdir(tmp_path) == []


def test_what_another_handler_raises_ends_the_call_and_is_raised():
    script = f"""
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    {LONG["join"]}
except Stop:
    print("stopped")
"""
    assert child(script).split() == ["stopped"]


def test_a_statement_ends_after_its_time():
    db = lockstep.connect()
    db.append("t", [{"k": 1, "v": v} for v in range(20_000)])
    db.execute("SET statement_timeout = '20ms'")
    sql = "SELECT count(*) AS n FROM t AS a JOIN t AS b ON a.k = b.k AND a.v + b.v < 0"
    for call in (lambda: db.sql(sql).fetchall(), lambda: db.execute(sql)):
        with pytest.raises(lockstep.Error) as raised:
            call()
        assert raised.value.code == "57014"
    db.execute("SET statement_timeout = 0")
    assert len(db.sql("SELECT v FROM t")) == 20_000


def query(db: lockstep.Connection) -> list[tuple]:
    sql = """SELECT v, sum(v) OVER w AS s FROM t
        WINDOW w AS (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"""
    rows = db.sql(sql).fetchall()
    assert db.request(sql, {"k": 1, "v": 9}) == {"v": 9, "s": 11}
    db.append("t", [{"k": 2, "v": 7}])
    return rows


def in_child(db: lockstep.Connection, results: multiprocessing.Queue) -> None:
    results.put(query(db))


def test_a_forked_child_works():
    db = lockstep.connect()
    db.append("t", [{"k": 1, "v": 1}, {"k": 1, "v": 2}])
    sql = "SELECT v FROM t ORDER BY v"
    assert db.sql(sql).fetchall() == [(1,), (2,)]
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=in_child, args=(db, results)) for _ in range(2)]
    for process in children:
        process.start()
    try:
        assert [results.get(timeout=WAIT_S) for _ in children] == [[(1, 1), (2, 3)]] * 2
    finally:
        for process in children:
            process.terminate()
            process.join()
    # A child has its own copy of the tables.
    assert db.sql(sql).fetchall() == [(1,), (2,)]
