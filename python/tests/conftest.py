"""Shared fixtures: an empty database, and one with a few purchases."""

from __future__ import annotations

import pytest

import lockstep

SPENT = """
    SELECT user, count(price) OVER w AS purchases, sum(price) OVER w AS spent
    FROM purchases
    WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 1m PRECEDING AND CURRENT ROW)
"""


@pytest.fixture
def db() -> lockstep.Connection:
    return lockstep.connect()


@pytest.fixture
def purchases(db: lockstep.Connection) -> lockstep.Connection:
    db.execute("CREATE TABLE purchases (user STRING, price DOUBLE, ts TIMESTAMP)")
    db.append("purchases", [("ann", 0.1, 1_000), ("bob", 5.0, 2_000), ("ann", 0.2, 30_000)])
    return db
