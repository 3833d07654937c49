"""Generates card transactions with four patterns of fraud. The data is not real.

The same seed produces the same rows. Honest behaviour makes fraud hard to detect: families share
devices, people travel and buy new phones, and some purchases are large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

START = pd.Timestamp("2024-03-01")
DAYS = 56
CARDS = 5_000
MERCHANTS = 400
HONEST = 115_000

CATEGORIES = ["grocery", "restaurant", "fuel", "fashion", "electronics", "travel", "digital"]
SHARES = [0.30, 0.22, 0.12, 0.13, 0.06, 0.04, 0.13]
TYPICAL_AMOUNT = [34, 22, 45, 60, 140, 260, 9]
# Share of each category that is sold on the web.
WEB = {"fashion": 0.5, "electronics": 0.6, "travel": 0.9, "digital": 1.0}
DAY_S = 86_400.0


@dataclass(frozen=True)
class Transactions:
    """Three tables, each in the order in which its rows became known."""

    transactions: pd.DataFrame
    """Payments; `ts` is the time of the payment."""
    merchants: pd.DataFrame
    """Merchants that accept cards; `ts` is the time at which the merchant was registered."""
    reports: pd.DataFrame
    """Transactions that the cardholder reported as fraud; `ts` is the time of the report. The last
    reports are weeks after the last transaction."""
    patterns: pd.Series
    """Fraud pattern by `tx_id`, or `honest`: the ground truth, unknown at the time of a payment."""


def generate(seed: int = 2024) -> Transactions:
    """Generates eight weeks of transactions."""
    rng = np.random.default_rng(seed)
    merchants = _merchants(rng)
    honest = _honest(rng, merchants)
    fraud = pd.concat(
        [
            _card_testing(rng, merchants),
            _stolen_cards(rng, merchants),
            _compromised_merchants(rng, merchants, honest),
            _shared_devices(rng, merchants),
        ]
    )
    rows = pd.concat([honest, fraud]).sort_values("second", kind="stable", ignore_index=True)
    rows = rows[rows["second"] < DAYS * DAY_S]
    rows["reported"] = rows["second"] + _days_until_report(rng, len(rows)) * DAY_S
    rows = _replace_reported_cards(rows)
    rows["amount"] = rows["amount"].clip(lower=0.5).round(2)
    rows["ts"] = START + pd.to_timedelta((rows["second"] * 1000).astype("int64"), unit="ms")
    rows.insert(0, "tx_id", np.arange(len(rows)))
    columns = ["tx_id", "ts", "card", "merchant", "device", "channel", "amount"]

    reports = rows[rows["pattern"] != "honest"].copy()
    reports["ts"] = START + pd.to_timedelta((reports["reported"] * 1000).astype("int64"), unit="ms")
    reports = reports.sort_values("ts", kind="stable", ignore_index=True)
    return Transactions(
        transactions=_milliseconds(rows[columns].reset_index(drop=True)),
        merchants=_milliseconds(merchants[["merchant", "ts", "category", "country"]]),
        reports=_milliseconds(reports[columns]),
        patterns=rows["pattern"].reset_index(drop=True),
    )


def _merchants(rng: np.random.Generator) -> pd.DataFrame:
    category = rng.choice(len(CATEGORIES), MERCHANTS, p=SHARES)
    # One merchant in eight is registered during the period.
    day = np.where(rng.random(MERCHANTS) < 0.12, rng.integers(5, DAYS - 5, MERCHANTS), 0)
    frame = pd.DataFrame(
        {
            "merchant": [f"m{number:03d}" for number in range(MERCHANTS)],
            "category": np.array(CATEGORIES)[category],
            "country": rng.choice(["FR", "DE", "IT", "ES"], MERCHANTS, p=[0.55, 0.2, 0.15, 0.1]),
            "price": np.array(TYPICAL_AMOUNT)[category] * rng.lognormal(0, 0.35, MERCHANTS),
            "share": 1 / (1 + rng.permutation(MERCHANTS)) ** 0.7,
            "day": day,
        }
    )
    frame["ts"] = START + pd.to_timedelta(frame["day"], unit="D")
    return frame.sort_values("ts", kind="stable", ignore_index=True)


def _honest(rng: np.random.Generator, merchants: pd.DataFrame) -> pd.DataFrame:
    """Generates the purchases of the cardholders."""
    weight = rng.gamma(1.2, 1.0, CARDS)
    wealth = rng.lognormal(0, 0.5, CARDS)
    card = rng.choice(CARDS, HONEST, p=weight / weight.sum())
    second = _seconds(rng, HONEST)
    # Each card has ten favourite merchants, which account for half of its purchases.
    share = (merchants["share"] / merchants["share"].sum()).to_numpy()
    liked = rng.choice(MERCHANTS, (CARDS, 10), p=share)
    chosen = np.where(
        rng.random(HONEST) < 0.5,
        liked[card, rng.integers(0, 10, HONEST)],
        rng.choice(MERCHANTS, HONEST, p=share),
    )
    is_open = merchants["day"].to_numpy()[chosen] * DAY_S <= second
    chosen = np.where(is_open, chosen, 0)
    # One purchase in sixty is large.
    large = np.where(rng.random(HONEST) < 1 / 60, rng.uniform(3, 12, HONEST), 1.0)
    amount = merchants["price"].to_numpy()[chosen] * wealth[card] * large
    amount *= rng.lognormal(0, 0.45, HONEST)

    category = merchants["category"].to_numpy()[chosen]
    is_web = rng.random(HONEST) < np.array([WEB.get(name, 0.05) for name in category])
    # A household with about three cards shares a device; some devices are replaced.
    household = rng.integers(0, CARDS // 2, CARDS)
    renewals = rng.random(CARDS // 2) < 0.35
    renewed = np.where(renewals, rng.uniform(0, DAYS * DAY_S, CARDS // 2), np.inf)
    generation = (second > renewed[household[card]]).astype(int)
    device = np.char.add("d", (household[card] * 2 + generation).astype(str))
    # When travelling or visiting: a device that is seen only once.
    once = rng.random(HONEST) < 0.04
    device = np.where(once, np.char.add("v", np.arange(HONEST).astype(str)), device)
    till = np.char.add(merchants["merchant"].to_numpy()[chosen].astype(str), "-till")
    return pd.DataFrame(
        {
            "second": second,
            "card": np.char.add("c", card.astype(str)),
            "merchant": merchants["merchant"].to_numpy()[chosen],
            "device": np.where(is_web, device, till),
            "channel": np.where(is_web, "web", "shop"),
            "amount": amount,
            "pattern": "honest",
        }
    )


def _seconds(rng: np.random.Generator, count: int) -> np.ndarray:
    """Returns random times, more in the afternoon and fewer at night."""
    by_hour = np.array([2, 1, 1, 1, 1, 2, 4, 7, 10, 12, 13, 15, 17, 15, 14, 14, 15, 17, 18, 16])
    by_hour = np.append(by_hour, [13, 10, 7, 4])
    hour = rng.choice(24, count, p=by_hour / by_hour.sum())
    return (rng.integers(0, DAYS, count) * 24 + hour + rng.random(count)) * 3600.0


def _web_merchants(merchants: pd.DataFrame, names: tuple[str, ...], day: float) -> np.ndarray:
    is_fit = merchants["category"].isin(names) & (merchants["day"] <= day)
    return merchants.index[is_fit].to_numpy()


def _events(pattern: str, rows: list[tuple[float, str, str, str, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["second", "card", "merchant", "device", "amount"])
    return frame.assign(channel="web", pattern=pattern)


def _card_testing(rng: np.random.Generator, merchants: pd.DataFrame) -> pd.DataFrame:
    """Generates attacks that test stolen numbers with small amounts and later use valid ones."""
    rows = []
    for attack in range(44):
        begin = rng.uniform(0, DAYS) * DAY_S
        targets = rng.choice(_web_merchants(merchants, ("digital",), begin / DAY_S), 2)
        device = f"t{attack}"
        for number in range(int(rng.integers(5, 16))):
            card = f"c{rng.integers(0, CARDS)}"
            second = begin + number * rng.uniform(20, 240)
            merchant = merchants["merchant"][rng.choice(targets)]
            rows.append((second, card, merchant, device, rng.uniform(0.5, 4)))
            if rng.random() < 0.3:
                shops = _web_merchants(merchants, ("electronics", "travel"), begin / DAY_S)
                chosen = rng.choice(shops)
                amount = merchants["price"][chosen] * rng.uniform(0.8, 3)
                later = second + rng.uniform(0.5, 30) * 3600
                rows.append((later, card, merchants["merchant"][chosen], device + "x", amount))
    return _events("card testing", rows)


def _stolen_cards(rng: np.random.Generator, merchants: pd.DataFrame) -> pd.DataFrame:
    """Generates thefts of a card: several purchases within two hours, before it is blocked."""
    rows = []
    for theft in range(85):
        begin = rng.uniform(0, DAYS) * DAY_S
        card = f"c{rng.integers(0, CARDS)}"
        names = ("electronics", "fashion", "travel", "digital")
        shops = _web_merchants(merchants, names, begin / DAY_S)
        for _ in range(int(rng.integers(3, 9))):
            chosen = rng.choice(shops)
            amount = merchants["price"][chosen] * rng.lognormal(0.3, 0.5)
            second = begin + rng.uniform(0, 7200)
            rows.append((second, card, merchants["merchant"][chosen], f"s{theft}", amount))
    return _events("stolen card", rows)


def _compromised_merchants(
    rng: np.random.Generator, merchants: pd.DataFrame, honest: pd.DataFrame
) -> pd.DataFrame:
    """Generates data breaches: each leaked card number is used once, at another merchant."""
    rows = []
    for breach in range(7):
        day = rng.uniform(10, DAYS - 8)
        recent = honest[honest["second"].between((day - 8) * DAY_S, day * DAY_S)]
        visits = recent["merchant"].value_counts()
        merchant = rng.choice(visits.index[20:80])
        victims = recent["card"][recent["merchant"] == merchant].unique()
        shops = _web_merchants(merchants, ("fashion", "electronics", "digital"), day)
        shops = rng.choice(shops, 4)
        for card in rng.permutation(victims)[:45]:
            chosen = rng.choice(shops)
            second = (day + rng.exponential(2.5)) * DAY_S + rng.uniform(0, DAY_S)
            amount = merchants["price"][chosen] * rng.lognormal(0.2, 0.5)
            device = f"b{breach}-{rng.integers(0, 6)}"
            rows.append((second, card, merchants["merchant"][chosen], device, amount))
    return _events("compromised merchant", rows)


def _shared_devices(rng: np.random.Generator, merchants: pd.DataFrame) -> pd.DataFrame:
    """Generates devices that pay with many cards over several days, with ordinary amounts."""
    rows = []
    for ring in range(22):
        begin = rng.uniform(0, DAYS - 3) * DAY_S
        shops = rng.choice(_web_merchants(merchants, ("fashion", "digital", "travel"), 0), 6)
        for _ in range(int(rng.integers(10, 22))):
            chosen = rng.choice(shops)
            amount = merchants["price"][chosen] * rng.lognormal(0, 0.5)
            second = begin + rng.uniform(0, 6) * DAY_S
            card = f"c{rng.integers(0, CARDS)}"
            rows.append((second, card, merchants["merchant"][chosen], f"r{ring}", amount))
    return _events("shared device", rows)


def _days_until_report(rng: np.random.Generator, count: int) -> np.ndarray:
    """Returns times until a fraud is reported, in days: 0.5 to 40 days, 6 days on average."""
    return np.minimum(0.5 + rng.gamma(1.6, 3.5, count), 40)


def _replace_reported_cards(rows: pd.DataFrame) -> pd.DataFrame:
    """Blocks each card after its first report; the holder continues with a new number."""
    is_fraud = rows["pattern"] != "honest"
    blocked = rows[is_fraud].groupby("card")["reported"].min()
    is_late = rows["second"] > rows["card"].map(blocked).fillna(np.inf)
    rows = rows[~(is_late & is_fraud)].copy()
    is_late = is_late[rows.index]
    rows.loc[is_late, "card"] += "-new"
    return rows.reset_index(drop=True)


def _milliseconds(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(ts=frame["ts"].astype("datetime64[ms]")).reset_index(drop=True)
