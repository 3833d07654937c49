# %% [markdown]
# # Recommendation: ten items, in the right order
#
# A shop shows lists of ten items. Which of the ten will this visitor click?
# The shop should show these items at the top, so the result is an *order*, and the metrics are
# ranking metrics: **NDCG@5** of each list (1 if all clicked items are at the top) and the **AUC by
# user** (the probability that a clicked item is ranked above an item that the user did not click).
#
# The baseline is the usual one of a shop: the items by **popularity**, which is the number of
# clicks in the last seven days.
#
# The lists and the clicks are **generated, not real**, by [generate.py](generate.py) with a fixed
# seed. Users have a lasting taste, and look for one category in each visit.

# %%
import re
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path

HERE = Path(globals().get("__file__", "recommendation.ipynb")).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import lightgbm
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from generate import CANDIDATES, DAYS, START, generate
from pictures import BLUE, GREY, ORANGE, draw_latencies, show
from sklearn.metrics import ndcg_score, roc_auc_score

import lockstep

data = generate()
TABLES = ("impressions", "clicks", "carts", "orders")
for name in TABLES:
    print(f"{len(getattr(data, name)):8,} {name}")
data.impressions.head(3)

# %% [markdown]
# ## One window over four tables
#
# The actions of a user are in three tables: clicks, carts and orders. *What did this user do in
# the last half hour?* is nevertheless one question, and a **window union** is one window over all
# three:
#
# ```sql
# did_30m AS (UNION clicks, carts, orders PARTITION BY i.user ORDER BY i.ts
#   ROWS_RANGE BETWEEN 30m PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW)
# ```
#
# * The tables have the same columns, so that they can be combined. `action` distinguishes the rows.
# * `INSTANCE_NOT_IN_WINDOW` excludes the other rows of the main table, which are impressions and
#   not actions. `EXCLUDE CURRENT_ROW` excludes the row itself.
# * The windows named `seen_…` include impressions: clicks divided by impressions is the click rate.
#   They have `EXCLUDE CURRENT_TIME` instead, because **the ten rows of a list have the same time**.
#   Without it, the tenth row would see the nine other impressions in the training set, but not
#   online, where the ten rows are requested together.
# * A window that is partitioned by `i.user, i.category` has a value for each item: the number of
#   actions of this user in the category *of this item*.
#
# A click is stored when it happens, with its own time. No feature can therefore see the click that
# it should predict, which is some seconds later than the list.
#
# ## Features as a line of text
#
# The query returns the features not as columns but as one line of text for LightGBM, composed of
# **feature signatures**: `continuous(x)` is a number, `discrete(x, 1000)` a category, hashed into
# 1,000 buckets, and `binary_label(x)` the label. `csv(…)` writes their values separated by commas.
# The number of a category is therefore part of the SQL, and the same offline and online: no
# dictionary must be shipped with the model. (Two categories can share a bucket; these do not.)
# A number is written with enough digits to read the same bits back.

# %%
SQL = (HERE / "features.sql").read_text(encoding="utf-8")


def load(until: pd.Timestamp | None = None) -> lockstep.Connection:
    """Creates a database with the events before ``until``, or with all events."""
    db = lockstep.connect()
    for name in TABLES:
        rows = getattr(data, name)
        db.append(name, rows if until is None else rows[rows["ts"] < until])
    return db


db = load()
start = time.perf_counter()
offline = db.sql(SQL).arrow().sort_by("event_id")
seconds = time.perf_counter() - start
print(f"{len(offline):,} lines in {seconds:.1f} s; one of them:")
print(offline["line"][150_002])

# %% [markdown]
# `gcformat` and `libsvm` write the same features in other formats: with slot numbers, and with
# each category as a separate slot.

# %%
for form in ("gcformat", "libsvm"):
    line = db.sql(f"""
        SELECT {form}(binary_label(true), continuous(i.price), discrete(i.category, 1000)) AS line
        FROM impressions AS i LIMIT 1""").fetchone()[0]
    print(f"{form:8}  {line}")

# %% [markdown]
# ## The training file
#
# The training query is the same SQL with a label at the start. **A label depends on the future**:
# was this impression clicked later? This is correct for a label and wrong for any feature, so the
# join to the click is here and not in `features.sql`, which is deployed.
#
# Days 8 to 18 are for training; earlier, the windows are not yet full. The last three days are the
# test period. `INTO OUTFILE` writes the lines unchanged, and LightGBM reads the file.

