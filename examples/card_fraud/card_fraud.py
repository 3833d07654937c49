# %% [markdown]
# # Card fraud: the fifteen payments to review
#
# A bank processes about 2,000 payments a day, and about one in a hundred is fraudulent.
# Its team can call the holders of **15 cards a day**.
# Which fifteen should it call?
#
# The metric follows from the question: of the fifteen payments with the highest scores on each
# day, how many are frauds?
# This is the *precision at the review budget*.
# Accuracy is useless here: a model that calls every payment honest is right 99 % of the time.
#
# The payments are **generated, not real**, by [generate.py](generate.py) with a fixed seed.
# They contain four patterns of fraud: stolen numbers tested with small amounts, bursts on a stolen
# card, customers of a merchant with a data breach, and devices that pay with many cards.
# The absolute precision is not that of a real bank; the comparisons are what matters.

# %%
import sys
import time
from pathlib import Path

HERE = Path(globals().get("__file__", "card_fraud.ipynb")).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
from bits import compare_bits
from generate import START, generate
from pictures import BLUE, GREY, ORANGE, RED, draw_latencies, show
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

import lockstep

data = generate()
is_fraud = (data.patterns != "honest").to_numpy()
print(f"{len(is_fraud):,} payments, {is_fraud.sum():,} frauds ({100 * is_fraud.mean():.2f} %)")
data.transactions.head()

# %% [markdown]
# ## When does each fact become known?
#
# There are three tables. The column `ts` of each is the time at which **a row became known**:
#
# * `transactions`: the time of the payment.
# * `merchants`: the day on which the merchant was registered.
# * `reports`: frauds, at the time at which the cardholder *reports* them,
#   half a day to several weeks after the payment.
#
# The last point is a common source of errors in practice.
# A report is both the label and a source of features ("this device has been reported before").
# At the time of a payment, its own report does not exist yet.

# %%
reported = data.reports.merge(data.transactions[["tx_id", "ts"]], on="tx_id")
delay_days = (reported["ts_x"] - reported["ts_y"]) / pd.Timedelta(days=1)
_, axes = plt.subplots(figsize=(7, 2.8))
axes.hist(delay_days, bins=np.arange(0, 41), color=ORANGE)
axes.axvline(delay_days.median(), color="black", linestyle="--", linewidth=1)
axes.text(delay_days.median() + 0.5, axes.get_ylim()[1] * 0.93, f"median {delay_days.median():.1f}")
axes.set(
    xlabel="time from the payment to the report (days)",
    ylabel="reported frauds",
    title="Labels arrive late",
)
show(HERE / "pictures" / "delay.png")

# %% [markdown]
# ## The features are one SQL file
#
# [features.sql](features.sql) defines all features: the same text computes the training set and
# serves the payments. Its windows:
#
# * `card_30d … EXCLUDE CURRENT_ROW` is the card's history *without* this payment, so that
#   `amount / avg(amount)` compares the payment with what the holder usually spends.
# * `card_1h` and `card_1d` include the payment: they measure the current activity.
# * `card_device` is partitioned by two columns. Its `min(ts)` is the first time that this card was
#   seen with this device. The frame is unbounded, but requests do not read all of its rows:
#   Lockstep stores partial results for keys with many rows.
# * `device_7d` with `distinct_count(card)` finds devices that pay with many cards.
# * `merchant_1h` with `count_where(amount, amount < 5.0)` finds numbers that are being tested.
# * `merchant_reports_14d` is a window union: it contains rows of `reports` instead of payments.
# * `LAST JOIN reports … AND device_report.ts <= t.ts` joins the newest report about the device
#   **that existed at the time of the payment**. Without the condition on the time, a payment in
#   March would see a report from April.

# %%
SQL = (HERE / "features.sql").read_text(encoding="utf-8")
TABLES = ("transactions", "merchants", "reports")


def load(until: pd.Timestamp | None = None) -> lockstep.Connection:
    """Creates a database with the rows known before ``until``, or with all rows."""
    db = lockstep.connect()
    for name in TABLES:
        rows = getattr(data, name)
        db.append(name, rows if until is None else rows[rows["ts"] < until])
    return db


def training_set(db: lockstep.Connection, sql: str) -> pa.Table:
    """Returns the features of all payments, sorted by `tx_id`."""
    return db.sql(sql).arrow().sort_by("tx_id").combine_chunks()


db = load()
start = time.perf_counter()
offline = training_set(db, SQL)
seconds = time.perf_counter() - start
print(f"{len(offline):,} rows with {offline.num_columns - 1} features in {seconds:.1f} s")
offline.slice(100_000, 5).to_pandas().T

