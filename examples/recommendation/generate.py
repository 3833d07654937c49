"""Generates lists of recommended items and user actions on them. The data is not real.

The same seed produces the same rows. Clicks depend on the taste of the user, the category that the
user is looking for in this session, the current popularity of the item, and chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

START = pd.Timestamp("2024-05-01")
DAYS = 21
USERS = 1_500
ITEMS = 360
CATEGORIES = ["shoes", "shirts", "coats", "bags", "books", "games", "garden", "kitchen", "phones"]
BRANDS = 24
SESSIONS = 8_000
CANDIDATES = 10
DAY_S = 86_400.0

COLUMNS = ["event_id", "ts", "user", "item", "category", "brand", "price", "action"]


@dataclass(frozen=True)
class Shop:
    """Four tables with the same columns, each in the order of its events."""

    impressions: pd.DataFrame
    """Items shown, in lists of ten; all rows of a list have the same user and time."""
    clicks: pd.DataFrame
    carts: pd.DataFrame
    orders: pd.DataFrame
    """User actions; `event_id` is the impression, `ts` is the time of the action."""


def generate(seed: int = 7) -> Shop:
    """Generates three weeks of events of a shop."""
    rng = np.random.default_rng(seed)
    items = _items(rng)
    taste = rng.normal(0, 1.0, (USERS, len(CATEGORIES)))
    loyalty = rng.normal(0, 0.5, (USERS, BRANDS))
    purse = rng.normal(0, 0.6, USERS)

    rows: list[tuple] = []
    for second, user, intent in _sessions(rng, taste):
        moment = second
        for _ in range(int(rng.integers(1, 5))):
            shown = _candidates(rng, items, intent, int(moment // DAY_S))
            appeal = (
                0.55 * taste[user, items.category[shown]]
                + 1.5 * (items.category[shown] == intent)
                + loyalty[user, items.brand[shown]]
                + 0.8 * items.popularity[int(moment // DAY_S), shown]
                - 0.6 * np.abs(items.level[shown] - purse[user])
            )
            is_clicked = rng.random(CANDIDATES) < 1 / (1 + np.exp(3.0 - appeal))
            rows.extend(_events(rng, moment, user, shown, is_clicked, appeal))
            moment += rng.uniform(40, 240)

    frame = pd.DataFrame(rows, columns=["second", "list", "user", "item", "action", "order"])
    return _tables(frame, items)


@dataclass(frozen=True)
class _Items:
    category: np.ndarray
    brand: np.ndarray
    level: np.ndarray
    """Price level of the item, on a logarithmic scale."""
    price: np.ndarray
    popularity: np.ndarray
    """Popularity by day and item: a random walk, so that past popularity is predictive."""


def _items(rng: np.random.Generator) -> _Items:
    level = rng.normal(0, 0.6, ITEMS)
    steps = rng.normal(0, 0.22, (DAYS + 1, ITEMS))
    steps[0] = rng.normal(0, 0.8, ITEMS)
    return _Items(
        category=rng.integers(0, len(CATEGORIES), ITEMS),
        brand=rng.integers(0, BRANDS, ITEMS),
        level=level,
        price=np.round(30 * np.exp(level + rng.normal(0, 0.1, ITEMS)), 2),
        popularity=np.cumsum(steps, axis=0),
    )


def _sessions(rng: np.random.Generator, taste: np.ndarray) -> list[tuple[float, int, int]]:
    """Returns the time, user and category of each session.

    With probability 0.5, the category is that of the user's previous session.
    """
    activity = rng.gamma(1.0, 1.0, USERS)
    users = rng.choice(USERS, SESSIONS, p=activity / activity.sum())
    hours = 8 + 14 * rng.beta(2.2, 1.6, SESSIONS)
    seconds = np.sort(rng.integers(0, DAYS, SESSIONS) * DAY_S + hours * 3600)
    weights = np.exp(taste)
    weights /= weights.sum(axis=1, keepdims=True)
    last: dict[int, int] = {}
    sessions = []
    for second, user in zip(seconds, users, strict=True):
        is_same = user in last and rng.random() < 0.5
        intent = last[user] if is_same else int(rng.choice(len(CATEGORIES), p=weights[user]))
        last[user] = intent
        sessions.append((float(second), int(user), intent))
    return sessions


def _candidates(rng: np.random.Generator, items: _Items, intent: int, day: int) -> np.ndarray:
    """Draws ten items, preferring popular items and the category that the user looks for."""
    weight = np.exp(0.5 * items.popularity[day]) * np.where(items.category == intent, 2.0, 1.0)
    return rng.choice(ITEMS, CANDIDATES, replace=False, p=weight / weight.sum())


def _events(
    rng: np.random.Generator,
    moment: float,
    user: int,
    shown: np.ndarray,
    is_clicked: np.ndarray,
    appeal: np.ndarray,
) -> list[tuple]:
    """Returns the events of a list: impressions, and any clicks, carts and orders."""
    key = rng.integers(0, 2**62)
    rows = []
    for order, item in enumerate(shown):
        rows.append((moment, key, user, item, "shown", order))
        if not is_clicked[order]:
            continue
        clicked = moment + rng.uniform(4, 60)
        rows.append((clicked, key, user, item, "click", order))
        if rng.random() < 1 / (1 + np.exp(1.6 - 0.5 * appeal[order])):
            carted = clicked + rng.uniform(10, 120)
            rows.append((carted, key, user, item, "cart", order))
            if rng.random() < 0.45:
                ordered = carted + rng.uniform(60, 3600)
                rows.append((ordered, key, user, item, "order", order))
    return rows


def _tables(frame: pd.DataFrame, items: _Items) -> Shop:
    """Numbers the impressions by time, and splits the events by action."""
    item = frame["item"].to_numpy()
    frame = frame.assign(
        ts=(START + pd.to_timedelta((frame["second"] * 1000).astype("int64"), unit="ms")).astype(
            "datetime64[ms]"
        ),
        category=np.array(CATEGORIES)[items.category[item]],
        brand=[f"brand{number}" for number in items.brand[item]],
        price=items.price[item],
        user=[f"u{number}" for number in frame["user"]],
        item=[f"i{number}" for number in item],
    )
    frame = frame.sort_values(["ts", "list", "order"], kind="stable", ignore_index=True)
    shown = frame[frame["action"] == "shown"].reset_index(drop=True)
    shown.insert(0, "event_id", np.arange(len(shown)))
    numbers = shown[["list", "order", "event_id"]]
    frame = frame.merge(numbers, on=["list", "order"], how="left", sort=False)

    def of(action: str) -> pd.DataFrame:
        return frame.loc[frame["action"] == action, COLUMNS].reset_index(drop=True)

    return Shop(of("shown"), of("click"), of("cart"), of("order"))
