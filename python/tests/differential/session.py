"""A run of many queries: a seed is a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from .compare import Pair, difference, reproduction
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
        self.features: Counter[str] = Counter()

    def run(self, count: int) -> Iterator[str]:
        for batch in range(-(-count // self.per_tables)):
            random = Random(f"{self.seed}/{batch}")
            drawn = tables(random)
            pair = Pair(drawn)
            queries = Queries(random)
            for _ in range(min(self.per_tables, count - batch * self.per_tables)):
                query = queries.query()
                ours, theirs = pair.run(query)
                if theirs.is_missing:
                    self.missing += 1
                    continue
                self.compared += 1
                self.both_fail += bool(ours.error and theirs.error)
                self.rows += len(ours.rows)
                what = difference(query, ours, theirs)
                if what is not None:
                    self.mismatches += 1
                    yield reproduction(*Shrinking(drawn, query, what).run())
            self.features.update(queries.features)

    def summary(self) -> str:
        features = ", ".join(f"{name} {count}" for name, count in self.features.most_common())
        return (
            f"seed {self.seed}: {self.compared} queries compared, {self.rows} rows, "
            f"{self.mismatches} mismatches, {self.both_fail} that both refuse, "
            f"{self.missing} on which duckdb breaks down\n{features}"
        )