# %% [markdown]
# ## Train with the labels that were available
#
# The last two weeks are the test period. The model is trained on the morning on which it starts, so
# it may use only reports that had arrived *by then*. A payment on the previous day almost never has
# a report, fraud or not; training on it would teach the model that new frauds are honest.
# Therefore the last ten days before the test are excluded, and so is the first week, in which
# cards have no history.
#
# The baselines use only the payment itself: its amount alone, or a model of the columns that
# require neither a window nor a join to `reports`.

# %%
BUDGET = 15
TEST_BEGINS = START + pd.Timedelta(days=42)

moment = data.transactions["ts"]
test = (moment >= TEST_BEGINS).to_numpy()
learn = moment.between(START + pd.Timedelta(days=7), TEST_BEGINS - pd.Timedelta(days=10)).to_numpy()
known_reports = data.reports.loc[data.reports["ts"] < TEST_BEGINS, "tx_id"]
known_label = np.isin(np.arange(len(moment)), known_reports)
print(f"{learn.sum():,} payments to learn from, with {known_label[learn].sum()} reported frauds")
print(f"of these payments {is_fraud[learn].sum()} are frauds: the others are not reported yet")

CATEGORIES = sorted(data.merchants["category"].unique())


def matrix(features: pa.Table, columns: list[str]) -> pd.DataFrame:
    """Converts features to input for scikit-learn; NULL becomes NaN."""
    frame = pd.DataFrame(index=range(len(features)))
    for name in columns:
        if name == "category":
            frame[name] = pd.Categorical(features[name].to_pylist(), CATEGORIES)
        else:
            frame[name] = features[name].cast(pa.float64()).to_numpy()
    return frame


def train(features: pa.Table, columns: list[str]) -> HistGradientBoostingClassifier:
    trees = HistGradientBoostingClassifier(
        max_iter=120,
        learning_rate=0.08,
        max_leaf_nodes=15,
        min_samples_leaf=40,
        early_stopping=False,
        categorical_features="from_dtype",
        random_state=1,
    )
    # One thread: the result is the same on every machine.
    with threadpool_limits(1, "openmp"):
        return trees.fit(matrix(features.filter(learn), columns), known_label[learn])


def score(trees: HistGradientBoostingClassifier, features: pa.Table) -> np.ndarray:
    with threadpool_limits(1, "openmp"):
        return trees.predict_proba(matrix(features, list(trees.feature_names_in_)))[:, 1]


def reviewed(scores: np.ndarray, budget: int = BUDGET) -> np.ndarray:
    """Marks the test payments with the highest scores on each day."""
    ranked = pd.DataFrame({"day": moment[test].dt.date.to_numpy(), "score": scores})
    order = ranked.sort_values("score", ascending=False, kind="stable")
    return (order.groupby("day").cumcount() < budget).sort_index().to_numpy()


def precision(scores: np.ndarray, budget: int = BUDGET) -> float:
    return float(is_fraud[test][reviewed(scores, budget)].mean())


ALL = [name for name in offline.column_names if name != "tx_id"]
PAYMENT = ["amount", "hour_of_day", "is_web", "category", "merchant_days"]
with_history = train(offline, ALL)
without_history = train(offline, PAYMENT)

offline_test = offline.filter(test)
offline_scores = score(with_history, offline_test)
payment_scores = score(without_history, offline_test)
amounts = offline_test["amount"].to_numpy()
print(f"precision at {BUDGET} payments a day, over {moment[test].dt.date.nunique()} days:")
print(f"  {is_fraud[test].mean():.3f}  chosen at random")
print(f"  {precision(amounts):.3f}  the highest amounts")
print(f"  {precision(payment_scores):.3f}  a model of the payment alone")
print(f"  {precision(offline_scores):.3f}  a model of all features")

# %% [markdown]
# ## The leak
#
# The next cell makes a mistake on purpose: it removes the condition on the time from both LAST
# JOINs to `reports`. These are two lines of SQL, and offline the result looks better than the
# correct one.

# %%
LEAKY = SQL.replace(" AND device_report.ts <= t.ts", "").replace(" AND card_report.ts <= t.ts", "")
leaky_offline = training_set(db, LEAKY)
leaky = train(leaky_offline, ALL)
leaky_scores = score(leaky, leaky_offline.filter(test))
print(f"precision at {BUDGET} payments a day, offline: {precision(leaky_scores):.3f} with the leak")

# %% [markdown]
# Every fraud has a report on its card *today*, and the model has learned to look for it.
# Lockstep warns about such a query when it is deployed or explained:

# %%
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    db.execute("EXPLAIN " + LEAKY)
for warning in caught:
    print(warning.message)

# %% [markdown]
# ## Online: the two weeks again, one payment at a time
#
# The serving database contains only the rows known on the morning on which the test starts.
# All events are then replayed in order of time. A report or a merchant is stored when it arrives.
# A payment is first a request, for which the features are computed, and is then stored.
# `features.sql` is the only definition of the features: `DEPLOY` compiles the same text.

