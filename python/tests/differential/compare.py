"""Runs a query in both databases and compares the results."""

from __future__ import annotations

import math
from dataclasses import dataclass

import duckdb

import lockstep

from .expressions import macros
from .modes import STANDARD, set_mode
from .node import DUCKDB, LOCKSTEP, Node
from .tables import Table, script

TOLERANCE = 1e-9
# Messages of DuckDB's internal errors, which give no result to compare with.
INTERNAL = ("INTERNAL Error", "BindBuiltinScalarFunction did not return", "in deserialization")
SETTING = (
    "SET error_on_division_by_zero = false; "
    # Else `WHERE CASE WHEN f THEN 'abc' END LIKE 'a%'` keeps the rows where f is false.
    "SET disabled_optimizers = 'statistics_propagation'"
)
DUCKDB_TYPES = {"INTEGER": "INT", "VARCHAR": "STRING", "BOOLEAN": "BOOL"}


@dataclass
class Outcome:
    """The rows of a query, or its error."""

    types: list[str]
    rows: list[tuple]
    error: str | None = None

    @property
    def is_missing(self) -> bool:
        """Returns whether DuckDB had an internal error."""
        return self.error is not None and any(text in self.error for text in INTERNAL)


class Pair:
    """Both databases, with the same tables."""

    def __init__(self, tables: list[Table], mode: str = STANDARD) -> None:
        self.lockstep = lockstep.connect()
        self.lockstep.execute(set_mode(mode))
        self.duckdb = duckdb.connect(config={"threads": 1})
        for statement in [SETTING, *macros(mode)]:
            self.duckdb.execute(statement)
        for table in tables:
            self.lockstep.execute(script(table, LOCKSTEP))
            self.duckdb.execute(script(table, DUCKDB))

    def run(self, query: Node) -> tuple[Outcome, Outcome]:
        return self.run_lockstep(query.sql(LOCKSTEP)), self.run_duckdb(query.sql(DUCKDB))

    def run_lockstep(self, sql: str) -> Outcome:
        try:
            relation = self.lockstep.sql(sql)
            return Outcome(relation.types, relation.fetchall())
        except lockstep.Error as error:
            return Outcome([], [], str(error))

    def run_duckdb(self, sql: str) -> Outcome:
        try:
            relation = self.duckdb.execute(sql)
            types = [str(column[1]) for column in relation.description]
            return Outcome([DUCKDB_TYPES.get(name, name) for name in types], relation.fetchall())
        except duckdb.Error as error:
            return Outcome([], [], str(error))


def is_ordered(query: Node) -> bool:
    return (
        " ORDER BY " in query.lockstep
        and "LAST JOIN" not in query.lockstep
        and "WINDOW" not in query.lockstep
    )


def difference(query: Node, ours: Outcome, theirs: Outcome) -> str | None:
    """Describes the difference; an error of both is no difference."""
    if theirs.is_missing:
        return None
    if ours.error or theirs.error:
        if ours.error and theirs.error:
            return None
        return (
            f"only lockstep fails: {ours.error}"
            if ours.error
            else f"only duckdb fails: {theirs.error}"
        )
    if ours.types != theirs.types:
        return f"types: lockstep {ours.types}, duckdb {theirs.types}"
    if len(ours.rows) != len(theirs.rows):
        return f"rows: lockstep {len(ours.rows)}, duckdb {len(theirs.rows)}"
    left, right = ours.rows, theirs.rows
    near = near_columns(query, len(ours.types))
    if not is_ordered(query):
        left, right = sorted(left, key=key_without(near)), sorted(right, key=key_without(near))
    for ours_row, theirs_row in zip(left, right, strict=True):
        for index, (a, b) in enumerate(zip(ours_row, theirs_row, strict=True)):
            if not is_same(a, b, index in near):
                return f"column {index}: lockstep {a!r}, duckdb {b!r}\n  {ours_row}\n  {theirs_row}"
    return None


def near_columns(query: Node, count: int) -> set[int]:
    """Returns the columns whose last digits may differ."""
    for part in query.descendants():
        if part.type == "query":
            return near_columns(part, count)
    for part in query.parts:
        listed = getattr(part, "items", ())
        if listed and listed[0].type.startswith("item "):
            return {index for index, item in enumerate(listed) if item.type == "item NEAR"}
    return set()


def key_without(near: set[int]) -> object:
    def key(row: tuple) -> list[tuple[bool, str]]:
        cells = [cell for index, cell in enumerate(row) if index not in near]
        # -0.0 and 0.0 are equal and must sort alike.
        return [
            (cell is None, repr(cell + 0.0 if isinstance(cell, float) else cell)) for cell in cells
        ]

    return key


def is_same(left: object, right: object, is_near: bool) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        if is_near:
            return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(left) is type(right) and left == right


def reproduction(tables: list[Table], query: Node, what: str, mode: str) -> str:
    """Two scripts that show a difference, and what it is."""
    lines = [f"-- {line}" for line in what.splitlines()]
    for dialect in (LOCKSTEP, DUCKDB):
        lines.append(f"---- {dialect}")
        if dialect == LOCKSTEP:
            lines.append(f"{set_mode(mode)};")
        if dialect == DUCKDB:
            lines.append(f"{SETTING};")
            lines += [
                f"{macro};"
                for macro in macros(mode)
                if macro.split("(")[0].split()[-1] in query.sql(DUCKDB)
            ]
        sql = query.sql(dialect)
        lines += [script(table, dialect) for table in tables if table.name in sql]
        lines.append(f"{sql};")
    return "\n".join(lines)