# %%
TEST_BEGINS = START + pd.Timedelta(days=DAYS - 3)
moment = data.impressions["ts"]
test = (moment >= TEST_BEGINS).to_numpy()
learn = moment.between(START + pd.Timedelta(days=7), TEST_BEGINS, inclusive="left").to_numpy()
first, last = np.flatnonzero(learn)[[0, -1]]

labelled = SQL.replace("csv(", "csv(\n    binary_label(label.event_id IS NOT NULL),", 1).replace(
    "FROM impressions AS i",
    "FROM impressions AS i LAST JOIN clicks AS label ON i.event_id = label.event_id",
)
# The kinds of the values in a line, and the positions of some of them.
kinds = re.findall(r"(continuous|discrete)\(", SQL)
categories = [position for position, kind in enumerate(kinds) if kind == "discrete"]
CLICKS_7D, SHARE_7D, DID_30M = 2, 3, 8

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "train.csv"
db.execute(f"""
    SELECT line FROM ({labelled}) AS example
    WHERE event_id BETWEEN {first} AND {last}
    ORDER BY event_id
    INTO OUTFILE '{path}' OPTIONS (format = 'csv', header = false, quote = '')""")
print(f"{path.stat().st_size / 1e6:.1f} MB, which begin with")
print(path.open().readline())

# %% [markdown]
# LambdaRank learns an order within groups; each list of ten is a group. NULL is written as an
# empty field, which LightGBM reads as a missing value. Its parser may round the last bit of a
# number. This can move a threshold of a tree by the same amount, which is harmless: for
# predictions, the lines of both modes are parsed by `parse`, which is exact.

# %%
examples = lightgbm.Dataset(
    str(path),
    group=np.full(learn.sum() // CANDIDATES, CANDIDATES),
    categorical_feature=categories,
    params={"header": False, "verbose": -1, "num_threads": 2},
)
model = lightgbm.train(
    {
        "objective": "lambdarank",
        "learning_rate": 0.08,
        "num_leaves": 15,
        "min_data_in_leaf": 100,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 2,
        "seed": 1,
        "verbose": -1,
    },
    examples,
    num_boost_round=120,
)


def parse(lines: list[str]) -> np.ndarray:
    """Parses lines as numbers; an empty field is NaN."""
    names = [str(position) for position in range(len(kinds))]
    table = pa.csv.read_csv(
        BytesIO("\n".join(lines).encode()),
        read_options=pa.csv.ReadOptions(column_names=names),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.float64()), null_values=[""]
        ),
    )
    return np.column_stack([table[name].to_numpy() for name in names])


clicked = np.isin(data.impressions["event_id"], data.clicks["event_id"])[test]
users = data.impressions["user"].to_numpy()[test]


def ndcg(scores: np.ndarray, k: int = 5, lists: np.ndarray | None = None) -> float:
    """Returns the mean NDCG over the lists with at least one click."""
    relevant, ranks = clicked.reshape(-1, CANDIDATES), scores.reshape(-1, CANDIDATES)
    some = relevant.any(axis=1) if lists is None else relevant.any(axis=1) & lists
    return float(ndcg_score(relevant[some], ranks[some], k=k))


def auc_by_user(scores: np.ndarray) -> float:
    """Returns the mean AUC over the users with clicked and unclicked items."""
    frame = pd.DataFrame({"user": users, "clicked": clicked, "score": scores})
    return float(
        np.mean(
            [
                roc_auc_score(rows["clicked"], rows["score"])
                for _, rows in frame.groupby("user")
                if rows["clicked"].nunique() == 2
            ]
        )
    )


offline_lines = offline["line"].filter(pa.array(test)).to_pylist()
features = parse(offline_lines)
offline_scores = model.predict(features, num_threads=1)
popularity = features[:, CLICKS_7D]
share = features[:, SHARE_7D]  # the clicks, divided by the impressions
chance = np.random.default_rng(0).random(len(features))
print(f"{test.sum() // CANDIDATES:,} lists, {clicked.sum():,} clicks")
print("NDCG@5  AUC by user")
for label, scores in [
    ("any order", chance),
    ("popularity: clicks in 7 days", popularity),
    ("share of impressions clicked in 7 days", share),
    ("model", offline_scores),
]:
    print(f" {ndcg(scores):.3f}        {auc_by_user(scores):.3f}  {label}")

