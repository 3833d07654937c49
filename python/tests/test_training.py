"""Training sets as training programs read them: LibSVM, TFRecord, tensors, shuffles, splits."""

from __future__ import annotations

import datetime
import gzip
import math
import struct

import numpy as np
import pyarrow as pa
import pytest

import lockstep

ROWS = 5_000

SIGNED = """
    SELECT binary_label(paid) AS label, continuous(price) AS price, discrete(city, 16) AS city,
           continuous(n) AS n
    FROM clicks"""


@pytest.fixture
def db(db):
    """The database with a table of clicks: in the process, or on a server."""
    cities = ["Ulm", "São Paulo", None, "Ulm"]
    clicks = pa.table(
        {
            "n": list(range(ROWS)),
            "city": [cities[number % 4] for number in range(ROWS)],
            "price": [None if number % 5 == 0 else number / 3 for number in range(ROWS)],
            "paid": [number % 3 == 0 for number in range(ROWS)],
            "ts": pa.array(range(0, ROWS * 1000, 1000), pa.timestamp("ms")),
        }
    )
    db.append("clicks", clicks)
    return db


def test_libsvm_has_the_lines_of_the_function(db, tmp_path):
    path = tmp_path / "rows.libsvm"
    assert db.sql(SIGNED).write(path) == ROWS
    lines = path.read_text().splitlines()
    line = "libsvm(binary_label(paid), continuous(price), discrete(city, 16), continuous(n))"
    expected = [row[0].split() for row in db.sql(f"SELECT {line} FROM clicks")]
    found = [found.split() for found in lines]
    numbers = [[float(part.split(":")[-1]) for part in parts] for parts in found]
    assert numbers == [[float(part.split(":")[-1]) for part in parts] for parts in expected]
    slots = [[part.split(":")[0] for part in parts[1:]] for parts in found]
    assert slots == [[part.split(":")[0] for part in parts[1:]] for parts in expected]
    text = tmp_path / "text.svm"
    db.sql(f"SELECT {line} AS line FROM clicks").write(text)
    assert [found.split() for found in text.read_text().splitlines()] == expected


def matrix(db):
    """The label and the features of `SIGNED` as a dense matrix, whose first column is slot 0."""
    label, features = [], np.zeros((ROWS, 19))
    for row, (paid, price, city, n) in enumerate(db.sql(SIGNED)):
        label.append(paid)
        features[row, 1] = price or 0
        if city is not None:
            features[row, 2 + city] = 1
        features[row, 18] = n
    return np.array(label), features


