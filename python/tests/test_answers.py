"""Logged answers: requests of every kind are logged, and VERIFY … AGAINST ANSWERS explains them."""

from __future__ import annotations

import pytest

import lockstep

SPENT = """
    SELECT user, sum(price) OVER w AS spent FROM purchases
    WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)
"""


@pytest.fixture
def logging(db: lockstep.Connection) -> lockstep.Connection:
    """A deployment `spent` that logs its answers to `given`."""
    db.append("purchases", [{"user": "ann", "price": 2.5, "ts": 1_000}])
    db.execute(f"DEPLOY spent OPTIONS(log_answers = 'given') AS {SPENT}")
    return db


def explained(db: lockstep.Connection) -> list[tuple]:
    """Returns the counts and, for each difference, its column, values, cause and rows."""
    found = db.sql("VERIFY DEPLOYMENT spent AGAINST ANSWERS").fetchall()
    return [row[:4] + row[6:] for row in found]


def test_each_way_to_request_is_logged(logging: lockstep.Connection) -> None:
    row = {"user": "ann", "price": 1.0, "ts": 2_000}
    assert logging.request("spent", row) == {"user": "ann", "spent": 3.5}
    assert len(logging.request("spent", [row, {**row, "user": "bob"}])) == 2
    assert logging.prepare("spent")(row) == {"user": "ann", "spent": 3.5}
    given = logging.sql("SELECT request_user, answer_spent, has_answer FROM given").fetchall()
    assert given == [("ann", 3.5, True), ("ann", 3.5, True), ("bob", 1.0, True), ("ann", 3.5, True)]
    assert explained(logging) == [(4, 8, 0, "", None, None, None, None, None)]


def test_a_late_event_is_named(logging: lockstep.Connection) -> None:
    event = {"user": "ann", "price": 1.0, "ts": 5_000}
    assert logging.request("spent", event) == {"user": "ann", "spent": 3.5}
    logging.append("purchases", [event])
    assert explained(logging)[0][:3] == (1, 2, 0)
    logging.append("purchases", [{"user": "ann", "price": 10.0, "ts": 3_000}])
    cause = ("spent", "3.5", "13.5", "late row", "user=ann price=10 ts=3000")
    assert explained(logging) == [(1, 2, 1, "1 late row", *cause)]


def test_without_a_log_there_is_nothing_to_verify(db: lockstep.Connection) -> None:
    db.append("purchases", [{"user": "ann", "price": 2.5, "ts": 1_000}])
    db.execute(f"DEPLOY spent AS {SPENT}")
    with pytest.raises(lockstep.Error, match="does not log its answers") as caught:
        db.execute("VERIFY DEPLOYMENT spent AGAINST ANSWERS")
    assert "log_answers" in str(caught.value)
