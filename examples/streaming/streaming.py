"""Features from Kafka to Kafka: each action with the orders around it, although rows come late.

Two topics, `actions` and `orders`, are written with rows out of order, some of them later than the
stream waits. Sources bring them into tables, a stream computes the windows of features.sql, and a
sink writes the results to the topic `features`. At the end every value is compared with the
training set: the same query in batch mode.

Kafka is downloaded and started; this requires Java 17 and Maven. Two hours of events are written in
some seconds, so that a second of disorder lasts for some milliseconds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "python" / "tests")]

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from bits import compare_bits
from pictures import BLUE, ORANGE, draw_latencies, show

import lockstep
from kafka_broker import Broker, available

ACTIONS, ORDERS, USERS, ITEMS = 20_000, 60_000, 100, 500
# Two hours of events.
SPAN_MS = 2 * 3_600_000
WINDOW_MS, LATENESS_MS, DISORDER_MS = 60_000, 15_000, 8_000
# Of so many messages the partitions are written one after the other: that is disorder, too.
BATCH = 50
TOPICS = ("actions", "orders", "features")
QUERY = (HERE / "features.sql").read_text()
TABLES = """
    CREATE TABLE actions (id INT, user STRING, ts TIMESTAMP, INDEX(KEY=user, TS=ts));
    CREATE TABLE orders (id INT, user STRING, ts TIMESTAMP, item STRING, price DOUBLE,
                         INDEX(KEY=user, TS=ts));