def test_scikit_learn_reads_libsvm(db, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    path = tmp_path / "rows.libsvm"
    db.sql(SIGNED).write(path)
    found, labels = datasets.load_svmlight_file(str(path), n_features=19, zero_based=True)
    label, features = matrix(db)
    assert (labels == label).all() and (found.toarray() == features).all()


def test_lightgbm_trains_on_libsvm(db, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    path = tmp_path / "rows.libsvm"
    db.sql(SIGNED).write(path)
    dataset = lightgbm.Dataset(str(path), params={"verbose": -1}).construct()
    label, _ = matrix(db)
    assert dataset.num_data() == ROWS and (dataset.get_label() == label).all()
    lightgbm.train({"objective": "binary", "verbose": -1}, dataset, num_boost_round=2)


def test_xgboost_reads_libsvm(db, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    path = tmp_path / "rows.libsvm"
    db.sql(SIGNED).write(path)
    found = xgboost.DMatrix(f"{path}?format=libsvm")
    label, _ = matrix(db)
    assert found.num_row() == ROWS and (found.get_label() == label).all()
    xgboost.train({"objective": "binary:logistic"}, found, num_boost_round=2)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("n, binary_label(paid) AS y", "libsvm: column `n` is neither a label nor a feature"),
        ("continuous(n) AS n", "libsvm: the query has no label"),
        (
            "binary_label(paid) AS a, regression_label(n) AS b",
            "libsvm: column `b` is a second label",
        ),
        (
            "binary_label(paid) AS y, discrete(city) AS c",
            "libsvm: column `c` has no bucket count",
        ),
        ("regression_label(price) AS y, continuous(n) AS n", "libsvm: row 1 has no label"),
        ("city", "libsvm: row 3 is not a valid line"),
        (
            "binary_label(paid) AS y, discrete(city, 2147483647) AS c, continuous(n) AS n",
            "exceeds the limit of 2147483647 slots",
        ),
    ],
)
def test_libsvm_refuses_what_has_no_place(db, tmp_path, items, message):
    with pytest.raises(lockstep.Error, match=message):
        db.sql(f"SELECT {items} FROM clicks").write(tmp_path / "rows.libsvm")
    assert list(tmp_path.iterdir()) == []


def test_roles_pass_through_sub_queries_and_folders(db, tmp_path):
    folder = tmp_path / "out"
    query = f"SELECT cast(n AS INT) % 2 AS part, label, price, n FROM ({SIGNED}) WHERE n < 10"
    assert db.sql(query).write(folder, format="libsvm", partition_by="part") == 10
    first = (folder / "part=0" / "part-00000.libsvm").read_text().splitlines()
    assert first[1].split()[0] == "0" and first[1].split()[-1].startswith("2:")
    assert (
        db.sql(query.replace("SELECT cast", "SELECT DISTINCT cast"))
        .run()
        .write(tmp_path / "distinct", format="libsvm", partition_by="part")
        == 10
    )


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data: bytes) -> list[tuple[int, bytes]]:
    """The fields of a message that have a length."""
    found, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        assert tag & 7 == 2
        length, at = varint(data, at)
        found.append((tag >> 3, data[at : at + length]))
        at += length
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def examples(data: bytes) -> list[dict[str, list]]:
    """The features of the records of a TFRecord file."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == crc32c(data[at : at + 8])
        record = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == crc32c(record)
        at += 16 + length
        features = {}
        ((_, message),) = fields(record)
        for _, entry in fields(message):
            (_, name), (_, feature) = fields(entry)
            ((kind, values),) = fields(feature)
            features[name.decode()] = list_of(kind, values)
        found.append(features)
    return found


def list_of(kind: int, values: bytes) -> list:
    inner = [value for _, value in fields(values)]
    if kind == 1:
        return inner
    if kind == 2:
        return list(struct.unpack(f"<{len(inner[0]) // 4}f", inner[0]))
    numbers, at = [], 0
    while at < len(inner[0]):
        number, at = varint(inner[0], at)
        numbers.append(number - (1 << 64) if number >> 63 else number)
    return numbers


RECORDS = """
    SELECT n, city, price, paid, ts, date(ts) AS day, -n AS minus, [n, 2] AS list
    FROM clicks WHERE n < 40"""


def expected_examples(db) -> list[dict[str, list]]:
    expected = []
    for n, city, price, paid, ts, day, minus, items in db.sql(RECORDS):
        features = {
            "n": [n],
            "paid": [int(paid)],
            "ts": [int(ts.timestamp()) * 1000 if ts.tzinfo else n * 1000],
            "day": [(day - datetime.date(1970, 1, 1)).days],
            "minus": [minus],
            "list": list(items),
        }
        if city is not None:
            features["city"] = [city.encode()]
        if price is not None:
            features["price"] = [float(np.float32(price))]
        expected.append(features)
    return expected


def test_tfrecord_has_the_rows_as_examples(db, tmp_path):
    path = tmp_path / "rows.tfrecord"
    relation = db.sql(RECORDS)
    assert relation.write(path) == 40
    expected = expected_examples(db)
    assert examples(path.read_bytes()) == expected
    assert relation.write(path, mode="append") == 40
    assert examples(path.read_bytes()) == expected * 2
    packed = tmp_path / "rows.tfrecord.gz"
    relation.write(packed)
    assert examples(gzip.decompress(packed.read_bytes())) == expected
    with pytest.raises(lockstep.Error, match="the file would have more than one column named `n`"):
        db.sql("SELECT n, n FROM clicks").write(tmp_path / "x.tfrecord")
    with pytest.raises(lockstep.Error, match="tfrecord: column `m` has unsupported type MAP"):
        db.sql("SELECT map('a', n) AS m FROM clicks").write(tmp_path / "x.tfrecord")


def test_tensorflow_reads_tfrecord(db, tmp_path):
    tensorflow = pytest.importorskip("tensorflow")
    path = tmp_path / "rows.tfrecord"
    db.sql(RECORDS).write(path)
    found = []
    for record in tensorflow.data.TFRecordDataset(str(path)).as_numpy_iterator():
        example = tensorflow.train.Example.FromString(record)
        features = {}
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            features[name] = list(getattr(feature, kind).value)
        found.append(features)
    assert found == expected_examples(db)


def test_a_shuffle_has_every_row_once_in_the_order_of_its_seed(db):
    relation = db.sql("SELECT n FROM clicks")

    def order(**options):
        batches = list(relation.batches(300, **options))
        assert [batch.num_rows for batch in batches[:-1]] == [300] * 16
        return [n for batch in batches for n in batch["n"].to_pylist()]

    whole = order(shuffle=True, seed=7)
    assert sorted(whole) == list(range(ROWS)) and whole != list(range(ROWS))
    assert whole == order(shuffle=True, seed=7) != order(shuffle=True, seed=8)
    small = order(shuffle=100)
    assert sorted(small) == list(range(ROWS)) and small == order(shuffle=100)
    # No row comes before the buffer had it.
    assert all(n < at + 200 for at, n in enumerate(small))
    assert list(db.sql("SELECT n FROM clicks WHERE n < 0").batches(shuffle=True)) == []
    with pytest.raises(lockstep.Error, match="`shuffle` must not be negative"):
        relation.batches(shuffle=-1)


def seconds(*numbers):
    return [datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=n) for n in numbers]


def test_a_split_leaves_out_the_gap(db):
    relation = db.sql("SELECT n, ts FROM clicks;  -- by time")
    until, end = seconds(1_000, 4_000)
    train, test = relation.split(by="ts", train_until=until, test_until=end, gap="1m")
    assert [n for n, _ in train] == list(range(940))
    assert [n for n, _ in test] == list(range(1_000, 4_000))
    aware = until.replace(tzinfo=datetime.timezone.utc)
    train, valid, test = relation.split(
        by="ts", train_until=aware, valid_until="1970-01-01 00:50:00", gap=datetime.timedelta(0, 9)
    )
    assert [len(train), len(valid), len(test)] == [991, 3_000 - 9 - 1_000, 2_000]
    train, test = relation.split(by="n", train_until=10)
    assert [len(train), len(test)] == [10, ROWS - 10]


def test_windows_of_a_part_see_the_rows_before_it(db):
    query = """SELECT n, ts, count(n) OVER w AS seen FROM clicks
        WINDOW w AS (PARTITION BY paid ORDER BY ts ROWS BETWEEN 5000 PRECEDING AND CURRENT ROW)"""
    whole = {n: seen for n, _, seen in db.sql(query)}
    (until,) = seconds(2_500)
    for part in db.sql(query).split(by="ts", train_until=until):
        assert {n: seen for n, _, seen in part} == {n: whole[n] for n, *_ in part}


def test_days_are_split_by_whole_days():
    db = lockstep.connect()
    first = datetime.date(2024, 1, 1)
    db.append("t", [{"day": first + datetime.timedelta(days=n)} for n in range(30)])
    relation = db.sql("SELECT day FROM t")
    train, test = relation.split(by="day", train_until="2024-01-20", gap="36h")
    assert (len(train), len(test)) == (17, 11)
    with pytest.raises(lockstep.Error, match="is not midnight"):
        relation.split(by="day", train_until="2024-01-20 12:00:00")
    with pytest.raises(lockstep.Error, match="invalid split bound for a column of type DATE"):
        relation.split(by="day", train_until=3)
    with pytest.raises(lockstep.Error, match="invalid `gap` for a column of type DATE"):
        relation.split(by="day", train_until="2024-01-20", gap=3)


def test_a_split_refuses_rows_without_a_time():
    db = lockstep.connect()
    db.append("t", [{"ts": 1, "n": 1}, {"ts": None, "n": 2}, {"ts": 3, "n": 3}])
    relation = db.sql("SELECT * FROM t")
    with pytest.raises(lockstep.Error, match="column `ts` is NULL in 1 rows") as caught:
        relation.split(by="ts", train_until=2)
    assert caught.value.code == "22004"
    train, test = relation.split(by="ts", train_until=2, nulls="drop")
    assert [[n for _, n in part] for part in (train, test)] == [[1], [3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "x", "train_until": 1}, "no column `x`"),
        ({"by": "city", "train_until": 1}, "of type STRING cannot be used as a time"),
        ({"by": "n", "train_until": 5, "valid_until": 5}, "not in ascending order"),
        ({"by": "n", "train_until": 5, "test_until": 4}, "not in ascending order"),
        ({"by": "n", "train_until": 5, "valid_until": 7, "gap": 2}, "`gap` leaves no rows"),
        ({"by": "n", "train_until": 5, "gap": -1}, "`gap` must not be negative"),
        ({"by": "n", "train_until": 5, "gap": "a week"}, "invalid duration for `gap`"),
        ({"by": "ts", "train_until": "soon"}, "invalid split bound"),
    ],
)
def test_a_split_that_is_wrong_is_refused(db, options, message):
    with pytest.raises(lockstep.Error, match=message):
        db.sql("SELECT * FROM clicks").split(**options)


def test_the_rows_of_execute_are_not_split(db):
    with pytest.raises(lockstep.Error, match=r"relation from db\.execute cannot be split"):
        db.execute("SELECT n FROM clicks").split(by="n", train_until=1)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("shuffle", [False, 500])
def test_torch_gets_every_row_once(db, workers, shuffle):
    torch = pytest.importorskip("torch")
    relation = db.sql("SELECT n, price, paid, ts, city FROM clicks WHERE city IS NOT NULL")
    dataset = relation.to_torch(100, label="paid", shuffle=shuffle, seed=3)
    assert dataset.row_count == len(relation)

    def order(**kwargs):
        loader = torch.utils.data.DataLoader(
            dataset, batch_size=None, num_workers=workers, **kwargs
        )
        return [int(n) for features, _ in loader for n in features["n"]]

    expected = [row[0] for row in relation]
    first = order()
    assert sorted(first) == expected and first == order()
    if shuffle:
        dataset.set_epoch(1)
        assert sorted(order()) == expected and order() != first
    elif workers == 0:
        assert first == expected
    features, label = next(iter(dataset))
    assert label.dtype == torch.bool and features["price"].dtype == torch.float64
    assert features["ts"].dtype == torch.int64 and isinstance(features["city"][0], str)
    rows = {n: price for n, price, *_ in relation}
    for n, price in zip(features["n"].tolist(), features["price"].tolist(), strict=True):
        assert rows[n] == price or (rows[n] is None and math.isnan(price))
    shares = [
        [
            int(n)
            for features, _ in relation.to_torch(label="paid", shard=(at, 2))
            for n in features["n"]
        ]
        for at in range(2)
    ]
    assert sorted(shares[0] + shares[1]) == expected


def test_torch_refuses_what_is_no_tensor(db):
    pytest.importorskip("torch")
    with pytest.raises(lockstep.Error, match="no column `y`"):
        db.sql("SELECT n FROM clicks").to_torch(label="y")
    with pytest.raises(lockstep.Error, match="invalid value for `shard`"):
        db.sql("SELECT n FROM clicks").to_torch(shard=(2, 2))
    dataset = db.sql("SELECT CASE WHEN n > 1 THEN n END AS n FROM clicks").to_torch()
    with pytest.raises(lockstep.Error, match="column `n` contains NULL"):
        next(iter(dataset))


def test_tensorflow_gets_the_rows(db):
    pytest.importorskip("tensorflow")
    relation = db.sql("SELECT n, price, paid, ifnull(city, '') AS city, ts FROM clicks")
    dataset = relation.to_tf(700, label="paid")
    found = []
    for features, label in dataset.as_numpy_iterator():
        found += zip(features["n"], features["price"], label, features["city"], strict=True)
    expected = [(n, price, paid, city.encode()) for n, price, paid, city, _ in relation]
    for left, right in zip(found, expected, strict=True):
        assert left[0] == right[0] and left[2:] == right[2:]
        assert left[1] == right[1] or (right[1] is None and math.isnan(left[1]))
    orders = [
        [int(n) for batch in relation.to_tf(shuffle=True, seed=seed) for n in batch["n"]]
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    with pytest.raises(lockstep.Error, match="cannot be converted to a tensor"):
        db.sql("SELECT [n] AS list FROM clicks").to_tf()
