"""A query as a tree, which is written in two dialects and can be shrunk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

PLACE = re.compile(r"⟨(\d+)⟩")
LOCKSTEP, DUCKDB = "lockstep", "duckdb"


@dataclass(frozen=True)
class Node:
    """A piece of SQL of some type, such as ``INT`` or ``query``.

    Each dialect has a text in which ``⟨0⟩`` stands for the first part. A part may be left out of a
    text, or stand in it twice.
    """

    type: str
    lockstep: str
    duckdb: str
    parts: tuple[Node | Items, ...] = ()

    def sql(self, dialect: str) -> str:
        text = self.lockstep if dialect == LOCKSTEP else self.duckdb
        return PLACE.sub(lambda place: self.parts[int(place[1])].sql(dialect), text)

    def smaller(self) -> Iterator[Node]:
        """Yields smaller nodes of the same type: a descendant, NULL, or one with a smaller part."""
        for descendant in self.descendants():
            if descendant.type == self.type:
                yield descendant
        if self.parts and self.type in NULLS:
            yield NULLS[self.type]
        for index, part in enumerate(self.parts):
            for candidate in part.smaller():
                yield replace(self, parts=replaced(self.parts, index, candidate))

    def descendants(self) -> Iterator[Node]:
        for part in self.parts:
            for child in part.items if isinstance(part, Items) else (part,):
                yield child
                yield from child.descendants()


@dataclass(frozen=True)
class Items:
    """Parts in a row, of which at least ``least`` must stay. Empty, it writes nothing."""

    items: tuple[Node, ...]
    separator: str = ", "
    least: int = 1
    prefix: str = ""

    def sql(self, dialect: str) -> str:
        if not self.items:
            return ""
        return self.prefix + self.separator.join(item.sql(dialect) for item in self.items)

    def smaller(self) -> Iterator[Items]:
        if len(self.items) > self.least:
            for index in range(len(self.items)):
                rest = self.items[:index] + self.items[index + 1 :]
                yield replace(self, items=rest)
        for index, item in enumerate(self.items):
            for candidate in item.smaller():
                yield replace(self, items=replaced(self.items, index, candidate))


def replaced(parts: tuple, index: int, part: object) -> tuple:
    return (*parts[:index], part, *parts[index + 1 :])


def same(type_: str, text: str, *parts: Node | Items) -> Node:
    """A node that reads the same in both dialects."""
    return Node(type_, text, text, parts)


def optional(prefix: str, *items: Node, separator: str = " AND ") -> Items:
    """An optional clause."""
    return Items(items, separator, 0, prefix)


SQL_TYPES = {
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "BIGINT": "BIGINT",
    "EXACT": "DOUBLE",
    "FINITE": "DOUBLE",
    "DOUBLE": "DOUBLE",
    "STRING": "VARCHAR",
    "BOOL": "BOOL",
    "TIMESTAMP": "TIMESTAMP",
    "DATE": "DATE",
}
NULLS = {name: same(name, f"CAST(NULL AS {sql})") for name, sql in SQL_TYPES.items()}
