"""Delta and Iceberg tables in FROM, against the libraries that write them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
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
    assert db.sql(f"SELECT count(n) AS n, count(*) AS c FROM read_delta('{path}')").arrow().to_pylist() == [
        {"n": 4, "c": 7}
    ]
    assert rows(read(db, f"read_delta('{path}', version = 0)")) == rows(ROWS)
    wanted = "WHERE d = date('2024-01-02')"
    assert read(db, f"read_delta('{path}', version = 0)", wanted).num_rows == 1
    deltalake.DeltaTable(path).create_checkpoint()
    assert read(db, f"read_delta('{path}')").num_rows == 7
    with pytest.raises(lockstep.Error, match="no version 9"):
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
    with pytest.raises(lockstep.Error, match="no snapshot 5"):
        read(db, f"read_iceberg('{moved}', snapshot = 5)")
