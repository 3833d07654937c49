"""A run of many queries, determined by a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from .compare import Pair, difference, reproduction
from .constructs import Constructs
from .modes import MODES
from .node import LOCKSTEP
from .queries import Queries
from .shrink import Shrinking
from .tables import tables


class Session:
    """Draws tables and queries, compares, and yields a report for every kind of difference."""

    def __init__(self, seed: int, per_tables: int = 200) -> None:
        self.seed, self.per_tables = seed, per_tables
        self.compared = 0
        self.both_fail = 0
        self.missing = 0
        self.rows = 0
        self.mismatches = 0
        self.constructs = Constructs()
        self.of_mode: Counter[str] = Counter()

    def run(self, count: int) -> Iterator[str]:
        for batch in range(-(-count // self.per_tables)):
            random = Random(f"{self.seed}/{batch}")
            mode = MODES[batch % len(MODES)]
            drawn = tables(random, mode)
            pair = Pair(drawn, mode)
            queries = Queries(random, mode)
            for _ in range(min(self.per_tables, count - batch * self.per_tables)):
                queries.features.clear()
                query = queries.query()
                ours, theirs = pair.run(query)
                if theirs.is_missing:
                    self.missing += 1
                    continue
                self.compared += 1
                self.of_mode[mode] += 1
                self.constructs.add(query.sql(LOCKSTEP), queries.features, mode)
                self.both_fail += bool(ours.error and theirs.error)
                self.rows += len(ours.rows)
                what = difference(query, ours, theirs)
                if what is not None:
                    self.mismatches += 1
                    yield reproduction(*Shrinking(drawn, query, what, mode).run(), mode)

    def summary(self) -> str:
        modes = ", ".join(f"{count} {mode}" for mode, count in self.of_mode.items())
        return (
            f"{self.constructs}\nseed {self.seed}: {self.compared} queries compared ({modes}), "
            f"{self.rows} rows, {self.mismatches} mismatches, {self.both_fail} that both refuse, "
            f"{self.missing} on which duckdb breaks down"
        )
