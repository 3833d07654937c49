"""The public cases with one SELECT, on Spark: what is not refused has the bits of ``db.sql``.

Whether those are what the case expects, ``cargo xtask conformance`` says. Without more, some of the
cases are run; all of them with LOCKSTEP_SPARK_CASES=all.
"""

from __future__ import annotations

import datetime
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lockstep
from generated_features import bits
from lockstep.spark import training_set
from on_spark import arrow_of, frame_of

CASES = Path(__file__).parents[3] / "shared" / "conformance"
# One of so many cases is run.
EVERY = 1 if os.environ.get("LOCKSTEP_SPARK_CASES") == "all" else 60

TYPES = {
    "bool": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("ms"),
    "date": pa.date32(),
}


def cases() -> Iterator[dict]:
    """Yields the cases with one SELECT that succeeds over tables with rows."""
    for file in sorted(CASES.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            case = json.loads(line)
            if (
                case["kind"] == "query"
                and "batch" in case.get("modes", ())
                and case["expect"].get("success", True)
                and case["inputs"]
                and not case.get("parameters")
            ):
                yield case


class NoTable(Exception):
    """The rows of a case are not those of a table here."""


def value_of(cell, of: pa.DataType):
    """Returns a cell of a case as a value of its column."""
    if cell is None or not isinstance(cell, (dict, str)):
        return cell
    if isinstance(cell, dict):
        raise NoTable("the moment of the run, or a text that is no value")
    if pa.types.is_floating(of):
        return float(cell.replace("Infinity", "inf"))
    return datetime.date.fromisoformat(cell) if of == pa.date32() else cell


def table_of(source: dict) -> pa.Table:
    """Returns the rows of an input."""
    if "columns" not in source or source.get("inserts"):
        raise NoTable("rows that are given as SQL")
    columns = source["columns"]
    if any(column["type"] not in TYPES for column in columns):
        raise NoTable("a column of another type")
    rows = source.get("rows") or []
    repeat = 1 if source.get("repeat_applied") else source.get("repeat") or 1
    rows = [row for row in rows for _ in range(repeat)]
    arrays = []
    for at, column in enumerate(columns):
        of = TYPES[column["type"]]
        values = [value_of(row[at], of) for row in rows]
        milliseconds = pa.types.is_timestamp(of)
        arrays.append(
            pa.array(values, pa.int64()).cast(of) if milliseconds else pa.array(values, of)
        )
    return pa.table(arrays, names=[column["name"] for column in columns])


def instants(table: pa.Table) -> pa.Table:
    """Returns the same times in a zone, as a DataFrame has them."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            column = table.column(at).cast(pa.timestamp("us", "UTC"))
            table = table.set_column(at, field.name, column)
    return table


def run(spark, case: dict, compatibility: str) -> str:
    """Runs a case in both places, and returns what became of it."""
    db, frames = lockstep.connect(), {}
    try:
        for source in case["inputs"]:
            if source.get("db", case["db"]) != case["db"]:
                raise NoTable("tables of several databases")
            table = table_of(source)
            db.append(source["name"], table)
            frames[source["name"]] = frame_of(spark, instants(table), in_order=True)
        db.execute(f"SET compatibility = '{compatibility}'")
        expected = db.sql(case["sqls"][-1]).arrow()
    except (NoTable, pa.ArrowInvalid, OverflowError):
        return "no table"
    except lockstep.Error:
        return "an error here"
    finally:
        db.close()
    try:
        frame = training_set(
            spark,
            case["sqls"][-1],
            frames,
            row_id="row_id_",
            settings={"compatibility": compatibility},
        )
    except lockstep.Error as error:
        return f"refused: {error.message}" if error.code == "0A000" else f"{error.code}: {error}"
    found = arrow_of(frame).sort_by("row_id_")
    assert len(found) == len(expected), case["id"]
    assert found.column_names[-1] == "row_id_"
    assert found.num_columns == expected.num_columns + 1, case["id"]
    for at, name in enumerate(expected.column_names):
        assert bits(found.column(at)) == bits(expected.column(at)), (case["id"], name)
    return "equal"


@pytest.mark.skipif(not CASES.exists(), reason="the public cases are not here")
@pytest.mark.parametrize("compatibility", ["standard", "openmldb"])
def test_the_public_cases(spark, compatibility):
    outcomes = Counter()
    for number, case in enumerate(cases()):
        if number % EVERY == 0:
            outcomes[run(spark, case, compatibility)] += 1
    for outcome, count in outcomes.most_common():
        print(f"{count:5} {outcome}")
    assert outcomes["equal"] > 0
    known = ("equal", "no table", "an error here", "refused: ")
    assert not [outcome for outcome in outcomes if not outcome.startswith(known)], outcomes
