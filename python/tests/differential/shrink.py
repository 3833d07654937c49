"""Shrinks a query and its tables while the results still differ."""

from __future__ import annotations

from dataclasses import replace

from .compare import Pair, difference
from .modes import STANDARD
from .node import Node
from .tables import Table

ATTEMPTS_MAX = 3_000


class Shrinking:
    """A difference that is being shrunk."""

    def __init__(self, tables: list[Table], query: Node, what: str, mode: str = STANDARD) -> None:
        self.tables, self.query, self.mode = tables, query, mode
        self.kind = kind_of(what)
        self.attempts = 0

    def run(self) -> tuple[list[Table], Node, str]:
        """Shrinks the tables first, so that every later step is fast."""
        while self.attempts < ATTEMPTS_MAX and (self.smaller_tables() or self.smaller_query()):
            pass
        outcome = difference(self.query, *Pair(self.tables, self.mode).run(self.query))
        return self.tables, self.query, outcome or "the difference does not come back"

    def smaller_query(self) -> bool:
        pair = Pair(self.tables, self.mode)
        for candidate in self.query.smaller():
            if self.attempts >= ATTEMPTS_MAX:
                return False
            if candidate.type == "query" and self.differs(pair, candidate):
                self.query = candidate
                return True
        return False

    def smaller_tables(self) -> bool:
        for position, table in enumerate(self.tables):
            size = len(table.rows)
            while size:
                for start in range(0, len(table.rows), size):
                    rest = table.rows[:start] + table.rows[start + size :]
                    candidate = [*self.tables]
                    candidate[position] = replace(table, rows=rest)
                    if self.differs(Pair(candidate, self.mode), self.query):
                        self.tables = candidate
                        return True
                size //= 2
        return False

    def differs(self, pair: Pair, query: Node) -> bool:
        self.attempts += 1
        what = difference(query, *pair.run(query))
        return what is not None and kind_of(what) == self.kind


def kind_of(what: str) -> str:
    """Returns what a smaller query must still show: a value, a type, or the same error."""
    return what.split("\n")[0][:60] if "fails" in what else what.split(":")[0].split(" ")[0]
