"""``lockstep demo flights``: predicts the arrival delay of flights.

One SQL file defines the features. Batch mode computes a training set for the whole year, and a
model is trained on January to November. Then a second database, which contains only these eleven
months, serves December's flights as requests in order of time, each before later events are
stored. Every value is compared with the training set, bit by bit, and the model predicts from the
served values again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from .._connection import Connection, connect
from .flights_data import NEW_YORK, FlightsData, read
from .flights_model import LEARNERS, DelayModel

DEPLOYMENT = "flight_delay"
SCHEDULE = [
    "hour_of_day", "minute_of_hour", "day_of_week", "carrier", "origin", "dest", "distance",
    "scheduled_minutes",
]  # fmt: skip
DECEMBER = pd.Timestamp("2013-12-01", tz=NEW_YORK).tz_convert("UTC").tz_localize(None)


def main() -> int:
    """Runs the demonstration; returns 1 if any value differs between request and batch mode."""
    start = time.perf_counter()
    sql = _text("flights.sql")

    with _step("Reading the flights of 2013 and converting them to events"):
        data = read()
        _say(
            f"{len(data.flights):,} flights, {len(data.departures):,} departures, "
            f"{len(data.arrivals):,} arrivals, {len(data.weather):,} weather readings"
        )

    with _step("Loading: events from pandas, weather from Parquet, planes from CSV"):
        db = _database(data)

    with _step("Computing the training set of the whole year in batch mode"):
        training_set, seconds = _training_set(db, sql)
        _say(
            f"{len(training_set):,} rows, {training_set.num_columns - 1} features, "
            f"{len(training_set) / seconds:,.0f} rows/s"
        )

    late = data.flights["ts"] >= DECEMBER
    landed = data.arr_delay.notna()
    with _step(f"Training on January to November ({LEARNERS})"):
        learn = (landed & ~late).to_numpy()
        model = DelayModel(training_set, data.arr_delay, learn, without=["flight_id"])
        baseline = DelayModel(training_set.select(SCHEDULE), data.arr_delay, learn)

    december = late.to_numpy()
    judged = (landed & late).to_numpy()
    offline = model.error(training_set.filter(judged), data.arr_delay[judged])
    without_history = baseline.error(
        training_set.select(SCHEDULE).filter(judged), data.arr_delay[judged]
    )
    _say(f"mean absolute error on December's {judged.sum():,} arrivals:")
    _say(f"  {without_history:7.3f} min  from the schedule alone")
    _say(
        f"  {offline:7.3f} min  from all features, "
        f"{100 * (1 - offline / without_history):.1f} % less"
    )

    with _step("Deploying the same SQL over eleven months of history"):
        served = _database(data, until=DECEMBER)
        served.execute(f"DEPLOY {DEPLOYMENT} AS {sql}")

    with _step("Replaying December, one flight at a time"):
        answers, latencies_ns = _replay(served, data)
        p50, p99, p999 = np.percentile(latencies_ns, [50, 99, 99.9]) / 1e3
        _say(
            f"{len(answers):,} requests, from dict to dict: "
            f"p50 {p50:,.0f} µs, p99 {p99:,.0f} µs, p999 {p999:,.0f} µs"
        )

    with _step("Comparing every value with the training set, bit by bit"):
        expected = training_set.filter(december)
        online = pa.Table.from_pylist(answers, schema=expected.schema)
        compared, differing = _compare(expected, online)
        _say(f"{compared:,} feature values compared, {differing:,} differ")

    online_error = model.error(online.filter(judged[december]), data.arr_delay[judged])
    equal = online_error == offline
    _say(
        f"mean absolute error from online features: {online_error:.3f} min, "
        f"{'equal to' if equal else 'NOT equal to'} the offline one"
    )
    _say(f"done in {time.perf_counter() - start:.0f} s")
    return 0 if equal and differing == 0 else 1


def _database(data: FlightsData, until: pd.Timestamp | None = None) -> Connection:
    """Creates a database with the events before ``until``, or with all events."""
    db = connect()
    db.execute(_text("schema.sql"))
    for name in ("flights", "departures", "arrivals"):
        events = getattr(data, name)
        db.append(name, events if until is None else events[events["ts"] < until], create=False)
    weather = data.weather if until is None else data.weather[data.weather["ts"] < until]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weather.parquet"
        pq.write_table(pa.Table.from_pandas(weather, preserve_index=False), path)
        db.execute(f"LOAD DATA INFILE '{path}' INTO TABLE weather OPTIONS (format = 'parquet')")
    options = "format = 'csv', null_value = 'NA'"
    db.execute(f"LOAD DATA INFILE '{data.planes_csv}' INTO TABLE planes OPTIONS ({options})")
    return db


def _training_set(db: Connection, sql: str) -> tuple[pa.Table, float]:
    """Returns the features of all flights, sorted by flight, and the elapsed seconds."""
    start = time.perf_counter()
    with _progress_bar() as report:
        table = db.sql(sql).run(progress=report).arrow()
    seconds = time.perf_counter() - start
    return table.sort_by("flight_id").combine_chunks(), seconds


def _replay(db: Connection, data: FlightsData) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Replays December in order of event time; departures, arrivals and readings precede flights.

    Each flight is first a request, and is then stored. Returns the results and their latencies.
    """
    feeds = [_Feed(db, name, getattr(data, name)) for name in ("departures", "arrivals", "weather")]
    flights = _arrow(data.flights[data.flights["ts"] >= DECEMBER])
    times = flights["ts"].cast(pa.int64()).to_numpy()
    request = db.prepare(DEPLOYMENT)
    answers = []
    latencies_ns = np.empty(len(flights), dtype=np.int64)
    with _progress_bar() as report:
        for index, row in enumerate(flights.to_pylist()):
            for feed in feeds:
                feed.advance(times[index])
            before_ns = time.perf_counter_ns()
            answer = request(row)
            latencies_ns[index] = time.perf_counter_ns() - before_ns
            answers.append(answer)
            db.append("flights", flights.slice(index, 1), create=False)
            report(index / len(flights))
    return answers, latencies_ns


