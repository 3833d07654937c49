"""Delta and Iceberg tables in FROM, against the libraries that write them."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lockstep

ROWS = pa.table(
    {
        "k": pa.array(["a", "b", None, "a"]),
        "i": pa.array([1, None, 3, 4], pa.int64()),
        "f": pa.array([1.5, float("nan"), None, -0.0], pa.float64()),
        "d": pa.array([datetime.date(2024, 1, day) for day in [1, 1, 2, 3]]),
    }
)


@pytest.fixture
def db() -> Iterator[lockstep.Connection]:
    """An embedded connection: the files are those of this process."""
    with lockstep.connect() as connection:
        yield connection


def rows(table: pa.Table) -> list[str]:
    """Rows in an order that does not depend on files."""
    columns = [table.column(name).to_pylist() for name in sorted(table.column_names)]
    return sorted(repr(row) for row in zip(*columns, strict=True))


def read(db: lockstep.Connection, source: str, tail: str = "") -> pa.Table:
    """Reads a source of FROM."""
    return db.sql(f"SELECT * FROM {source} {tail}").arrow()


def test_delta_has_the_rows_of_its_library(db: lockstep.Connection, tmp_path: Path) -> None:
    """Versions, partitions, removed files, added columns and checkpoints."""
    deltalake = pytest.importorskip(
        "deltalake", reason="deltalake is not installed: pip install deltalake"
    )
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, ROWS, partition_by=["d"])
    assert rows(read(db, f"read_delta('{path}')")) == rows(ROWS)
    deltalake.DeltaTable(path).delete("k = 'b'")
    more = ROWS.append_column("n", pa.array([1, 2, 3, 4], pa.int32()))
    deltalake.write_deltalake(path, more, mode="append", schema_mode="merge")
    found = db.sql(f"SELECT count(n) AS n, count(*) AS c FROM read_delta('{path}')").arrow()
    assert found.to_pylist() == [{"n": 4, "c": 7}]
    assert rows(read(db, f"read_delta('{path}', version = 0)")) == rows(ROWS)
    wanted = "WHERE d = date('2024-01-02')"
    assert read(db, f"read_delta('{path}', version = 0)", wanted).num_rows == 1
    deltalake.DeltaTable(path).create_checkpoint()
    assert read(db, f"read_delta('{path}')").num_rows == 7
    with pytest.raises(lockstep.Error, match=r"version 9 of table `.*` does not exist"):
        read(db, f"read_delta('{path}', version = 9)")


def test_iceberg_has_the_rows_of_its_library(db: lockstep.Connection, tmp_path: Path) -> None:
    """Snapshots, renamed and added columns, rewritten files, and a table that was moved."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{warehouse}")
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", schema=ROWS.schema)
    path = table.location().removeprefix("file://")
    assert read(db, f"read_iceberg('{path}')").num_rows == 0
    table.append(ROWS)
    first = table.current_snapshot().snapshot_id
    assert rows(read(db, f"read_iceberg('{path}')")) == rows(ROWS)
    with table.update_schema() as update:
        update.rename_column("k", "key")
    table.append(ROWS.rename_columns(["key", "i", "f", "d"]))
    found = db.sql(f"SELECT count(key) AS n, count(*) AS c FROM read_iceberg('{path}')").arrow()
    assert found.to_pylist() == [{"n": 6, "c": 8}]
    assert rows(read(db, f"read_iceberg('{path}', snapshot = {first})")) == rows(ROWS)
    metadata = table.metadata_location.removeprefix("file://")
    assert read(db, f"read_iceberg('{metadata}')").num_rows == 8
    moved = tmp_path / "moved"
    Path(path).rename(moved)
    assert read(db, f"read_iceberg('{moved}')", "WHERE i > 3").num_rows == 2
    with pytest.raises(lockstep.Error, match=r"snapshot 5 of table `.*` does not exist"):
        read(db, f"read_iceberg('{moved}', snapshot = 5)")


