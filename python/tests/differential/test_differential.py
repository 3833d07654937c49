"""A short run of ``python -m differential`` with a fixed seed."""

from __future__ import annotations

from .compare import Pair, difference
from .modes import MODES
from .node import same
from .session import Session
from .shrink import Shrinking
from .tables import COLUMNS, Table

SEED = 20
QUERIES = 900


def test_lockstep_and_duckdb_agree():
    session = Session(SEED, per_tables=60)
    reports = list(session.run(QUERIES))
    assert not reports, "\n\n".join(reports)
    assert session.compared + session.missing == QUERIES
    assert session.missing < QUERIES / 50
    assert session.rows > QUERIES
    # A query that both refuse compares nothing.
    assert session.both_fail == 0
    assert all(session.of_mode[mode] > QUERIES / 3 for mode in MODES)
    assert not session.constructs.missing(), f"not drawn:\n{session.summary()}"


def test_a_difference_is_found_and_shrunk():
    row = tuple(1 if name == "id" else None for name in COLUMNS)
    tables = [Table("t1", [row, (2, *row[1:]), (3, *row[1:])])]
    wrong = same("INT", "(⟨0⟩ + ⟨1⟩)", same("INT", "id"), same("INT", "1"))
    query = same("query", "SELECT ⟨0⟩ AS c0 FROM t1", wrong)
    wrong_for_us = same("query", "SELECT ⟨0⟩ AS c0 FROM t1", wrong)
    assert difference(query, *Pair(tables).run(query)) is None
    object.__setattr__(wrong_for_us, "duckdb", "SELECT ⟨0⟩ + 1 AS c0 FROM t1")
    what = difference(wrong_for_us, *Pair(tables).run(wrong_for_us))
    assert what is not None
    small, smallest, _ = Shrinking(tables, wrong_for_us, what).run()
    assert [len(table.rows) for table in small] == [1]
    assert smallest.sql("lockstep") == "SELECT id AS c0 FROM t1"
