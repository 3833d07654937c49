"""Sources and sinks beside a real Kafka, which is killed, truncated and given topics again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lockstep
from kafka_broker import Broker, available
from schema_registry import Registry

missing = available()
pytestmark = pytest.mark.skipif(missing is not None, reason=missing or "")

GUIDE = Path(__file__).parents[2] / "docs/guide/kafka.md"
# A sink tries a message for 45 s and waits for a coordinator for 20 s before it begins again.
WAIT_S = 180.0
TABLE = "CREATE TABLE t (id INT, k STRING, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts))"
STREAM = """
    CREATE STREAM counted INTO TABLE counts OPTIONS(emit='arrival') AS
    SELECT id, k, count(x) OVER w AS n FROM t
    WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def message(number: int) -> dict[str, str]:
    value = {"id": number, "k": f"k{number % 5}", "ts": 1_000 * number, "x": number / 4}
    return {"key": f"k{number % 5}", "value": json.dumps(value)}


def options(kafka: Broker, topic: str, **more: object) -> str:
    given = {"brokers": kafka.bootstrap, "topic": topic, **more}
    return "OPTIONS(" + ", ".join(f"{name}='{value}'" for name, value in given.items()) + ")"


def statements(guide: str) -> list[str]:
    """The blocks of statements of a guide."""
    return [block.split("```")[0] for block in guide.split("```text\n")[1:]]


def count(db: lockstep.Connection, table: str) -> int:
    return db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]


def column(db: lockstep.Connection, sql: str) -> list[object]:
    return [row[0] for row in db.execute(sql).fetchall()]


