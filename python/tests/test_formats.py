"""Decodes the files of a database by what docs/internals/formats.md says, and nothing else."""

import json
import struct
from itertools import pairwise
from pathlib import Path

import pytest

import lockstep

ROWS = [
    {"k": "ann", "v": 1, "d": 0.5, "ts": 1_000},
    {"k": None, "v": -2, "d": None, "ts": 2_000},
    {"k": "größe", "v": None, "d": -1e300, "ts": 3_000},
    {"k": "x" * 70_000, "v": 4, "d": 2.5, "ts": 4_000},
]
BEGIN, SEAL, MARK = 0xF0, 0xF1, 0xF2
# The position of the event time of the index.
TIME = 3


def crc32c_table():
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


TABLE = list(crc32c_table())


def crc32c(*parts):
    value = 0xFFFFFFFF
    for part in parts:
        for byte in part:
            value = TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def numbers(form, data, at):
    return struct.unpack_from("<" + form, data, at)


def segment(data):
    """Returns the records of a segment as (position, rows, kind, is_last, payload)."""
    assert data[:8] == b"LSTEPWAL"
    assert numbers("II", data, 8) == (1, crc32c(data[:12], data[16:64]))
    log_id = data[16:32]
    number, length = numbers("QQ", data, 32)
    assert length == len(data)
    assert data[48:64] == bytes(16)
    seed, at, found = log_id + struct.pack("<Q", number), 64, []
    while at + 40 <= len(data):
        (length,) = numbers("I", data, at)
        if length == 0:
            break
        header, payload = data[at : at + 40], data[at + 40 : at + length]
        checksum, position, durable, rows = numbers("IQQI", data, at + 4)
        of_payload, kind, is_last = numbers("IBB", data, at + 28)
        assert checksum == crc32c(seed, header[:4], header[8:])
        assert of_payload == (crc32c(payload) if payload else 0)
        assert durable <= position
        assert header[34:] == bytes(6)
        found.append((position, rows, kind, is_last, payload))
        at += -(-length // 8) * 8
    # A segment that was made ahead has none.
    assert [record[2] for record in found[:1]] in ([], [BEGIN])
    assert BEGIN not in [record[2] for record in found[1:]]
    return found


def lengths(data):
    """Returns the lower 48 bits and the bytes of each row."""
    at = 0
    while at < len(data):
        number, one, at = stored_row(data, at)
        yield number, one


def stored_row(data, at):
    """Returns the lower 48 bits and the bytes of a row, and where it ends."""
    (word,) = numbers("Q", data, at)
    length, at = word >> 48, at + 8
    if length == 0xFFFF:
        (length,) = numbers("I", data, at)
        at += 4
    return word & ((1 << 48) - 1), data[at : at + length], at + length


def row(data):
    """Returns a row of the columns k STRING, v INT, d DOUBLE, ts TIMESTAMP."""
    width, nulls = data[0], data[1]
    v, d, ts = numbers("idq", data, 2)
    (end,) = numbers({1: "B", 2: "H", 4: "I"}[width], data, 22)
    text = data[22 + width :]
    assert len(text) == end
    values = [text.decode(), v, d, ts]
    return [None if nulls >> column & 1 else value for column, value in enumerate(values)]


@pytest.fixture
def folder(tmp_path):
    """A database with rows in its log, and none in a checkpoint."""
    folder = tmp_path / "shop.lockstep"
    with lockstep.connect(folder) as db:
        db.execute("CREATE TABLE t (k STRING, v INT, d DOUBLE, ts TIMESTAMP, INDEX(KEY=k, TS=ts))")
        db.append("t", ROWS[:2])
        db.append("t", ROWS[2:])
        db.execute("DEPLOY d AS SELECT k, v + 1 AS w FROM t")
    return folder


def log(folder):
    return [
        record
        for path in sorted((folder / "log").glob("*.wal"))
        for record in segment(path.read_bytes())
    ]


EXPECTED = [list(row.values()) for row in ROWS]


def test_the_log(folder):
    records = log(folder)
    own = [record for record in records if record[2] not in (BEGIN, SEAL, MARK)]
    for (position, rows, *_), (following, *_) in pairwise(own):
        assert position + rows == following
    commands = [json.loads(payload)["command"] for _, _, kind, _, payload in own if kind == 16]
    assert commands[0] == "create_table"
    assert commands[-1] == "create_deployment"
    appended = [(rows, payload) for _, rows, kind, _, payload in own if kind == 1]
    assert [rows for rows, _ in appended] == [2, 2]
    found = [found for _, payload in appended for found in lengths(payload[16:])]
    assert [zeros for zeros, _ in found] == [0] * 4
    assert [row(data) for _, data in found] == EXPECTED
    assert len({payload[:8] for _, payload in appended}) == 1


def test_a_checkpoint(folder):
    with lockstep.connect(folder) as db:
        db.execute("CHECKPOINT")
    data = (folder / "MANIFEST").read_bytes()
    assert data[:8] == b"LSTEPMAN"
    assert numbers("II", data, 8) == (0x01020304, 1)
    assert numbers("IIQ", data, 16) == (crc32c(data[:16]), crc32c(data[24:]), len(data))
    generation, position, following, count, body_bytes = numbers("QQQII", data, 48)
    assert generation >= 1
    assert len(data) == 80 + 24 * count + body_bytes
    body = json.loads(data[80 + 24 * count :])
    commands = [record["command"] for record in body["catalog"]]
    assert "create_table" in commands
    assert commands[-1] == "create_deployment"
    assert position <= body["catalog_position"]
    files = {}
    for entry in range(count):
        number, length, blocks, checksum = numbers("QQII", data, 80 + 24 * entry)
        assert number < following
        file = (folder / "data" / f"{number:020}.data").read_bytes()
        assert len(file) == length
        files[number] = blocks_of(file, data[32:48], number, blocks, checksum)
    [table] = body["tables"]
    found = []
    for extent in table["extents"]:
        *blocks, last = files.pop(extent["file"])
        assert extent["last_block"]["index"] == len(blocks)
        of_extent = [extent[of] for of in EXTENT]
        # One index, and its event time.
        assert numbers("IIQQQII", last, 0) == (2, len(blocks), *of_extent, 1, TIME)
        for at, payload in enumerate(blocks):
            rows = rows_of(payload)
            times = [row(data)[TIME] for _, data in rows]
            arrival, least, greatest = numbers("Qqq", last, 40 + 36 * at + 12)
            assert (arrival, least, greatest) == (rows[0][0], min(times), max(times))
            found += rows
    [[run]] = table["runs"]
    *pages, last = files.pop(run["file"])
    assert run["last_block"]["index"] == len(pages)
    assert numbers("IIQQ", last, 0) == (1, len(pages), len(ROWS), len({row["k"] for row in ROWS}))
    assert sorted(rows_of_pages(pages)) == sorted(found)
    assert not files
    assert [row(data) for _, data in found] == EXPECTED
    arrivals = [arrival for arrival, _ in found]
    assert arrivals == sorted(set(arrivals))


# What the last block of an extent and the manifest say of it.
EXTENT = ("rows", "from", "to")


def blocks_of(file, database, number, blocks, of_headers):
    """Returns the payloads of the blocks of a data file."""
    assert file[:8] == b"LSTEPDAT"
    assert numbers("II", file, 8) == (1, crc32c(file[:12], file[16:48]))
    assert file[16:32] == database
    assert numbers("QQ", file, 32) == (number, 0)
    at, found, headers = 48, [], b""
    for index in range(blocks):
        length, of_payload, checksum = numbers("III", file, at)
        seed = database + struct.pack("<QI", number, index)
        assert checksum == crc32c(seed, file[at : at + 8])
        headers += file[at : at + 8]
        payload = file[at + 12 : at + 12 + length]
        assert of_payload == crc32c(payload)
        at += 12 + length
        found.append(payload)
    assert at == len(file)
    assert of_headers == crc32c(headers)
    return found


def rows_of(payload):
    """Returns the rows of a block of an extent."""
    found, run = [], 0
    while run < len(payload):
        _arrived_ms, size = numbers("qI", payload, run)
        found += lengths(payload[run + 12 : run + 12 + size])
        run += 12 + size
    return found


def rows_of_pages(pages):
    """Returns the rows of the pages of a run, where the event times of a key precede its rows."""
    found = []
    for page in pages:
        (keys,) = numbers("I", page, 0)
        at = 4
        for _ in range(keys):
            key_bytes, count = numbers("II", page, at)
            at += 8 + key_bytes
            times = numbers(f"{count}q", page, at)
            assert list(times) == sorted(times, reverse=True)
            at += 8 * count
            for _ in range(count):
                arrival, one, at = stored_row(page, at)
                found.append((arrival, one))
        assert at == len(page)
    return found


def test_a_damaged_byte_is_seen(folder):
    path = min((folder / "log").glob("*.wal"))
    data = bytearray(path.read_bytes())
    at = data.index(b"ann")
    data[at] ^= 1
    with pytest.raises(AssertionError):
        segment(bytes(data))
    path.write_bytes(bytes(data))
    with pytest.raises(lockstep.Error):
        lockstep.connect(folder)


def test_the_page_names_every_constant_of_this_test():
    page = (Path(__file__).resolve().parents[2] / "docs/internals/formats.md").read_text()
    for text in ["LSTEPWAL", "LSTEPMAN", "LSTEPDAT", "0x82F63B78", "0x01020304", "0xf0", "0xffff"]:
        assert text in page