def test_files_without_a_wanted_row_are_not_opened(db: lockstep.Connection, tmp_path: Path) -> None:
    """Bounds in the metadata, of every type that has them, leave out a file that is gone."""
    deltalake = pytest.importorskip(
        "deltalake", reason="deltalake is not installed: pip install deltalake"
    )
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    def days(first: int) -> pa.Table:
        dates = [datetime.date(2024, first, day) for day in (1, 2, 3)]
        return pa.table(
            {
                "i": pa.array([first * 100 + number for number in range(3)], pa.int64()),
                "s": pa.array([f"{first:02}-{number}" for number in range(3)]),
                "d": pa.array(dates),
                "t": pa.array(
                    [datetime.datetime(2024, first, day) for day in (1, 2, 3)],
                    pa.timestamp("us"),
                ),
            }
        )

    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{warehouse}")
    catalog.create_namespace("s")
    iceberg = catalog.create_table("s.t", schema=days(1).schema)
    delta_path = tmp_path / "delta"
    for month in (1, 5):
        iceberg.append(days(month))
        deltalake.write_deltalake(str(delta_path), days(month), mode="append")
    sources = {
        delta_path: f"read_delta('{delta_path}')",
        Path(iceberg.location().removeprefix("file://")): (
            f"read_iceberg('{iceberg.location().removeprefix('file://')}')"
        ),
    }
    wanted = [
        "WHERE i > 200",
        "WHERE s > '02'",
        "WHERE d >= date('2024-02-01')",
        "WHERE t > timestamp('2024-02-01')",
        "WHERE i >= 500 AND d < date('2024-06-01')",
    ]
    for folder, source in sources.items():
        files = [path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
        first = [path for path in files if pq.read_table(path)["i"][0].as_py() < 200]
        assert len(first) == 1
        first[0].unlink()
        for tail in wanted:
            assert rows(read(db, source, tail)) == rows(days(5)), tail
        with pytest.raises(lockstep.Error, match="does not exist"):
            read(db, source, "WHERE i >= 102")


SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "a", "type": "long"}]})


def delta(folder: Path, *actions: dict[str, object]) -> str:
    """Writes a Delta table of one commit by hand."""
    first = [
        {"protocol": {"minReaderVersion": 1}},
        {"metaData": {"schemaString": SCHEMA, "partitionColumns": []}},
    ]
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    lines = "\n".join(json.dumps(action) for action in [*first, *actions])
    (log / f"{0:020}.json").write_text(lines)
    return f"read_delta('{folder}')"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("read_delta('{0}/nothing')", "`.*nothing` is not a Delta table"),
        ("read_iceberg('{0}/nothing')", "`.*nothing` is not an Iceberg table"),
        ("read_delta('{0}/a', '{0}/b')", "read_delta requires exactly one path"),
        ("read_delta('{0}/a', version = -1)", "option `version` must be the number of a version"),
        ("read_iceberg('{0}/a', snapshot = 'x')", "option `snapshot` must be the id of a snapshot"),
        ("read_delta('{0}/a', snapshot = 1)", "option `snapshot` does not exist"),
    ],
)
def test_a_wrong_source_is_an_error(
    db: lockstep.Connection, tmp_path: Path, source: str, message: str
) -> None:
    """The message names the path or the option."""
    with pytest.raises(lockstep.Error, match=message):
        read(db, source.format(tmp_path))


def test_wrong_metadata_is_an_error(db: lockstep.Connection, tmp_path: Path) -> None:
    """The message names the file or the feature."""
    assert read(db, delta(tmp_path / "empty")).num_rows == 0
    with pytest.raises(lockstep.Error, match=r"object store URL `.*` is not supported"):
        read(db, delta(tmp_path / "url", {"add": {"path": "ftp://x/1.parquet", "size": 1}}))
    with pytest.raises(lockstep.Error, match=r"an unsupported feature: Delta .* version 4"):
        read(db, delta(tmp_path / "new", {"protocol": {"minReaderVersion": 4}}))
    with pytest.raises(lockstep.Error, match=r"metadata file `.*` of the table is damaged"):
        read(db, delta(tmp_path / "damaged", {"add": {"size": 1}}))
    metadata = tmp_path / "iceberg" / "metadata"
    metadata.mkdir(parents=True)
    (metadata / "00001-a.metadata.json").write_text('{"format-version": 3}')
    with pytest.raises(lockstep.Error, match=r"an unsupported feature: Iceberg .* version 3"):
        read(db, f"read_iceberg('{tmp_path}/iceberg')")
    (metadata / "00001-b.metadata.json").write_text("{}")
    with pytest.raises(
        lockstep.Error, match=r"table `.*` has two metadata files with the highest version"
    ):
        read(db, f"read_iceberg('{tmp_path}/iceberg')")


