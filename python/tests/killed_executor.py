"""A training set over executors that are processes of their own; one is killed while it reads.

Run by `test_spark` with the name of a file: who removes it kills its executor.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa

import lockstep
from lockstep.spark import training_set
from on_spark import session

SQL = """
    SELECT id, sum(id) OVER w AS total FROM t
    WINDOW w AS (PARTITION BY k ORDER BY id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
"""


def main(spark, marker: str) -> None:
    def killing(batches):
        for batch in batches:
            yield batch
            # Whoever removes the file is the only one.
            try:
                os.remove(marker)
            except FileNotFoundError:
                continue
            # The executor: the nearest process above this one that is Java.
            pid = os.getppid()
            while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
                pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[1])
            os.kill(pid, signal.SIGKILL)

    rows = pa.table({"id": list(range(4_000)), "k": [at * at % 37 for at in range(4_000)]})
    db = lockstep.connect()
    db.append("t", rows)
    frame = spark.createDataFrame(rows.to_pylist(), "id bigint, k bigint").repartition(8)
    frame = frame.mapInArrow(killing, frame.schema)
    made = training_set(spark, SQL, {"t": frame}, arrival={"t": "id"})
    found = sorted(tuple(row) for row in made.collect())
    assert not Path(marker).exists(), "no executor was killed"
    assert found == db.sql(SQL).fetchall()
    print("equal", len(found))


if __name__ == "__main__":
    with session("local-cluster[2,1,1024]") as spark:
        main(spark, sys.argv[1])