"""

Message = dict[str, Any]


def events(seed: int = 1) -> list[tuple[str, Message]]:
    """Draws the messages of both topics in the order in which they arrive."""
    rng = random.Random(seed)
    arriving = []
    for topic, count in (("actions", ACTIONS), ("orders", ORDERS)):
        for number in range(count):
            arrival = (number + 0.5) * SPAN_MS / count
            # One in 500 is later than the stream waits.
            late = rng.random() < 1 / 500
            delay = rng.uniform(20_000, 90_000) if late else rng.uniform(0, DISORDER_MS)
            row: Message = {"id": number, "user": f"u{rng.randrange(USERS)}"}
            row["ts"] = 1_700_000_000_000 + int(arrival - delay)
            if topic == "orders":
                row |= {
                    "item": f"i{rng.randrange(ITEMS)}",
                    "price": round(rng.lognormvariate(2, 1), 2),
                }
            arriving.append((arrival, topic, row))
    arriving.sort(key=lambda event: event[0])
    messages = [(topic, row) for _, topic, row in arriving]
    # The last rows of both topics: with them, the results of all others are final.
    end = 1_700_000_000_000 + SPAN_MS + 10 * WINDOW_MS
    messages.append(("actions", {"id": ACTIONS, "user": "last", "ts": end}))
    messages.append(
        ("orders", {"id": ORDERS, "user": "last", "ts": end, "item": "i", "price": 1.0})
    )
    return messages


def record(row: Message) -> dict[str, str]:
    return {"key": row["user"], "value": json.dumps(row)}


def connect(directory: str | None, brokers: str) -> lockstep.Connection:
    """Creates the way from topic to topic."""
    db = lockstep.connect(directory) if directory else lockstep.connect()
    db.execute(TABLES)
    for table in ("actions", "orders"):
        db.execute(
            f"CREATE SOURCE {table}_in INTO TABLE {table} FROM KAFKA "
            f"OPTIONS(brokers='{brokers}', topic='{table}', on_error='skip into bad_rows')"
        )
    db.execute(
        f"CREATE STREAM around INTO TABLE action_features "
        f"OPTIONS(lateness={LATENESS_MS}, late_rows='late_rows') AS {QUERY}"
    )
    db.execute(
        f"CREATE SINK out FROM STREAM around INTO KAFKA "
        f"OPTIONS(brokers='{brokers}', topic='features', key='user')"
    )
    return db


def value(db: lockstep.Connection, sql: str) -> int:
    """Returns the only value of a query."""
    return db.execute(sql).fetchall()[0][0]


class Watch:
    """Notes every 20 ms how far the sources and the stream are."""

    def __init__(self, db: lockstep.Connection) -> None:
        self.samples: list[tuple[float, int, int]] = []
        self._db, self._ends = db, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(0.02):
            lag = value(self._db, "SELECT sum(lag) FROM lockstep.sources")
            written = value(self._db, "SELECT messages_written FROM lockstep.sinks")
            self.samples.append((time.time(), lag, written))


def training_set(db: lockstep.Connection) -> pa.Table:
    """Computes the features in batch mode over all rows that were not late."""
    late = {"actions": set(), "orders": set()}
    for source, row in db.execute("SELECT source, source_row FROM late_rows").fetchall():
        late[source.split(".")[-1]].add(json.loads(row)["id"])
    history = lockstep.connect()
    history.execute(TABLES)
    for table, ids in late.items():
        rows = db.sql(f"SELECT * FROM {table}").arrow()
        kept = pa.array([number not in ids for number in rows["id"].to_pylist()])
        history.append(table, rows.filter(kept))
    print(f"{sum(map(len, late.values())):,} rows were late, and are in no result")
    features = history.sql(QUERY).arrow()
    # The last action has no result yet.
    return features.filter(compute.less(features["id"], ACTIONS)).sort_by("id").combine_chunks()


def feed(kafka: Broker, messages: list[tuple[str, Message]]) -> list[tuple[float, str, Message]]:
    """Writes messages to their topics. Returns them with the times just before."""
    written = []
    for first in range(0, len(messages), BATCH):
        batch = messages[first : first + BATCH]
        for topic in ("actions", "orders"):
            rows = [row for name, row in batch if name == topic]
            if rows:
                written += [(time.time(), topic, row) for row in rows]
                kafka.produce(topic, [record(row) for row in rows])
    return written


def wait_for_results(db: lockstep.Connection) -> None:
    """Waits until each action that was not late has its result in the topic."""
    late = "SELECT count(*) FROM late_rows WHERE source LIKE '%actions'"
    written = "SELECT messages_written FROM lockstep.sinks"
    end = time.time() + 60
    while value(db, written) < ACTIONS - value(db, late):
        if time.time() > end:
            sys.exit(f"results are missing: {value(db, written)} are written")
        time.sleep(0.05)


def results_of(kafka: Broker, schema: pa.Schema) -> tuple[pa.Table, dict[int, float]]:
    """Reads the topic of results: the features, and for each id when its result was written."""
    rows, times = [], {}
    for message in kafka.consume("features"):
        row = json.loads(message.value or b"")
        times[row["id"]] = message.timestamp / 1e3
        rows.append(row)
    columns = [
        pa.array([row[field.name] for row in rows], pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array([row[field.name] for row in rows], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema).sort_by("id").combine_chunks(), times


def latencies(
    written: list[tuple[float, str, Message]], features: pa.Table, times: dict[int, float]
) -> np.ndarray:
    """Returns for each result the seconds since the message was written that made it final."""
    newest = {}
    for topic in ("actions", "orders"):
        of_topic = [(row["ts"], at) for at, name, row in written if name == topic]
        event_times, at = (np.array(column) for column in zip(*of_topic, strict=True))
        newest[topic] = np.maximum.accumulate(event_times), at
    seconds = []
    for number, ts in zip(features["id"].to_pylist(), features["ts"].cast("int64"), strict=True):
        final = ts.as_py() + WINDOW_MS + LATENESS_MS
        # Both topics must have passed the end of the window.
        places = (
            (np.searchsorted(passed, final, side="right"), at) for passed, at in newest.values()
        )
        decided = max(at[place] for place, at in places)
        seconds.append(times[number] - decided)
    return np.array(seconds)


def draw_progress(samples: list[tuple[float, int, int]], begun: float) -> None:
    """Draws how far the sources and the sink were over time."""
    seconds = np.array([at - begun for at, _, _ in samples])
    _, (above, below) = plt.subplots(2, 1, figsize=(7, 4.2), sharex=True)
    above.plot(seconds, [lag for _, lag, _ in samples], color=ORANGE)
    above.set(ylabel="messages", title="Messages that the sources have not read")
    below.plot(seconds, [count for _, _, count in samples], color=BLUE)
    below.set(xlabel="seconds", ylabel="messages", title="Results in the topic")
    show(HERE / "pictures" / "lag.png")


def run(kafka: Broker, directory: str | None) -> None:
    db = connect(directory, kafka.bootstrap)
    begun = time.time()
    with Watch(db) as watch:
        written = feed(kafka, events())
        print(f"{len(written):,} messages were written in {time.time() - begun:.1f} s")
        wait_for_results(db)
    offline = training_set(db)
    online, times = results_of(kafka, offline.schema)
    compared, differing = compare_bits(offline, online, without=("id", "user", "ts"))
    print(f"{compared:,} feature values compared, {differing:,} differ")
    seconds = latencies(written, online, times)
    # Times in Kafka are whole milliseconds.
    draw_latencies(np.maximum(seconds, 1e-3) * 1e9, "results, since they were final", "result")
    show(HERE / "pictures" / "latency.png")
    draw_progress(watch.samples, begun)
    if differing:
        sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", help="the database; in memory without it")
    options = parser.parse_args()
    missing = available()
    if missing:
        print(f"skipped: {missing}")
        return
    with Broker() as kafka:
        for topic in TOPICS:
            kafka.create_topic(topic, partitions=4)
        run(kafka, options.directory)


if __name__ == "__main__":
    main()