def test_iceberg_files_without_ids_need_a_mapping(db: lockstep.Connection, tmp_path: Path) -> None:
    """Files that another program wrote have no field ids; pyiceberg adds a name mapping."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", schema=ROWS.schema)
    pq.write_table(ROWS, tmp_path / "plain.parquet")
    table.add_files([f"file://{tmp_path}/plain.parquet"])
    path = table.location().removeprefix("file://")
    assert rows(read(db, f"read_iceberg('{path}')")) == rows(ROWS)
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(lockstep.Error, match=r"file `.*` has no field IDs to identify its columns"):
        read(db, f"read_iceberg('{path}')")


def iceberg_table(warehouse: Path, schema: pa.Schema, partition: str | None = None) -> Any:
    """An empty table of pyiceberg, with an identity partition by a column where one is given."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse.mkdir()
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{warehouse}")
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", schema=schema)
    if partition is not None:
        with table.update_spec() as update:
            update.add_identity(partition)
    return table


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (pa.float64(), 2.25, 2.25),
        (pa.float32(), 0.5, 0.5),
        (pa.decimal128(9, 2), decimal.Decimal("-1.10"), -1.1),
        (pa.timestamp("us"), datetime.datetime(2400, 4, 5, 6), datetime.datetime(2400, 4, 5, 6)),
        (pa.timestamp("us", "UTC"), datetime.datetime(2023, 4, 5), datetime.datetime(2023, 4, 5)),
        (pa.date32(), datetime.date(1850, 6, 1), datetime.date(1850, 6, 1)),
        (pa.int64(), 7, 7),
        (pa.string(), "a=b c", "a=b c"),
        (pa.bool_(), True, True),
        (pa.float64(), None, None),
    ],
)
def test_iceberg_partition_values_need_not_be_in_the_files(
    db: lockstep.Connection, tmp_path: Path, data_type: pa.DataType, value: Any, expected: Any
) -> None:
    """As after ``add_files``: the metadata has the values, in every zone of the session."""
    given = value
    if isinstance(value, datetime.datetime) and data_type.tz is not None:
        given = value.replace(tzinfo=datetime.timezone.utc)
    rows = pa.table({"p": pa.array([given], data_type), "v": pa.array([8], pa.int64())})
    table = iceberg_table(tmp_path / "warehouse", rows.schema, "p")
    table.append(rows)
    for file in table.scan().plan_files():
        path = file.file.file_path.removeprefix("file://")
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["p"]), path)
    metadata = table.metadata_location.removeprefix("file://")
    db.execute("SET time_zone = 'Asia/Tokyo'")
    assert db.sql(f"SELECT p, v FROM read_iceberg('{metadata}')").fetchall() == [(expected, 8)]


def test_iceberg_columns_that_were_added_have_their_initial_default(
    db: lockstep.Connection, tmp_path: Path
) -> None:
    """Rows from before the column; a default that is not of the column's type is damage."""
    rows = pa.table({"id": pa.array([1], pa.int64())})
    table = iceberg_table(tmp_path / "warehouse", rows.schema)
    table.append(rows)
    path = Path(table.metadata_location.removeprefix("file://"))
    written = json.loads(path.read_text())

    def read_with(data_type: str, default: object) -> list[tuple[Any, ...]]:
        changed = json.loads(json.dumps(written))
        schema = json.loads(json.dumps(changed["schemas"][-1]))
        schema["schema-id"] = 9
        schema["fields"].append(
            {
                "id": 2,
                "name": "added",
                "required": False,
                "type": data_type,
                "initial-default": default,
            }
        )
        changed["schemas"].append(schema)
        changed["current-schema-id"] = 9
        path.write_text(json.dumps(changed))
        return db.sql(f"SELECT id, added FROM read_iceberg('{path}')").fetchall()

    for data_type, default, expected in [
        ("long", 6, 6),
        ("double", 0.25, 0.25),
        ("boolean", True, True),
        ("string", "new", "new"),
        ("decimal(9, 2)", "1.10", 1.1),
        ("date", "2017-11-16", datetime.date(2017, 11, 16)),
        ("timestamp", "2017-11-16T22:31:08", datetime.datetime(2017, 11, 16, 22, 31, 8)),
        ("timestamptz", "2017-11-16T22:31:08+00:00", datetime.datetime(2017, 11, 16, 22, 31, 8)),
        ("long", None, None),
    ]:
        assert read_with(data_type, default) == [(1, expected)], (data_type, default)
    with pytest.raises(lockstep.Error, match=r"metadata file .* of the table is damaged") as raised:
        read_with("long", "six")
    expected = 'The initial default "six" of column `added` does not match its type.'
    assert expected in str(raised.value)