# %% [markdown]
# ## Online: three days again, one list at a time
#
# The serving database initially contains the rows known at the start of the test. Clicks, carts and
# orders are stored when they happen. A list of ten rows is **one call**: request rows do not see
# each other, and they are stored only after the list has been shown.

# %%
served = load(until=TEST_BEGINS)
served.execute(f"DEPLOY interest AS {SQL}")

stream = [
    (row["ts"], 0, name, [row])
    for name in ("clicks", "carts", "orders")
    for row in pa.Table.from_pandas(getattr(data, name), preserve_index=False).to_pylist()
    if row["ts"] >= TEST_BEGINS
]
shown = pa.Table.from_pandas(data.impressions[test], preserve_index=False).to_pylist()
stream += [
    (shown[at]["ts"], 1, "impressions", shown[at : at + CANDIDATES])
    for at in range(0, len(shown), CANDIDATES)
]
stream.sort(key=lambda event: event[:2])

online_lines, latencies_ns = [], []
for _, _, name, rows in stream:
    if name == "impressions":
        begin = time.perf_counter_ns()
        answers = served.request("interest", rows)
        latencies_ns.append(time.perf_counter_ns() - begin)
        online_lines += [answer["line"] for answer in answers]
    served.append(name, rows)

# %% [markdown]
# ## Same lines, same order
#
# A line contains every bit of its features, so comparing the values as strings compares the bits.

# %%
compared = differing = 0
for expected, found in zip(offline_lines, online_lines, strict=True):
    pairs = list(zip(expected.split(","), found.split(","), strict=True))
    compared += len(pairs)
    differing += sum(one != other for one, other in pairs)
print(f"{compared:,} feature values compared, {differing} differ")

online_scores = model.predict(parse(online_lines), num_threads=1)
print(f"NDCG@5 offline: {ndcg(offline_scores):.6f}")
print(f"NDCG@5 online:  {ndcg(online_scores):.6f}")
print(f"scores that differ: {np.count_nonzero(online_scores != offline_scores)}")
print(served.verify("interest", sample=20_000))

# %% [markdown]
# ## Why fresh features matter
#
# Left: the metric for other list lengths. Right: the lists grouped by the actions of their user in
# the half hour before. Popularity is the same for all users, whereas the model improves with the
# number of recent actions. Features that are computed once a night lack this information.

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
lengths = np.arange(1, CANDIDATES + 1)
for label, scores, color in [
    ("model, online", online_scores, BLUE),
    ("popularity", popularity, ORANGE),
    ("any order", chance, GREY),
]:
    left.plot(lengths, [ndcg(scores, k) for k in lengths], color=color, label=label)
left.plot(lengths, [ndcg(offline_scores, k) for k in lengths], ":", color="black", label="offline")
left.set(xlabel="k (items at the top)", ylabel="NDCG@k", title="Quality of the order", ylim=(0, 1))
left.set_xticks(lengths)
left.legend(fontsize=8, loc="lower right")

done = features[::CANDIDATES, DID_30M]
groups = [("none", done == 0), ("1 to 3", (done >= 1) & (done <= 3)), ("4 or more", done >= 4)]
for offset, (label, scores, color) in zip(
    (-0.2, 0.2), [("popularity", popularity, ORANGE), ("model", online_scores, BLUE)], strict=True
):
    heights = [ndcg(scores, 5, lists) for _, lists in groups]
    bars = right.bar(np.arange(3) + offset, heights, 0.38, color=color, label=label)
    right.bar_label(bars, fmt="%.2f", fontsize=8)
right.set_xticks(np.arange(3), [name for name, _ in groups])
right.set(
    xlabel="actions of the user in the last 30 minutes",
    ylabel="NDCG@5",
    title="Lists by what the user just did",
    ylim=(0, 1),
)
right.grid(axis="x", visible=False)
right.legend(fontsize=8, loc="upper left")
show(HERE / "pictures" / "ranking.png")

# %% [markdown]
# ## How long a request takes
#
# One request is a list of ten items: ten lines of 24 features, Python dicts in and out.

# %%
draw_latencies(np.array(latencies_ns), "requests of ten items")
show(HERE / "pictures" / "latency.png")
print(f"{compared:,} feature values compared, {differing} differ")
