# %% [markdown]
# # Recommendation: ten items, in the right order
#
# A shop shows lists of ten items. Which of the ten will this visitor click?
# The shop wants those at the top, so the answer is an *order*, and the measures are those of
# orders: **NDCG@5** for each list (1 when all clicked items are at the top) and the **AUC by
# user** (the chance that an item that the user clicked is ranked above one that the user did not).
#
# The baseline is the one to beat in every shop: the items by **popularity**, which is the number of
# clicks of the last seven days.
#
# The lists and the clicks are **generated, not real**, by [generate.py](generate.py) with a fixed
# seed. People in it have a lasting taste, and look for one category in each visit.

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
# What a user does is in three tables: clicks, carts and orders. *What did this user do in the last
# half hour?* is one question all the same, and a **window union** is one window over all of them:
#
# ```sql
# did_30m AS (UNION clicks, carts, orders PARTITION BY i.user ORDER BY i.ts
#   ROWS_RANGE BETWEEN 30m PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW)
# ```
#
# * The tables have the same columns, so that their rows fit together. `action` tells them apart.
# * `INSTANCE_NOT_IN_WINDOW` leaves out the other rows of the main table, which are impressions:
#   to be shown something is not to do something. `EXCLUDE CURRENT_ROW` leaves out the row itself.
# * The windows named `seen_…` do contain impressions: clicks divided by impressions is the share
#   that was clicked. They have `EXCLUDE CURRENT_TIME` instead, because **the ten rows of a list
#   have one moment**. Without it, in the training set the tenth row would see that the nine others
#   were shown, and online, where the ten are asked about together, it would not.
# * A window that is partitioned by `i.user, i.category` answers for each item separately: how much
#   has this user done in the category *of this item*?
#
# A click is stored when it happens, with its own time. So no feature can see the click that it
# shall predict: it is some seconds later than the list.
#
# ## Features as a line of text
#
# The query does not give a column for each feature, but one line that LightGBM reads, made by
# **feature signatures**: `continuous(x)` is a number, `discrete(x, 1000)` a category, as its hash
# in 1,000 buckets, `binary_label(x)` the label. `csv(…)` writes their values with commas between
# them. The number of a category is then part of the SQL, and the same offline and online: there is
# no dictionary to ship with the model. (Two categories may share a bucket; these do not.)
# A number is written with as many digits as it takes to read the same bits back.

# %%
SQL = (HERE / "features.sql").read_text(encoding="utf-8")


def load(until: pd.Timestamp | None = None) -> lockstep.Connection:
    """Makes a database with the events before ``until``, or with all of them."""
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
# `gcformat` and `libsvm` write the same features in other formats: with the number of the slot,
# and with categories as slots of their own.

# %%
for form in ("gcformat", "libsvm"):
    line = db.sql(f"""
        SELECT {form}(binary_label(true), continuous(i.price), discrete(i.category, 1000)) AS line
        FROM impressions AS i LIMIT 1""").fetchone()[0]
    print(f"{form:8}  {line}")

# %% [markdown]
# ## The training file
#
# The training query is the same SQL with a label in front. **A label looks into the future**: was
# this impression clicked afterwards? That is right for a label and wrong for everything else, so
# the join to the click is here and not in `features.sql`, which is deployed.
#
# Days 8 to 18 are for learning; before that the windows are not full yet. The last three days are
# the test. `INTO OUTFILE` writes the lines as they are, and LightGBM reads the file.

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
# LambdaRank learns an order within groups; a group is a list of ten. LightGBM reads nothing between
# two commas as a missing value, which is what NULL is written as. Its parser may round the last bit
# of a number. That can move a threshold of a tree by as much and does no harm: for predictions, the
# lines of both modes are read by `parse`, which is exact.

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
    """Reads lines as numbers; nothing between two commas is NaN."""
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
    """Returns the mean over the lists in which something was clicked."""
    relevant, ranks = clicked.reshape(-1, CANDIDATES), scores.reshape(-1, CANDIDATES)
    some = relevant.any(axis=1) if lists is None else relevant.any(axis=1) & lists
    return float(ndcg_score(relevant[some], ranks[some], k=k))


def auc_by_user(scores: np.ndarray) -> float:
    """Returns the mean over the users who clicked something, but not everything."""
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
# The serving database begins with what was known when the test begins. Clicks, carts and orders
# are stored when they happen. A list of ten rows is **one call**: request rows do not see each
# other, and they are stored only after the list has been shown.

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
# A line holds every bit of its features, so comparing them value by value as texts compares bits.

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
# On the left the measure for other lengths of a list. On the right the lists by what their user had
# done in the half hour before: popularity is the same for everybody, and the model is better the
# more it has just seen. Features that are computed once a night do not have that.

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
# One request is a list of ten items: ten lines of 24 features, from Python dicts to Python dicts.

# %%
draw_latencies(np.array(latencies_ns), "requests of ten items")
show(HERE / "pictures" / "latency.png")
print(f"{compared:,} feature values compared, {differing} differ")
