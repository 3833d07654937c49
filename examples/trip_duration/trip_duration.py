# %% [markdown]
# # Trip duration: how long will this taxi take?
#
# A passenger gets into a taxi in New York and names a destination. How many minutes will the trip
# take? The prediction is made at that time, from the facts known at that time.
#
# The data is real: 10,000 trips in January and February 2016, about seven per hour, which is a
# small sample of all trips ([source and licence](README.md)). With a sample of this size, features
# about the traffic are not expected to help much; this page measures their value.
#
# The metric is the **mean absolute error in minutes**, over trips of less than three hours: the
# few longer trips have meters that were not stopped, most of them for nearly a whole day, and they
# would dominate the error.

# %%
import sys
import time
from pathlib import Path

HERE = Path(globals().get("__file__", "trip_duration.ipynb")).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
from bits import compare_bits
from pictures import BLUE, GREY, ORANGE, RED, draw_latencies, show
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

import lockstep

raw = pd.read_parquet(HERE / "trips.parquet")
raw.head(3).T

# %% [markdown]
# ## A trip is two events
#
# The file has one row per trip, including its duration. This row does not exist at the time of the
# prediction: when a trip begins, its duration is unknown, and so are the durations of all trips in
# progress. Therefore each row is converted to two events:
#
# * `trips`: a trip begins. `minutes` is NULL.
# * `finished`: a trip ends. It has the same columns; `minutes` is known, and `ts` is the end time.
#
# (The times in the file are New York's clock time minus eight hours, which the script adds back.)
#
# `origin` and `target` are cells of a grid, about 2 km wide. They are columns, rather than
# expressions in the query, because windows are partitioned by them: **an index is over columns**. A
# window that is partitioned by an expression returns the same values, but each request reads the
# whole table. For the same reason, `clock_hour` is a column.

# %%
clock = (raw["pickup_datetime"] + pd.Timedelta(hours=8)).astype("datetime64[ms]")


def cell(end: str) -> pd.Series:
    latitude, longitude = raw[f"{end}_latitude"], raw[f"{end}_longitude"]
    parts = [np.floor(degrees * 50).astype(int).astype(str) for degrees in (latitude, longitude)]
    return parts[0] + "/" + parts[1]


known = pd.DataFrame(
    {
        "ts": clock,
        "vendor": raw["vendor_id"],
        "passengers": raw["passenger_count"],
        "pickup_lon": raw["pickup_longitude"],
        "pickup_lat": raw["pickup_latitude"],
        "dropoff_lon": raw["dropoff_longitude"],
        "dropoff_lat": raw["dropoff_latitude"],
        "clock_hour": clock.dt.hour,
        "origin": cell("pickup"),
        "target": cell("dropoff"),
        "minutes": raw["trip_duration"] / 60,
    }
).sort_values("ts", kind="stable", ignore_index=True)
known.insert(0, "trip_id", np.arange(len(known)))
minutes = known["minutes"].to_numpy()

ends = known["ts"] + pd.to_timedelta((minutes * 60).round(), unit="s").astype("timedelta64[ms]")
finished = known.assign(ts=ends).sort_values("ts", kind="stable", ignore_index=True)
trips = known.assign(minutes=pd.array([None] * len(known), dtype="Float64"))
EVENTS = {"trips": trips, "finished": finished}

# %% [markdown]
# ## The features
#
# In [features.sql](features.sql) each window is a **window union**: `UNION done` adds the trips
# that have ended, and `INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW` excludes the rows of trips that
# have only begun. The windows:
#
# * `city_2h`: the pace, in minutes per kilometre, of all trips that ended in the last two hours.
#   It has no PARTITION BY, so it is a single window over the whole city.
# * `hour_14d`: the pace at this hour of the day, over two weeks.
# * `origin_14d` and `target_14d`: the pace of trips from the origin cell, and to the target cell.
# * `route_30d`: trips between the same two cells. For one trip in nine there are no such trips.
#
# The features are medians because of meters that ran for a whole day: a mean over a window with
# such a trip is meaningless.

# %%
SQL = (HERE / "features.sql").read_text(encoding="utf-8")