# %%
served = load(until=TEST_BEGINS)
with warnings.catch_warnings():
    # The second deployment has the leak; its warnings have already been shown.
    warnings.simplefilter("ignore", lockstep.LockstepWarning)
    served.execute(f"DEPLOY fraud AS {SQL}")
    served.execute(f"DEPLOY leaky AS {LEAKY}")

stream = [
    (row["ts"], name == "transactions", name, row)
    for name in TABLES
    for row in pa.Table.from_pandas(getattr(data, name), preserve_index=False).to_pylist()
    if row["ts"] >= TEST_BEGINS
]
# At equal times, stored rows precede payments.
stream.sort(key=lambda event: event[:2])

request, leaky_request = served.prepare("fraud"), served.prepare("leaky")
answers, leaky_answers, latencies_ns = [], [], []
for _, _, name, row in stream:
    if name == "transactions":
        begin = time.perf_counter_ns()
        answer = request(row)
        latencies_ns.append(time.perf_counter_ns() - begin)
        answers.append(answer)
        leaky_answers.append(leaky_request(row))
    served.append(name, [row])
print(answers[-1])

# %% [markdown]
# ## Same scores, same precision
#
# The results are compared with the rows of the training set, bit by bit.
# Equal features produce equal scores, and equal scores select the same fifteen payments.

# %%
online = pa.Table.from_pylist(answers, schema=offline.schema)
compared, differing = compare_bits(offline_test, online, without=["tx_id"])
print(f"{compared:,} feature values compared, {differing} differ")
online_scores = score(with_history, online)
print(f"precision at {BUDGET} payments a day, offline: {precision(offline_scores):.6f}")
print(f"precision at {BUDGET} payments a day, online:  {precision(online_scores):.6f}")
print(f"scores that differ: {np.count_nonzero(online_scores != offline_scores)}")

leaky_online = pa.Table.from_pylist(leaky_answers, schema=offline.schema)
leaky_online_scores = score(leaky, leaky_online)
print(f"with the leak, offline: {precision(leaky_scores):.3f}")
print(f"with the leak, online:  {precision(leaky_online_scores):.3f}")

# %% [markdown]
# Online, the leak does not help: the report does not exist at the time of the payment. Because the
# model relies on it instead of the windows, it is worse than the model without a leak.
#
# `db.verify` performs the comparison without a loop of your own: each stored payment is replayed as
# a request at its own position. It proves that the two modes agree. It cannot detect a leak in the
# query itself, which both modes compute identically over the rows that are stored *today*.
# The warning above and a replay like this one can detect a leak.

# %%
print(served.verify("fraud", sample=20_000))

# %% [markdown]
# ## What the model finds
#
# Left: the precision for other budgets. It decreases for every model as the budget exceeds the
# number of frauds per day. Right: the frauds in the test by pattern, and the number of them among
# the reviewed payments. The first payments of an attack are missed, because there are no earlier
# events that a window could count.

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
budgets = np.array([5, 10, 15, 20, 30, 40, 60, 80, 100])
for label, values, color, style in [
    ("all features, online", online_scores, BLUE, "-"),
    ("all features, offline", offline_scores, "black", ":"),
    ("with the leak, offline", leaky_scores, RED, "--"),
    ("with the leak, online", leaky_online_scores, RED, "-"),
    ("the payment alone", payment_scores, ORANGE, "-"),
    ("highest amounts", amounts, GREY, "-"),
]:
    curve = [precision(values, budget) for budget in budgets]
    left.plot(budgets, curve, style, color=color, label=label)
left.axvline(BUDGET, color="black", linewidth=0.8)
left.text(BUDGET + 1, 1.0, "the budget", fontsize=8)
left.set(
    xlabel="reviewed payments a day",
    ylabel="share that is fraud",
    title="Precision",
    ylim=(0, 1.05),
)
left.legend(fontsize=8, loc="upper right")

found = pd.DataFrame({"pattern": data.patterns[test].to_numpy(), "hit": reviewed(online_scores)})
found = found[found["pattern"] != "honest"].groupby("pattern")["hit"].agg(["sum", "count"])
found = found.sort_values("count")
right.barh(found.index, found["count"], color=GREY, label="frauds in the test")
right.barh(found.index, found["sum"], color=BLUE, label=f"reviewed, {BUDGET} a day")
right.set(xlabel="payments", title="Frauds by pattern")
right.grid(axis="y", visible=False)
right.legend(fontsize=8, loc="lower right")
show(HERE / "pictures" / "precision.png")

# %% [markdown]
# ## How long a request takes
#
# Measured from a Python dict to a Python dict; all features are computed at request time.

# %%
draw_latencies(np.array(latencies_ns), "requests of one payment")
show(HERE / "pictures" / "latency.png")
print(f"{compared:,} feature values compared, {differing} differ")
