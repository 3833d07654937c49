"""The memory that the machine gives the process: a statement ends where the process would."""

import resource
import subprocess
import sys
import textwrap

import pytest

LIMITED = """
    import resource
    import lockstep
    import numpy as np
    import pyarrow as pa

    db = lockstep.connect()
    db.execute("CREATE TABLE t (k BIGINT, s STRING)")
    texts = pa.array([f"{number:040}" for number in range(100_000)])
    rows = pa.table({"k": np.arange(100_000), "s": texts})
    # Once everything that is done below: the threads that it starts have addresses of their own.
    db.append("t", rows)
    db.sql("SELECT count(*) FROM t").fetchall()
    db.execute("TRUNCATE TABLE t")
    db.append("t", rows)
    db.sql("SELECT count(*) FROM (SELECT s FROM t ORDER BY s)").fetchall()
    with open("/proc/self/status") as status:
        size = next(int(line.split()[1]) for line in status if line.startswith("VmSize"))
    limit = (size << 10) + (400 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""


def run_limited(code):
    """Runs code where 400 MiB more may be taken; returns what it prints."""
    script = textwrap.dedent(LIMITED) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.split()


pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(resource, "RLIMIT_AS"), reason="Linux has the limit"
)


def test_a_write_that_the_machine_has_no_memory_for_is_refused():
    code = """
        try:
            for _ in range(200):
                db.append("t", rows)
        except lockstep.Error as error:
            print(error.code)
        count = db.sql("SELECT count(*) FROM t").fetchall()[0][0]
        print(count % 100_000, count > 200_000)
        db.execute("TRUNCATE TABLE t")
        db.append("t", rows)
        print(db.sql("SELECT count(*) FROM t").fetchall()[0][0])
    """
    assert run_limited(code) == ["53200", "0", "True", "100000"]


def test_a_query_that_the_machine_has_no_memory_for_ends():
    code = """
        query = "SELECT count(*) FROM (SELECT DISTINCT a.s || b.s AS x FROM t AS a, t AS b)"
        try:
            db.sql(query).fetchall()
        except lockstep.Error as error:
            print(error.code)
        print(db.sql("SELECT count(*) FROM t").fetchall()[0][0])
    """
    assert run_limited(code) == ["53200", "100000"]
