"""Jobs of a process that was killed, and of one that runs, as other clients see them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lockstep

WAIT_S = 60

ENDLESS = """
import sys, threading
import lockstep
path, out = sys.argv[1:]
db = lockstep.connect(path)
db.append("t", [{"v": v} for v in range(100_000)])
def watch():
    other = db.cursor() if hasattr(db, "cursor") else db
    while not any(job[2] == "Running" for job in other.execute("SHOW JOBS").fetchall()):
        pass
    print("running", flush=True)
threading.Thread(target=watch).start()
db.execute(f"SELECT a.v FROM t AS a, t AS b WHERE a.v + b.v < 0 INTO OUTFILE '{out}'")
"""


def test_a_job_of_a_killed_process_has_failed(tmp_path: Path) -> None:
    """Opening the directory says so, once and for all, and the numbers go on."""
    path = tmp_path / "db"
    child = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(path), str(tmp_path / "out.csv")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n", child.communicate()[1]
    child.kill()
    child.wait(timeout=WAIT_S)
    for _ in range(2):
        with lockstep.connect(str(path)) as db:
            columns = "id, state, ended, error, step, fraction"
            jobs = db.sql(f"SELECT {columns} FROM lockstep.jobs ORDER BY id").fetchall()
            lost = (1, "failed", None, "the process ended while the job was running", None, None)
            assert jobs[0] == lost
            assert all(job[1] == "finished" for job in jobs[1:])
            db.execute(f"SELECT v FROM t LIMIT 1 INTO OUTFILE '{tmp_path}/{len(jobs)}.csv'")
    with lockstep.connect(str(path)) as db:
        numbers = db.sql("SELECT id, row_count FROM lockstep.jobs ORDER BY id").fetchall()
        assert numbers[1:] == [(2, 1), (3, 1)]
