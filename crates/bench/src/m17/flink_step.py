"""Joins the two streams of M17 by Flink's interval join, in this process's Java.

Takes one argument, a JSON object; compares results first, says `filled`, waits for a line, works, says how long it took.
"""

import json
import sys
import time

from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment, TableResult

COLUMNS = "id BIGINT, k BIGINT, t BIGINT, v DOUBLE, ts AS TO_TIMESTAMP_LTZ(t, 3)"


def interval(milliseconds: int) -> str:
    """Writes an interval of SQL; one of seconds alone may have three digits."""
    seconds, rest = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"INTERVAL '{days} {hours:02d}:{minutes:02d}:{seconds:02d}.{rest:03d}' DAY TO SECOND(3)"


class Join:
    """The join of the two files of a folder."""

    def __init__(self, step: dict, folder: str) -> None:
        """Makes the tables."""
        self.env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        settings = self.env.get_config()
        settings.set("parallelism.default", "1")
        # A GROUP BY that gives its changes some thousand rows at once is faster.
        settings.set("table.exec.mini-batch.enabled", "true")
        settings.set("table.exec.mini-batch.allow-latency", "100 ms")
        settings.set("table.exec.mini-batch.size", "5000")
        # A row is late when it is older than the watermark or as old.
        late = interval(step["lateness"] + 1)
        for name in ("base", "probe"):
            self.env.execute_sql(
                f"CREATE TABLE {name} ({COLUMNS}, WATERMARK FOR ts AS ts - {late}) WITH ("
                f"'connector' = 'filesystem', 'path' = '{folder}/{name}.csv', 'format' = 'csv')"
            )
        self.env.execute_sql(
            "CREATE TABLE results (id BIGINT, n BIGINT, s DOUBLE) WITH ('connector' = 'blackhole')"
        )
        self.query = (
            "SELECT base.id, count(*), sum(probe.v) FROM base JOIN probe ON base.k = probe.k AND "
            f"probe.ts BETWEEN base.ts - {interval(step['window'])} AND base.ts GROUP BY base.id"
        )

    def run(self) -> float:
        """Computes all results, and returns how many milliseconds it took."""
        begin = time.perf_counter()
        result: TableResult = self.env.execute_sql(f"INSERT INTO results {self.query}")
        result.wait()
        return (time.perf_counter() - begin) * 1e3

    def results(self) -> dict:
        """Returns the results of all base rows that have probe rows."""
        found = {}
        with self.env.execute_sql(self.query).collect() as rows:
            for row in rows:
                if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                    found[row[0]] = (row[1], row[2])
        return found


def main() -> None:
    """Compares, and measures."""
    step = json.loads(sys.argv[1])
    small, large = (Join(step, f"{step['folder']}/{size}") for size in ("small", "large"))
    found = small.results()
    # The code is compiled by then.
    small.run()
    print("filled", flush=True)
    sys.stdin.readline()
    times = {"small_ms": small.run(), "large_ms": large.run()}
    counts = {"results": len(found), "count": sum(n for n, _ in found.values())}
    total = sum(s for _, s in found.values())
    ms = sum(times.values())
    print(json.dumps({"ms": ms, **times, **counts, "sum": total}), flush=True)
    sys.stdin.readline()


main()