class _Feed:
    """Events of December, appended when their time is reached."""

    def __init__(self, db: Connection, table: str, events: pd.DataFrame) -> None:
        self.db = db
        self.table = table
        self.events = _arrow(events[events["ts"] >= DECEMBER])
        self.times = self.events["ts"].cast(pa.int64()).to_numpy()
        self.next = 0

    def advance(self, now: int) -> None:
        """Appends the events up to and including time ``now``, in order."""
        end = int(np.searchsorted(self.times, now, side="right"))
        if end > self.next:
            self.db.append(self.table, self.events.slice(self.next, end - self.next), create=False)
            self.next = end


def _arrow(events: pd.DataFrame) -> pa.Table:
    """Converts events to contiguous columns, whose slices share memory; times in milliseconds."""
    table = pa.Table.from_pandas(events, preserve_index=False)
    position = table.schema.get_field_index("ts")
    times = table["ts"].cast(pa.timestamp("ms"))
    return table.set_column(position, "ts", times).combine_chunks()


def _compare(expected: pa.Table, found: pa.Table) -> tuple[int, int]:
    """Returns the number of feature values, and the number of values that differ in any bit."""
    if expected["flight_id"] != found["flight_id"]:
        raise AssertionError("the tables contain different flights, or in a different order")
    compared = differing = 0
    for name in expected.column_names:
        if name == "flight_id":
            continue
        compared += len(expected)
        differing += int(np.count_nonzero(_bits(expected[name]) != _bits(found[name])))
    return compared, differing


def _bits(column: pa.ChunkedArray) -> np.ndarray:
    """Converts values to objects that are equal if and only if their bits are; NULL is None."""
    if pa.types.is_floating(column.type):
        missing = column.is_null().to_numpy()
        width = {pa.float32(): np.int32, pa.float64(): np.int64}[column.type]
        bits = column.fill_null(0.0).to_numpy().view(width).astype(object)
        bits[missing] = None
        return bits
    return np.array(column.to_pylist(), dtype=object)


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _say(text: str) -> None:
    print(f"   {text}", flush=True)


@contextmanager
def _step(title: str) -> Iterator[None]:
    print(f"-- {title}", flush=True)
    start = time.perf_counter()
    yield
    _say(f"[{time.perf_counter() - start:.1f} s]")


@contextmanager
def _progress_bar() -> Iterator[Callable[[float], None]]:
    """Draws the fraction done: a bar on a terminal, otherwise dots."""
    width = 40
    drawn = -1
    is_terminal = sys.stdout.isatty()

    def report(fraction: float) -> None:
        nonlocal drawn
        filled = int(max(0.0, min(1.0, fraction)) * width)
        if filled <= drawn:
            return
        before, drawn = max(drawn, 0), filled
        if is_terminal:
            bar = "#" * filled + "." * (width - filled)
            print(f"\r   [{bar}] {100 * filled // width:3d} %", end="", flush=True)
        else:
            print("." * (filled - before), end="", flush=True)

    print("   ", end="", flush=True)
    yield report
    report(1.0)
    print(flush=True)
