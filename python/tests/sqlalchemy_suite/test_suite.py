"""SQLAlchemy's own tests of dialects, over a database in memory.

`python/tests/test_sqlalchemy.py` runs them in a process of their own, since their plugin changes
what pytest does: `pytest -c setup.cfg` in this folder. `LEFT_OUT` lists the tests that no
requirement of SQLAlchemy leaves out, with the reasons.
"""

from __future__ import annotations

import pytest
from sqlalchemy.testing import suite
from sqlalchemy.testing.suite import *  # noqa: F403

NO_UPDATE = "there is no UPDATE"
NO_SUBQUERY = "there are no sub-queries in expressions"
NO_GENERATED_KEY = "the test leaves out the primary key, which nothing generates"


class HasTableTest(suite.HasTableTest):
    """The tests of `has_table` without views, which SQLAlchemy makes whatever it is told."""

    @classmethod
    def define_views(cls, metadata):
        pass


LEFT_OUT = {
    ("ComponentReflectionTest", None): "its tables have an index over a DOUBLE, and views",
    ("TableViaSelectTest", None): "there is no CREATE TABLE AS",
    ("ExistsTest", None): NO_SUBQUERY,
    ("RowFetchTest", "test_row_w_scalar_select"): NO_SUBQUERY,
    ("FetchLimitOffsetTest", "test_limit_render_multiple_times"): NO_SUBQUERY,
    ("SimpleUpdateDeleteTest", "test_update"): NO_UPDATE,
    ("RowCountTest", "test_update_rowcount1"): NO_UPDATE,
    ("RowCountTest", "test_update_rowcount2"): NO_UPDATE,
    ("RowCountTest", "test_raw_sql_rowcount"): NO_UPDATE,
    ("RowCountTest", "test_text_rowcount"): NO_UPDATE,
    ("RowCountTest", "test_non_rowcount_scenarios_no_raise"): NO_UPDATE,
    ("RowCountTest", "test_multi_update_rowcount"): NO_UPDATE,
    ("CTETest", "test_insert_from_select_round_trip"): "INSERT has no SELECT as its source",
    ("CTETest", "test_select_recursive_round_trip"): "there is no WITH RECURSIVE",
    ("InsertBehaviorTest", "test_no_results_for_non_returning_insert"): NO_GENERATED_KEY,
    ("ComponentReflectionTestExtra", "test_string_length_reflection"): "a STRING has no length",
    ("ComponentReflectionTestExtra", "test_numeric_reflection"): "there are no decimals",
    ("ComponentReflectionTestExtra", "test_server_defaults"): "a DEFAULT is a constant of its type",
    ("TrueDivTest", "test_truediv_divisor"): "there are no decimals of 38 digits",
}
"""A test, or all of a class, and why it is left out."""


def leave_out(class_name, test_name, reason):
    """Skips a test, or a class."""
    mark = pytest.mark.skip(reason=reason)
    tests = getattr(suite, class_name)
    if test_name is None:
        globals()[class_name] = mark(type(class_name, (), {"test_nothing": lambda self: None}))
        return
    assert hasattr(tests, test_name), test_name
    kept = globals()[class_name]
    if kept is tests:
        # A class of its own, so that SQLAlchemy's stays as it is.
        kept = globals()[class_name] = type(class_name, (tests,), {})
    setattr(kept, test_name, mark(lambda self: None))


for (_class, _test), _reason in LEFT_OUT.items():
    leave_out(_class, _test, _reason)
