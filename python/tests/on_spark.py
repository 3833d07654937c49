"""A session of Spark in this process, and tables on their way to it and back."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install pyspark")
if shutil.which("java") is None:
    pytest.skip("there is no Java for Spark", allow_module_level=True)

_TYPES = {
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
}


@contextlib.contextmanager
def session(master: str = "local[2]") -> Iterator:
    """Makes a session, and ends it."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


def frame_of(spark, table: pa.Table, *, in_order: bool = False):
    """Returns the DataFrame of a table, in another order unless it is to be the same; times are
    instants."""
    schema = ", ".join(f"`{field.name}` {type_of(field.type)}" for field in table.schema)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    frame = spark.createDataFrame(rows, schema)
    return frame if in_order else frame.repartition(2)


def type_of(of: pa.DataType) -> str:
    """Returns Spark's name of the type of a column."""
    return "timestamp" if pa.types.is_timestamp(of) else _TYPES[of]


def arrow_of(frame) -> pa.Table:
    """Returns the rows of a DataFrame."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow())