def wait(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def failure(db: lockstep.Connection, objects: str) -> str:
    """Waits until the only source or sink has failed, and returns why."""
    end = time.monotonic() + WAIT_S
    while True:
        ((state, error),) = db.execute(f"SELECT state, error FROM lockstep.{objects}").fetchall()
        if state == "failed":
            return str(error)
        assert time.monotonic() < end, (state, error)
        time.sleep(0.02)


def wait_for_rows(db: lockstep.Connection, table: str, rows: int) -> None:
    wait(f"{rows} rows of {table}", lambda: count(db, table) >= rows)
    assert count(db, table) == rows


def test_from_a_topic_through_a_stream_to_a_topic(kafka: Broker, tmp_path: Path) -> None:
    """Each message is one row and each result one message, while all of it stops and is killed."""
    kafka.create_topic("in", partitions=3)
    kafka.create_topic("out", partitions=2)
    directory = str(tmp_path / "db")
    with lockstep.connect(directory) as db:
        db.execute(TABLE)
        source = options(kafka, "in", on_error="skip into bad")
        db.execute(f"CREATE SOURCE s INTO TABLE t FROM KAFKA {source}")
        db.execute(STREAM)
        sink = options(kafka, "out", key="k")
        db.execute(f"CREATE SINK o FROM STREAM counted INTO KAFKA {sink}")
    sent = 0
    for turn in range(6):
        with lockstep.connect(directory) as db:
            kafka.produce("in", [message(number) for number in range(sent, sent + 200)])
            # Nobody sees what was aborted.
            aborted = [message(number) for number in range(9_000, 9_020)]
            kafka.produce("in", aborted, transaction="aborted", commit=False)
            kafka.produce("in", ["no row"])
            sent += 200
            if turn == 2:
                kafka.kill()
                wait(
                    "it waits",
                    lambda: "running" not in column(db, "SELECT state FROM lockstep.sources"),
                )
                kafka.start()
            if turn % 2 == 0:
                wait_for_rows(db, "counts", sent)
    with lockstep.connect(directory) as db:
        wait_for_rows(db, "counts", sent)
        wait_for_rows(db, "bad", 6)
        wait("all messages", lambda: len(kafka.consume("out")) >= sent)
        expected = sorted(db.execute("SELECT id, k, n FROM counts").fetchall())
    records = kafka.consume("out")
    found = [json.loads(record.value or b"") for record in records]
    assert sorted((row["id"], row["k"], row["n"]) for row in found) == expected
    assert len({row[0] for row in expected}) == sent
    by_key = {record.key: record.partition for record in records}
    assert all(by_key[record.key] == record.partition for record in records)
    assert all(record.key == json.loads(record.value or b"")["k"].encode() for record in records)


def test_the_guide(kafka: Broker) -> None:
    """The statements of docs/guide/kafka.md, with the messages that it shows."""
    guide = GUIDE.read_text()
    create, _, _, operate = statements(guide)
    for topic in ("actions", "features"):
        kafka.create_topic(topic, partitions=3)
    db = lockstep.connect()
    db.execute(create.replace("localhost:9092", kafka.bootstrap))
    given, expected = (
        next(part for part in guide.split("`") if part.startswith(begin))
        for begin in ('{"id": 1', '{"id":1')
    )
    kafka.produce("actions", [given])
    wait("the result", lambda: len(kafka.consume("features")) == 1)
    (record,) = kafka.consume("features")
    assert (record.key, record.value) == (b"ann", expected.encode())
    db.execute(operate)
    for table in ("sources", "sinks"):
        described = db.execute(f"SELECT * FROM lockstep.{table}").columns
        assert all(
            f"`{name}`" in guide for name in described if name not in ("database_name", "name")
        )


def test_the_guide_to_avro_and_protobuf(kafka: Broker) -> None:
    """Its statements between values that the test encodes by hand and decodes."""
    with Registry() as registry, lockstep.connect() as db:
        for topic in ("orders", "totals"):
            kafka.create_topic(topic, partitions=2)
        db.execute("CREATE TABLE orders (id BIGINT, user STRING, price DOUBLE)")
        db.execute(
            "CREATE STREAM totals INTO TABLE total_rows OPTIONS(emit='arrival') AS "
            "SELECT id, upper(user) AS name FROM orders"
        )
        _, create, _, _ = statements(GUIDE.read_text())
        create = create.replace("localhost:9092", kafka.bootstrap)
        db.execute(create.replace("http://localhost:8081", registry.url))
        fields = [{"name": "id", "type": "long"}, {"name": "user", "type": ["null", "string"]}]
        schema = {"type": "record", "name": "o", "fields": fields}
        number = registry.register("orders-value", json.dumps(schema))
        frame = bytes([0]) + number.to_bytes(4, "big")
        kafka.produce("orders", [frame + b"\x08\x02\x06ann", frame + b"\x0a\x00"])
        wait_for_rows(db, "total_rows", 2)
        assert sorted(db.execute("SELECT id, user, price FROM orders").fetchall()) == [
            (4, "ann", None),
            (5, None, None),
        ]
        wait("the results", lambda: len(kafka.consume("totals")) == 2)
        frame = bytes([0]) + registry.subjects["totals-value"].to_bytes(4, "big") + b"\0"
        expected = {frame + b"\x08\x04\x12\x03ANN", frame + b"\x08\x05"}
        assert {record.value for record in kafka.consume("totals")} == expected


def test_messages_that_the_topic_has_removed(kafka: Broker) -> None:
    kafka.create_topic("truncated", partitions=1)
    kafka.produce("truncated", [message(number) for number in range(10)])
    db = lockstep.connect()
    db.execute(TABLE)
    db.execute(f"CREATE SOURCE s INTO TABLE t FROM KAFKA {options(kafka, 'truncated')}")
    wait_for_rows(db, "t", 10)
    db.execute("STOP SOURCE s")
    kafka.produce("truncated", [message(number) for number in range(10, 30)])
    kafka.delete_records("truncated", 0, 20)
    db.execute("START SOURCE s")
    assert "messages from offset 10 on were removed from partition 0" in failure(db, "sources")
    db.execute("ALTER SOURCE s SET OPTIONS(on_lost='skip')")
    wait_for_rows(db, "t", 20)
    assert column(db, "SELECT min(id) FROM t WHERE id >= 10") == [20]


def test_a_topic_that_is_created_again(kafka: Broker) -> None:
    kafka.create_topic("again", partitions=1)
    kafka.produce("again", [message(number) for number in range(10)])
    db = lockstep.connect()
    db.execute(TABLE)
    db.execute(f"CREATE SOURCE s INTO TABLE t FROM KAFKA {options(kafka, 'again')}")
    wait_for_rows(db, "t", 10)
    kafka.delete_topic("again")
    time.sleep(1)
    kafka.create_topic("again", partitions=1)
    kafka.produce("again", [message(number) for number in range(20, 50)])
    assert "was created again" in failure(db, "sources")
    assert count(db, "t") == 10
    db.execute("ALTER SOURCE s SET OPTIONS(on_lost='skip')")
    wait_for_rows(db, "t", 40)


def test_messages_that_are_no_rows(kafka: Broker) -> None:
    kafka.create_topic("bad", partitions=1)
    db = lockstep.connect()
    db.execute("CREATE TABLE t (id SMALLINT, k STRING)")
    source = options(kafka, "bad", key_column="k", on_error="skip into bad_rows")
    db.execute(f"CREATE SOURCE s INTO TABLE t FROM KAFKA {source}")
    kafka.produce(
        "bad",
        [
            {"key": "a", "value": None},
            {"key": b"\xff", "value": '{"id": 1}'},
            {"key": "b", "value": '{"id": 70000}'},
            {"key": "c", "value": '{"id": 1, "id": 2}'},
            {"key": "d", "value": '{"id": 4}'},
        ],
    )
    wait_for_rows(db, "bad_rows", 4)
    assert column(db, "SELECT reason FROM bad_rows ORDER BY topic_offset") == [
        "the message has no value",
        "the key of the message is not valid UTF-8",
        "column `id`: value 70000 is out of range for type SMALLINT",
        "column `id` specified more than once in the row",
    ]
    assert db.execute("SELECT id, k FROM t").fetchall() == [(4, "d")]
    with pytest.raises(lockstep.Error, match="option `format` cannot be changed"):
        db.execute("ALTER SOURCE s SET OPTIONS(format='csv')")
    db.execute("ALTER SOURCE s SET OPTIONS(on_error='stop')")
    kafka.produce("bad", [{"key": "e", "value": "{}"}, {"key": "f", "value": "{"}])
    not_a_row = (
        "the message at offset 6 of partition 0 of topic `bad` is not a row of table `t`: invalid"
    )
    assert not_a_row in failure(db, "sources")
    assert count(db, "t") == 2


def test_partitions_that_are_added(kafka: Broker) -> None:
    kafka.create_topic("grows", partitions=1)
    db = lockstep.connect()
    db.execute("CREATE TABLE t (id INT, p INT, o BIGINT)")
    source = options(kafka, "grows", partition_column="p", offset_column="o")
    db.execute(f"CREATE SOURCE s INTO TABLE t FROM KAFKA {source}")
    kafka.produce("grows", ['{"id": 1}'])
    wait_for_rows(db, "t", 1)
    kafka.add_partitions("grows", 3)
    kafka.produce(
        "grows",
        [{"partition": number % 3, "value": f'{{"id": {number}}}'} for number in range(2, 32)],
    )
    wait_for_rows(db, "t", 31)
    assert sorted(column(db, "SELECT DISTINCT p FROM t")) == [0, 1, 2]


def test_a_sink_waits_for_its_brokers(kafka: Broker) -> None:
    kafka.create_topic("waits", partitions=1)
    db = lockstep.connect()
    db.execute("CREATE TABLE t (id INT)")
    db.execute(f"CREATE SINK o FROM TABLE t INTO KAFKA {options(kafka, 'waits')}")
    db.execute("INSERT INTO t VALUES (1)")
    wait("a message", lambda: len(kafka.consume("waits")) == 1)
    kafka.kill()
    db.execute("INSERT INTO t VALUES (2)")
    threading.Timer(3, kafka.start).start()
    db.execute("INSERT INTO t VALUES (3)")
    wait("it is back", lambda: kafka.running)
    time.sleep(2)
    wait("all messages", lambda: len(kafka.consume("waits")) == 3)
    values = [json.loads(record.value or b"")["id"] for record in kafka.consume("waits")]
    assert values == [1, 2, 3]
    # STOP interrupts what waits for a broker.
    kafka.kill()
    db.execute("INSERT INTO t VALUES (4)")
    time.sleep(0.5)
    begun = time.monotonic()
    db.execute("STOP SINK o")
    assert time.monotonic() - begun < 5
    kafka.start()


def test_rows_that_are_removed_while_a_sink_waits(kafka: Broker) -> None:
    """The sink keeps some of them; then it fails, and does not leave rows out silently."""
    kafka.create_topic("removed", partitions=1)
    db = lockstep.connect()
    db.execute("CREATE TABLE t (k INT, x STRING)")
    db.execute(f"CREATE SINK o FROM TABLE t INTO KAFKA {options(kafka, 'removed')}")
    db.append("t", [{"k": 1, "x": "first"}])
    wait("a message", lambda: len(kafka.consume("removed")) == 1)
    kafka.kill()
    text = "x" * (1 << 20)
    for number in range(2, 320):
        db.append("t", [{"k": number, "x": text}])
    db.execute("DELETE FROM t WHERE k > 1")
    kafka.start()
    removed = "rows of table `default.t` were removed before they were written"
    assert removed in failure(db, "sinks")
    db.append("t", [{"k": 1_000, "x": "last"}])
    db.execute("START SINK o")
    wait("the last one", lambda: b"last" in (kafka.consume("removed")[-1].value or b""))


def test_encrypted_connections_and_logins(tmp_path: Path) -> None:
    with Broker(sasl=True, tls=True) as kafka:
        kafka.create_topic("guarded", partitions=1)
        kafka.produce("guarded", [message(1)])
        db = lockstep.connect()
        db.execute(TABLE)
        login = {
            "sasl_mechanism": "scram-sha-256",
            "sasl_username": kafka.user,
            "sasl_password": kafka.password,
        }

        def create(**more: object) -> None:
            given = {"brokers": kafka.secure_bootstrap, "topic": "guarded", **more}
            text = ", ".join(f"{name}='{value}'" for name, value in given.items())
            db.execute(f"CREATE SOURCE s INTO TABLE t FROM KAFKA OPTIONS({text})")

        with pytest.raises(lockstep.Error, match="could not connect"):
            create()
        with pytest.raises(lockstep.Error, match=r"Kafka refuses the login|could not connect"):
            create(tls_ca=kafka.ca_pem, **{**login, "sasl_password": "wrong"})
        create(tls_ca=kafka.ca_pem, **login)
        wait_for_rows(db, "t", 1)
        (statement,) = column(db, "SELECT statement FROM lockstep.sources")
        assert kafka.password not in str(statement)
