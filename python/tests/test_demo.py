"""The demonstration's data and features, on its first days."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from lockstep.demo import flights
from lockstep.demo.flights_data import FlightsData, read

DAYS_3 = pd.Timestamp("2013-01-04 05:00")
DAYS_4 = pd.Timestamp("2013-01-05 05:00")


@pytest.fixture(scope="module")
def data() -> FlightsData:
    whole = read()
    tables = ("flights", "departures", "arrivals", "weather")
    first = {name: getattr(whole, name).query("ts < @DAYS_4") for name in tables}
    return dataclasses.replace(whole, **first)


@pytest.fixture(scope="module")
def sql() -> str:
    return flights._text("flights.sql")


def test_events_are_known_no_earlier_than_they_happened(data):
    scheduled = data.flights.set_index("flight_id")["ts"]
    for name in ("departures", "arrivals"):
        events = getattr(data, name).set_index("flight_id")
        assert (events["ts"] > scheduled[events.index]).all()
        assert events["ts"].is_monotonic_increasing
    assert data.flights["ts"].is_monotonic_increasing
    assert data.flights[["dep_delay", "arr_delay", "air_minutes"]].isna().all(axis=None)


def test_no_feature_knows_what_came_later(data, sql):
    sooner = flights._database(data, until=DAYS_3).sql(sql).arrow().sort_by("flight_id")
    later = flights._database(data).sql(sql).arrow().sort_by("flight_id")
    assert sooner.num_rows < later.num_rows
    assert sooner.num_columns > 25
    assert flights._compare(later.slice(0, sooner.num_rows), sooner)[1] == 0


def test_request_mode_gives_the_training_set(data, sql):
    db = flights._database(data)
    db.execute(f"DEPLOY {flights.DEPLOYMENT} AS {sql}")
    found = db.verify(flights.DEPLOYMENT)
    assert found.requests == len(data.flights)
    assert found.ok, found.differences