def load(until: pd.Timestamp | None = None) -> lockstep.Connection:
    """Creates a database with the events before ``until``, or with all events."""
    db = lockstep.connect()
    for name, rows in EVENTS.items():
        db.append(name, rows if until is None else rows[rows["ts"] < until])
    return db


db = load()
start = time.perf_counter()
offline = db.sql(SQL).arrow().sort_by("trip_id").combine_chunks()
seconds = time.perf_counter() - start
print(f"{len(offline):,} rows with {offline.num_columns - 1} features in {seconds:.2f} s")
offline.slice(5_000, 3).to_pandas().T

# %% [markdown]
# ## Train, and compare with simpler predictions
#
# The last two weeks of February are the test period; the first ten days have no history and are
# excluded. The model predicts the minutes per trip; its loss is the absolute error.

# %%
TEST_BEGINS = pd.Timestamp("2016-02-16")
test = (known["ts"] >= TEST_BEGINS).to_numpy()
learn = known["ts"].between(pd.Timestamp("2016-01-11"), TEST_BEGINS, inclusive="left").to_numpy()


def matrix(features: pa.Table, columns: list[str]) -> np.ndarray:
    """Converts features to doubles; NULL becomes NaN."""
    return np.column_stack([features[name].cast(pa.float64()).to_numpy() for name in columns])


class Model:
    """Gradient-boosted trees over a subset of the features."""

    def __init__(self, features: pa.Table, columns: list[str]) -> None:
        self.columns = columns
        self.trees = HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=150,
            learning_rate=0.08,
            max_leaf_nodes=15,
            early_stopping=False,
            random_state=1,
        )
        # One thread: the result is the same on every machine.
        with threadpool_limits(1, "openmp"):
            self.trees.fit(matrix(features.filter(learn), columns), minutes[learn])

    def predict(self, features: pa.Table) -> np.ndarray:
        with threadpool_limits(1, "openmp"):
            return self.trees.predict(matrix(features, self.columns))


stopped = minutes[test] < 180


def error(predicted: np.ndarray) -> float:
    """Returns the mean absolute error over the test period, in minutes."""
    return float(np.abs(predicted - minutes[test])[stopped].mean())


ALL = [name for name in offline.column_names if name != "trip_id"]
HISTORY = [
    name for name in ALL if name.startswith(("city", "hour_14d", "origin", "target", "route"))
]
TRIP = [name for name in ALL if name not in HISTORY]
offline_test = offline.filter(test)
km = offline["km"].to_numpy()
pace = np.median((minutes / np.maximum(km, 0.1))[learn])

with_history, without_history = Model(offline, ALL), Model(offline, TRIP)
offline_minutes = with_history.predict(offline_test)
answers_of = {
    "always the median": np.full(test.sum(), np.median(minutes[learn])),
    "distance, at the median pace": pace * km[test],
    "model of the trip alone": without_history.predict(offline_test),
    "model of all features": offline_minutes,
}
print(f"{learn.sum():,} trips to learn from, {test.sum():,} trips in the test")
print(f"{np.count_nonzero(~stopped)} of these took three hours or more and are not judged")
print("mean absolute error (minutes)")
for label, predicted in answers_of.items():
    print(f"  {error(predicted):6.3f}  {label}")

# %% [markdown]
# Nearly all information is in the trip itself: origin, destination and time. A history of seven
# trips per hour adds almost nothing. With all trips of the city, the windows would contain some
# hundred times as many rows.
#
# ## The leak
#
# The obvious query over the file is wrong. It uses the table unchanged, with the durations, and
# each window ends at the current row: the median of a route then includes **the duration to
# predict**, and the durations of trips that are still in progress. The next cell makes this
# mistake on purpose: it runs the same SQL over a table that contains the durations, without the
# two conditions.

# %%
LEAKY = SQL.replace("FROM trips", "FROM labelled").replace(
    " INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW", ""
)
db.append("labelled", known)
leaky_offline = db.sql(LEAKY).arrow().sort_by("trip_id").combine_chunks()
leaky = Model(leaky_offline, ALL)
leaky_minutes = leaky.predict(leaky_offline.filter(test))
print(f"{error(leaky_minutes):.3f} minutes, offline, with the leak")

