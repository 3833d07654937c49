"""Processes that share the partitions of a real Kafka's topics, some of which are killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import lockstep
from kafka_broker import Broker, available

missing = available()
pytestmark = pytest.mark.skipif(missing is not None, reason=missing or "")

GUIDE = Path(__file__).parents[2] / "docs/guide/kafka.md"
WAIT_S = 90.0
PARTITIONS = 4
# Rows with these ids and greater ones only make others final.
LAST = 1_000_000
CHILD = """
import sys, time, lockstep
directory, script = sys.argv[1:]
db = lockstep.connect(directory)
if not db.execute("SELECT name FROM lockstep.streams").fetchall():
    db.execute(script)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    # A killed process is known to be dead after these milliseconds.
    session, heartbeat = 4_000, 300
    config = {
        "group.consumer.min.session.timeout.ms": session,
        "group.consumer.session.timeout.ms": session,
        "group.consumer.min.heartbeat.interval.ms": heartbeat,
        "group.consumer.heartbeat.interval.ms": heartbeat,
    }
    with Broker(config=config) as broker:
        yield broker


def statements(kafka: Broker) -> str:
    """Those of the guide's section about several processes."""
    section = GUIDE.read_text().split("## Several processes")[1]
    block = section.split("```text\n")[1].split("```")[0]
    return block.replace("localhost:9092", kafka.bootstrap)


class Topics:
    """The messages of both topics: rows of a key are in one partition, a little out of order."""

    def __init__(self, kafka: Broker) -> None:
        self.kafka = kafka
        self.random = random.Random(5)
        self.rows: dict[str, list[dict[str, object]]] = {"actions": [], "orders": []}
        self.sent = 0

    def send(self, count: int) -> None:
        for topic, rows in self.rows.items():
            records = []
            for number in range(self.sent, self.sent + count):
                user = f"u{self.random.randrange(11)}"
                ts = 1_000_000 + 200 * number - self.random.randrange(2_000)
                row: dict[str, object] = {"id": number, "user": user, "ts": ts}
                if topic == "orders":
                    row["price"] = self.random.randrange(1_000) / 8
                rows.append(row)
                records.append({"key": user, "value": json.dumps(row)})
            self.kafka.produce(topic, records)
        self.sent += count

    def end(self) -> None:
        """Makes all rows final."""
        ts = 2_000_000 + 200 * self.sent
        for topic in self.rows:
            records = [
                {
                    "partition": at,
                    "value": json.dumps({"id": LAST + at, "user": f"e{at}", "ts": ts}),
                }
                for at in range(PARTITIONS)
            ]
            self.kafka.produce(topic, records)

    def expected(self, script: str) -> Counter[tuple[object, ...]]:
        """What batch mode computes."""
        with lockstep.connect() as db:
            creates, rest = script.split("CREATE SOURCE", 1)
            db.execute(creates)
            query = rest.split(" AS\n", 1)[1].split(";")[0]
            for topic, rows in self.rows.items():
                db.append(topic, [{**row, "p": 0, "o": 0} for row in rows])
            return Counter(db.execute(query).fetchall())


def start(directory: Path, script: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory), script], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


def results(db: lockstep.Connection) -> list[tuple[object, ...]]:
    sql = f"SELECT id, user, spent FROM around_rows WHERE id < {LAST}"
    return db.execute(sql).fetchall()


def test_processes_that_are_killed_share_the_topics_of_the_guide(
    kafka: Broker, tmp_path: Path
) -> None:
    """Each action has one result in all directories together, and one message."""
    for topic in ("actions", "orders", "around"):
        kafka.create_topic(topic, partitions=PARTITIONS)
    script, topics = statements(kafka), Topics(kafka)
    directories = [tmp_path / name for name in ("one", "two", "three")]
    topics.send(300)
    children = [start(directory, script) for directory in directories[:2]]
    for turn in range(8):
        topics.send(150)
        time.sleep(1)
        if turn == 2:
            children[0].kill()
        if turn == 4:
            children.append(start(directories[2], script))
        if turn == 6:
            children[1].kill()
            children.append(start(directories[0], script))
    for child in children:
        child.kill()
        child.wait()
    topics.end()
    processes = [lockstep.connect(str(directory)) for directory in directories]
    end = time.monotonic() + WAIT_S
    while sum(len(results(db)) for db in processes) < topics.sent:
        errors = [
            db.execute("SELECT state, error, partitions FROM lockstep.sources").fetchall()
            for db in processes
        ]
        assert time.monotonic() < end, errors
        time.sleep(0.1)
    found = [results(db) for db in processes]
    expected = topics.expected(script)
    assert Counter(row for rows in found for row in rows) == expected
    assert len(expected) == topics.sent
    assert sum(len(rows) > 0 for rows in found) > 1, "several have taken part"

    def written() -> list[tuple[object, ...]]:
        values = [json.loads(record.value or b"") for record in kafka.consume("around")]
        rows = [(row["id"], row["user"], row["spent"]) for row in values]
        return [row for row in rows if row[0] < LAST]

    while len(written()) < topics.sent:
        assert time.monotonic() < end, len(written())
        time.sleep(0.2)
    assert Counter(written()) == expected
    for db in processes:
        db.close()