# %% [markdown]
# ## Online: the two weeks again, one trip at a time
#
# The serving database initially contains the rows known on the morning of February 16. When a trip
# begins, it is first a request, and is then stored; when a trip ends, its end is stored.
# `labelled` gets the duration immediately after the request, which is too early and favours the
# leak. The request itself, however, contains no duration.

# %%
served = load(until=TEST_BEGINS)
served.append("labelled", known[known["ts"] < TEST_BEGINS])
served.execute(f"DEPLOY duration AS {SQL}")
served.execute(f"DEPLOY leaky AS {LEAKY}")

stream = [
    (row["ts"], name == "trips", name, row)
    for name, rows in EVENTS.items()
    for row in pa.Table.from_pandas(rows, preserve_index=False).to_pylist()
    if row["ts"] >= TEST_BEGINS
]
# At equal times, ends of trips precede requests.
stream.sort(key=lambda event: event[:2])

request, leaky_request = served.prepare("duration"), served.prepare("leaky")
answers, leaky_answers, latencies_ns = [], [], []
for _, _, name, row in stream:
    if name == "trips":
        begin = time.perf_counter_ns()
        answer = request(row)
        latencies_ns.append(time.perf_counter_ns() - begin)
        answers.append(answer)
        leaky_answers.append(leaky_request(row))
        served.append("labelled", [row | {"minutes": minutes[row["trip_id"]]}])
    served.append(name, [row])
print(answers[-1])

# %% [markdown]
# ## Same features, same predictions

# %%
online = pa.Table.from_pylist(answers, schema=offline.schema)
compared, differing = compare_bits(offline_test, online, without=["trip_id"])
print(f"{compared:,} feature values compared, {differing} differ")
online_minutes = with_history.predict(online)
print(f"mean absolute error offline: {error(offline_minutes):.6f} minutes")
print(f"mean absolute error online:  {error(online_minutes):.6f} minutes")
print(f"predictions that differ: {np.count_nonzero(online_minutes != offline_minutes)}")

leaky_online = pa.Table.from_pylist(leaky_answers, schema=offline.schema)
leaky_online_minutes = leaky.predict(leaky_online)
print(f"with the leak, offline: {error(leaky_minutes):.3f} minutes")
print(f"with the leak, online:  {error(leaky_online_minutes):.3f} minutes")
print(served.verify("duration"))

# %% [markdown]
# Every offline comparison would have selected the model with the leak, which is the worst model
# online. `db.verify` replays all stored trips as requests in one line.

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), width_ratios=[1.25, 1])
bars = [(label, error(predicted), GREY) for label, predicted in answers_of.items()]
bars[-1] = ("all features, offline", error(offline_minutes), BLUE)
bars += [
    ("all features, online", error(online_minutes), BLUE),
    ("with the leak, offline", error(leaky_minutes), RED),
    ("with the leak, online", error(leaky_online_minutes), RED),
]
drawn = left.barh([bar[0] for bar in bars], [bar[1] for bar in bars], color=[b[2] for b in bars])
left.bar_label(drawn, fmt=" %.2f", fontsize=9)
left.invert_yaxis()
left.grid(axis="y", visible=False)
left.set(xlabel="mean absolute error (minutes)", title="How wrong")
left.set_xlim(0, max(bar[1] for bar in bars) * 1.15)

right.plot(
    minutes[test][stopped], online_minutes[stopped], ".", color=BLUE, markersize=2.5, alpha=0.5
)
right.plot([1, 100], [1, 100], color=ORANGE, linewidth=1)
right.set(
    xscale="log",
    yscale="log",
    xlim=(1, 100),
    ylim=(1, 100),
    xlabel="the trip took (minutes, logarithmic)",
    ylabel="predicted online (minutes, logarithmic)",
    title=f"{stopped.sum():,} trips of the test",
)
for axis in (right.xaxis, right.yaxis):
    axis.set_major_formatter(lambda value, _: f"{value:g}")
show(HERE / "pictures" / "error.png")

# %% [markdown]
# ## How long a request takes

# %%
draw_latencies(np.array(latencies_ns), "requests of one trip")
show(HERE / "pictures" / "latency.png")
print(f"{compared:,} feature values compared, {differing} differ")
