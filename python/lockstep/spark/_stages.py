"""Splits a query into steps, and groups steps that can use the same partitioning into passes.

The main rows are the rows of the leftmost table. Each LAST JOIN, and each group of windows over the
same key, is a step, whose query adds columns to the main rows; the select list is the last step.
The SQL of a step is the SQL of the query with names replaced by the names of intermediate columns.
Names are resolved here a second time, because Spark requires the columns to shuffle; the engine has
already bound the query.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import _lockstep
from .._error import Error
from ._executor import MAIN, ROW, Columns, Input, Pass, Step, empty, open_session, query

_PREFIX = "__ls_"


@dataclass(frozen=True)
class SourceUse:
    """Table that a step reads in addition to the main rows, and the placement of its rows."""

    table: str
    columns: tuple[tuple[str, str, str], ...]
    """For each column its name in the table, its name in the step, and its type."""
    keys: Mapping[str, str]
    """Column of the table that must equal each key column of the main rows."""
    is_broadcast: bool = False
    has_row: bool = False
    """Whether it has a column ``ROW``, which is NULL: true for a UNION source."""


@dataclass(frozen=True)
class PlannedStep:
    """Step with its required partitioning and tables."""

    step: Step
    key: frozenset[str] | None
    """Columns of the main rows by which rows must be partitioned; ``None`` if there are none."""
    uses: tuple[SourceUse, ...] = ()


@dataclass(frozen=True)
class PlannedPass:
    """Steps without a shuffle between them."""

    key: tuple[str, ...] | None
    steps: tuple[PlannedStep, ...]


@dataclass(frozen=True)
class PlannedQuery:
    """Query as a sequence of passes."""

    base: str
    base_columns: Columns
    """Columns that are read from the leftmost table."""
    types: Mapping[str, str]
    """Types of all columns of the main rows, including intermediate columns."""
    passes: tuple[PlannedPass, ...]
    output: Columns
    """Unique names of the result columns, and their types."""


def plan(
    sql: str,
    tables: Mapping[str, Columns],
    broadcast: Iterable[str],
    settings: Mapping[str, str | int],
) -> PlannedQuery:
    """Returns the plan of a query over tables with these columns."""
    session = open_session(settings)
    empties = {name: empty(columns) for name, columns in tables.items()}
    bound = query(session, sql, empties)
    names = bound.collect(None).pyarrow().schema.names
    output = tuple(zip(names, (of for _, of in bound.columns), strict=True))
    outline = json.loads(_lockstep.outline(sql))
    splitter = _Splitter(sql, outline, tables, frozenset(broadcast), session)
    steps = splitter.steps(output)
    return PlannedQuery(
        base=splitter.base,
        base_columns=tuple(
            (name, of) for name, of in tables[splitter.base] if name in splitter.base_reads
        ),
        types=splitter.types,
        passes=tuple(_passes(steps)),
        output=output,
    )


def names_read(sql: str) -> tuple[set[str], bool]:
    """Returns the names of all columns in a query, and whether it contains ``*``."""
    outline = json.loads(_lockstep.outline(sql))
    found: set[str] = set()
    rest: list[Any] = [outline]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            found.update(part.get("path", [])[-1:])
            rest += part.values()
        elif isinstance(part, list):
            rest += part
    return found, any(item.get("star") for item in outline["items"])


def assemble(
    planned: PlannedQuery,
    number: int,
    main: Iterable[str],
    row_id: str | None,
    settings: Mapping[str, str | int],
) -> tuple[Pass, tuple[SourceUse, ...]]:
    """Returns the work of a pass, and the other tables that it reads, from number 1 on.

    ``main`` are the columns of the main rows before the pass. The last pass returns the result,
    with the row numbers in a column ``row_id`` if it is not ``None``.
    """
    one, later = planned.passes[number], planned.passes[number + 1 :]
    if later:
        keeps = _kept(planned, later)
        names = [name for name, _ in keeps]
    else:
        keeps = one.steps[-1].step.adds
        names = [name for name, _ in planned.output]
        if row_id is not None:
            keeps, names = (*keeps, (ROW, "BIGINT")), [*names, row_id]
    sources: list[Columns] = [tuple((name, planned.types[name]) for name in main)]
    uses, steps = [], []
    for step in one.steps:
        inputs = []
        for given, use in zip(step.step.inputs, step.uses, strict=True):
            inputs.append(dataclasses.replace(given, source=len(sources)))
            columns = tuple((name, of) for _, name, of in use.columns)
            sources.append((*columns, (ROW, "BIGINT")) if use.has_row else columns)
            uses.append(use)
        steps.append(dataclasses.replace(step.step, inputs=tuple(inputs)))
    work = Pass(
        steps=tuple(steps),
        sources=tuple(sources),
        tables=(planned.base, *(use.table for use in uses)),
        keeps=keeps,
        names=tuple(names),
        settings=dict(settings),
        is_keyed=one.key is not None,
    )
    return work, tuple(uses)


def _kept(planned: PlannedQuery, later: tuple[PlannedPass, ...]) -> Columns:
    """Returns the columns that later passes read and do not compute."""
    steps = [one for after in later for one in after.steps]
    read = {name for one in steps for name in one.step.reads}
    read |= {name for after in later for name in after.key or ()}
    made = {name for one in steps for name, _ in one.step.adds}
    return tuple((name, planned.types[name]) for name in [ROW, *sorted(read - made)])


def _passes(steps: list[PlannedStep]) -> Iterable[PlannedPass]:
    """Groups steps into passes, in their order."""
    at = 0
    while at < len(steps):
        later = [one.key for one in steps[at:] if one.key is not None]
        # A step without a key runs in the task of the next step with a key.
        first = later[0] if later else None
        # The smallest key usable for the first step: partitioning by some of the columns of a key
        # also brings rows with equal keys together.
        key = None if first is None else min((k for k in later if k <= first), key=len)
        end = at
        while end < len(steps) and _serves(key, steps[end].key):
            end += 1
        yield PlannedPass(None if key is None else tuple(sorted(key)), tuple(steps[at:end]))
        at = end


def _serves(key: frozenset[str] | None, needed: frozenset[str] | None) -> bool:
    return needed is None or (key is not None and key <= needed)


class _Splitter:
    """Builds the steps of one query."""

    def __init__(
        self,
        sql: str,
        outline: dict[str, Any],
        tables: Mapping[str, Columns],
        broadcast: frozenset[str],
        session: Any,
    ) -> None:
        self._sql = sql.encode()
        self._outline = outline
        self._tables = tables
        self._broadcast = broadcast
        self._session = session
        self.base = outline["base"]["name"]
        self._windows = {window["name"]: window for window in outline["windows"]}
        self._rights = [join["right"] for join in outline["joins"]]
        # Each table name in the query, with the main-row column for each of its columns.
        self._scope: list[tuple[str, dict[str, str]]] = []
        self.types: dict[str, str] = {ROW: "BIGINT", **dict(tables[self.base])}
        own = {name: name for name, _ in tables[self.base]}
        self._scope.append((outline["base"]["alias"] or self.base, own))
        for number, right in enumerate(self._rights):
            columns = {name: f"{_PREFIX}j{number}_{name}" for name, _ in tables[right["name"]]}
            self.types |= {columns[name]: of for name, of in tables[right["name"]]}
            self._scope.append((right["alias"] or right["name"], columns))
        for name, columns in tables.items():
            if reserved := [column for column, _ in columns if column.startswith(_PREFIX)]:
                raise Error(
                    f"name of column `{reserved[0]}` of table `{name}` is reserved",
                    code="42939",
                    hint=f"Rename the column: the prefix {_PREFIX} is for intermediate columns.",
                )
        self.base_reads: set[str] = set()

    # Names.

    def _resolve(self, column: dict[str, Any], width: int | None = None) -> str:
        """Resolves a name to a column of the main rows; ``width`` tables are in scope."""
        path = column["path"]
        scope = self._scope[:width]
        if len(path) > 1:
            scope = [entry for entry in scope if entry[0] == path[-2]]
        found = [columns[path[-1]] for _, columns in scope if path[-1] in columns]
        if len(found) != 1 or len(path) > 2:
            raise self._refused(
                f"name `{'.'.join(path)}`", column["span"], "Qualify it with a table name."
            )
        return found[0]

    def _refused(self, what: str, span: list[int], hint: str) -> Error:
        text = self._sql.decode()
        position = len(self._sql[: span[0]].decode())
        line = text[:position].count("\n") + 1
        return Error(
            f"{what} cannot be split into stages",
            code="0A000",
            hint=hint,
            position=position,
            detail=f"Line {line}: {self._sql[span[0] : span[1]].decode()}",
        )

    def _text(self, span: list[int], edits: Iterable[tuple[list[int], str]]) -> str:
        """Returns a part of the query with the edits applied."""
        pieces, at = [], span[0]
        for (start, end), text in sorted(edits, key=lambda edit: edit[0]):
            if start < at:
                # Inside a part that is already replaced.
                continue
            pieces += [self._sql[at:start].decode(), text]
            at = end
        pieces.append(self._sql[at : span[1]].decode())
        return "".join(pieces)

    def _columns(self, expression: dict[str, Any]) -> list[tuple[list[int], str]]:
        """Returns edits that replace names in an expression by columns of the main rows."""
        return [(c["span"], f"`{self._resolve(c)}`") for c in expression["columns"]]

    def _read(self, expressions: Iterable[dict[str, Any]]) -> set[str]:
        return {self._resolve(c) for one in expressions for c in one["columns"]}

    # Steps.

    def steps(self, output: Columns) -> list[PlannedStep]:
        """Returns the steps of the query, the select list last."""
        filter_ = self._outline["filter"]
        items = self._items()
        calls = self._window_steps(items)
        # Columns read after the joins.
        later = set((filter_ and self._read([filter_])) or ())
        later |= {name for planned in calls for name in planned.step.reads}
        final_reads = self._final_reads(items)
        later |= final_reads
        steps = self._join_steps(later)
        if filter_ is not None:
            condition = self._text(filter_["span"], self._columns(filter_))
            sql = f"SELECT `{ROW}` FROM `{MAIN}` WHERE {condition}"
            reads = tuple(sorted(self._read([filter_])))
            steps.append(PlannedStep(Step("filter", sql, reads), None))
        steps += self._ordered(steps, calls)
        steps.append(self._final(items, final_reads, output))
        reads = {name for planned in steps for name in planned.step.reads}
        keys = {name for planned in steps for name in planned.key or ()}
        self.base_reads = (reads | keys) & {name for name, _ in self._tables[self.base]}
        return steps

    @staticmethod
    def _ordered(before: list[PlannedStep], calls: list[PlannedStep]) -> list[PlannedStep]:
        """Orders windows so that windows that can use the last shuffle come first."""
        keys = [planned.key for planned in before if planned.key is not None]
        last = keys[-1] if keys else None
        return sorted(calls, key=lambda planned: not _serves(last, planned.key))

    def _join_steps(self, later: set[str]) -> list[PlannedStep]:
        """Returns the joins with a column that is read, from left to right."""
        steps: list[PlannedStep] = []
        for number in reversed(range(len(self._rights))):
            mine = set(self._scope[number + 1][1].values())
            if not mine & later:
                # LAST JOIN keeps all left rows, with at most one match: it has no effect.
                continue
            planned = self._join_step(number, sorted(mine & later))
            steps.insert(0, planned)
            later |= set(planned.step.reads)
        return steps

    def _join_step(self, number: int, adds: list[str]) -> PlannedStep:
        join, width = self._outline["joins"][number], number + 2
        right, name = join["right"], f"{_PREFIX}r{number}"
        own = {main: column for column, main in self._scope[number + 1][1].items()}
        read: set[str] = set()

        def edits(expression: dict[str, Any]) -> list[tuple[list[int], str]]:
            named = []
            for column in expression["columns"]:
                main = self._resolve(column, width)
                read.add(main)
                table = f"`{name}`.`{own[main]}`" if main in own else f"`{MAIN}`.`{main}`"
                named.append((column["span"], table))
            return named

        on = self._text(join["on"]["span"], edits(join["on"]))
        orders = [
            self._text(key["expr"]["span"], edits(key["expr"]))
            + (" DESC" if key["descending"] else "")
            for key in join["order_by"]
        ]
        order = f" ORDER BY {', '.join(orders)}" if orders else ""
        selected = ", ".join(f"`{name}`.`{own[main]}` AS `{main}`" for main in adds)
        sql = (
            f"SELECT `{MAIN}`.`{ROW}` AS `{ROW}`, {selected} FROM `{MAIN}`"
            f" LAST JOIN `{name}`{order} ON {on}"
        )
        keys = self._equal_columns(join, own, width)
        is_broadcast = right["name"] in self._broadcast
        if not keys and not is_broadcast:
            raise self._refused(
                "a LAST JOIN without an equality condition",
                join["span"],
                f"Compare a column of each side with `=`, or use broadcast=['{right['name']}'].",
            )
        of = dict(self._tables[right["name"]])
        needed = sorted({own[main] for main in {*adds, *read} if main in own} | {*keys.values()})
        use = SourceUse(
            table=right["name"],
            columns=tuple((column, column, of[column]) for column in needed),
            keys=keys,
            is_broadcast=is_broadcast,
        )
        reads = tuple(sorted(main for main in read if main not in own))
        step = Step(
            "widen",
            sql,
            reads,
            (Input(name, 0),),
            tuple((main, self.types[main]) for main in adds),
        )
        return PlannedStep(step, None if is_broadcast else frozenset(keys), (use,))

    def _equal_columns(
        self, join: dict[str, Any], own: Mapping[str, str], width: int
    ) -> dict[str, str]:
        """Returns the columns of the right side that ON equates with columns of the left side."""
        keys: dict[str, str] = {}
        for pair in join["equal"]:
            if not all(side["is_column"] for side in pair):
                continue
            sides = [self._resolve(side["columns"][0], width) for side in pair]
            rights = [side in own for side in sides]
            if sorted(rights) != [False, True]:
                continue
            right, left = sides if rights[0] else sides[::-1]
            if _key_class(self.types[left]) == _key_class(self.types[right]) is not None:
                keys.setdefault(left, own[right])
        return keys

    # The select list.

    def _items(self) -> list[dict[str, Any]]:
        """Returns the select items, with ``*`` expanded."""
        items = []
        for item in self._outline["items"]:
            if not item.get("star"):
                items.append(item["expr"])
                continue
            for name, columns in self._scope:
                if item["of"] in (None, name):
                    items += [{"star": main} for main in columns.values()]
        return items

    def _final_reads(self, items: list[dict[str, Any]]) -> set[str]:
        reads: set[str] = set()
        for item in items:
            if "star" in item:
                reads.add(item["star"])
            elif "whole" in item:
                reads.add(item["whole"])
            else:
                inside = [call["span"] for call, _ in item.get("parts", [])]
                reads |= {name for _, name in item.get("parts", [])}
                for column in item["columns"]:
                    if not any(s <= column["span"][0] < e for s, e in inside):
                        reads.add(self._resolve(column))
        return reads

    def _final(self, items: list[dict[str, Any]], reads: set[str], output: Columns) -> PlannedStep:
        texts = []
        for item in items:
            if "star" in item or "whole" in item:
                texts.append(f"`{item.get('star') or item['whole']}`")
                continue
            parts = [(call["span"], f"`{name}`") for call, name in item.get("parts", [])]
            inside = [span for span, _ in parts]
            columns = [
                (column["span"], f"`{self._resolve(column)}`")
                for column in item["columns"]
                if not any(start <= column["span"][0] < end for start, end in inside)
            ]
            texts.append(self._text(item["span"], parts + columns))
        names = [f"{_PREFIX}o{number}" for number in range(len(texts))]
        selected = ", ".join(f"{text} AS `{name}`" for text, name in zip(texts, names, strict=True))
        adds = tuple((name, of) for name, (_, of) in zip(names, output, strict=True))
        self.types |= dict(adds)
        sql = f"SELECT `{ROW}`, {selected} FROM `{MAIN}`"
        return PlannedStep(Step("widen", sql, tuple(sorted(reads)), (), adds), None)

    # Windows.

    def _window_steps(self, items: list[dict[str, Any]]) -> list[PlannedStep]:
        """Returns a step for each window key; records in the items what the steps compute."""
        groups: dict[tuple[frozenset[str], bool], list[tuple[str, str, set[str]]]] = {}
        named: dict[tuple[frozenset[str], bool], set[str]] = {}
        number = 0
        base = {name for name, _ in self._tables[self.base]}
        for item in items:
            if not item.get("calls"):
                continue
            of_item = {self._group(call) for call in item["calls"]}
            reads = self._read([item])
            outer = [call for call in item["calls"] if not call["is_nested"]]
            # A UNION source has the columns of the base, or the columns that its windows read.
            has_all = reads <= base or any(call["span"] == item["span"] for call in outer)
            if len(of_item) == 1 and (not next(iter(of_item))[1] or has_all):
                pieces = [(item, None)]
            else:
                pieces = [(item, call) for call in outer]
            for _, call in pieces:
                name = f"{_PREFIX}w{number}"
                number += 1
                span = item["span"] if call is None else call["span"]
                inside = [c for c in item["calls"] if _within(c["span"], span)]
                keys = {self._group(c) for c in inside}
                if len(keys) != 1:
                    raise self._refused(
                        "a call over windows with different keys", span, "Split it into two items."
                    )
                group = keys.pop()
                columns = [c for c in item["columns"] if _within(c["span"], span)]
                edits = [(c["span"], f"`{self._resolve(c)}`") for c in columns]
                edits += [edit for c in inside for edit in self._inline_unions(c, group)]
                text = self._text(span, edits)
                if call is None:
                    item["whole"] = name
                else:
                    item.setdefault("parts", []).append((call, name))
                    # `lag` as a complete item ignores the frame; in an expression it does not.
                    text = f"CASE WHEN TRUE THEN {text} END"
                groups.setdefault(group, []).append(
                    (name, text, {self._resolve(c) for c in columns})
                )
                used = named.setdefault(group, set())
                used |= {c["over"]["name"] for c in inside if "name" in c["over"]}
        return [self._window_step(g, pieces, named[g]) for g, pieces in groups.items()]

    def _chain(self, over: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the definition of a window and of the windows that it extends."""
        chain = []
        spec = over["spec"] if "spec" in over else self._windows[over["name"]]["spec"]
        while spec is not None:
            chain.append(spec)
            spec = self._windows[spec["base"]]["spec"] if spec["base"] else None
        return chain

    def _group(self, call: dict[str, Any]) -> tuple[frozenset[str], bool]:
        """Returns the key of a window, and whether it has UNION sources."""
        chain = self._chain(call["over"])
        partition = next((spec["partition_by"] for spec in chain if spec["partition_by"]), [])
        if not partition:
            hint = "Add PARTITION BY: without it, all rows would be on one executor."
            raise self._refused("a window without PARTITION BY", call["span"], hint)
        keys = set()
        for expression in partition:
            if not expression["is_column"]:
                hint = "Add a column for the expression to the DataFrame."
                raise self._refused("PARTITION BY an expression", expression["span"], hint)
            name = self._resolve(expression["columns"][0])
            if _key_class(self.types[name]) is None:
                hint = "Cast the column to BIGINT or STRING in the DataFrame."
                raise self._refused(
                    f"PARTITION BY a column of type {self.types[name]}", expression["span"], hint
                )
            keys.add(name)
        return frozenset(keys), any(spec["unions"] for spec in chain)

    def _union_name(self, table: dict[str, Any]) -> str:
        return f"{_PREFIX}u_{table['name']}"

    def _inline_unions(
        self, call: dict[str, Any], group: tuple[frozenset[str], bool]
    ) -> list[tuple[list[int], str]]:
        if "spec" not in call["over"] or not group[1]:
            return []
        return [(t["span"], f"`{self._union_name(t)}`") for t in call["over"]["spec"]["unions"]]

    def _window_step(
        self,
        group: tuple[frozenset[str], bool],
        pieces: list[tuple[str, str, set[str]]],
        named: set[str],
    ) -> PlannedStep:
        key, _ = group
        specs, unions, reads = [], [], set(key)
        wanted = set(named)
        for window in reversed(self._outline["windows"]):
            # A window is defined after the windows that it extends.
            if window["name"] in wanted and window["spec"]["base"]:
                wanted.add(window["spec"]["base"])
        for window in self._outline["windows"]:
            spec = window["spec"]
            if window["name"] not in wanted:
                continue
            inside = [*spec["partition_by"], *(key["expr"] for key in spec["order_by"])]
            edits = [edit for one in inside for edit in self._columns(one)]
            edits += [(t["span"], f"`{self._union_name(t)}`") for t in spec["unions"]]
            unions += spec["unions"]
            reads |= self._read(inside)
            specs.append(self._text(window["span"], edits))
        for _, _, columns in pieces:
            reads |= columns
        unions += self._inline_tables(group)
        tables = {table["name"]: table for table in unions}
        selected = ", ".join(f"{text} AS `{name}`" for name, text, _ in pieces)
        clause = f" WINDOW {', '.join(specs)}" if specs else ""
        sql = f"SELECT `{ROW}`, {selected} FROM `{MAIN}`{clause}"
        # In the order of the joined rows: a UNION source is matched by position.
        ordered = tuple(sorted(reads, key=self._joined_columns().index))
        adds = self._types_of(sql, ordered, pieces, tables)
        inputs = tuple(Input(self._union_name(t), at) for at, t in enumerate(tables.values()))
        uses = tuple(self._union_use(table, ordered, key) for table in tables.values())
        return PlannedStep(Step("widen", sql, ordered, inputs, adds), key, uses)

    def _inline_tables(self, group: tuple[frozenset[str], bool]) -> list[dict[str, Any]]:
        calls = [
            c for item in self._outline["items"] for c in item.get("expr", {}).get("calls", [])
        ]
        inline = [c for c in calls if "spec" in c["over"] and self._group(c) == group]
        return [table for call in inline for table in call["over"]["spec"]["unions"]]

    def _joined_columns(self) -> list[str]:
        """Returns the columns of the joined rows, table by table."""
        return [name for _, columns in self._scope for name in columns.values()]

    def _union_use(
        self, table: dict[str, Any], reads: tuple[str, ...], key: frozenset[str]
    ) -> SourceUse:
        """Returns the columns of a UNION source at the positions of the columns to read."""
        joined, other = self._joined_columns(), self._tables[table["name"]]
        own = {name: other[joined.index(name)] for name in reads}
        columns = tuple((own[name][0], name, own[name][1]) for name in reads)
        keys = {name: own[name][0] for name in key}
        return SourceUse(table["name"], columns, keys, has_row=True)

    def _types_of(
        self,
        sql: str,
        reads: tuple[str, ...],
        pieces: list[tuple[str, str, set[str]]],
        unions: Mapping[str, dict[str, Any]],
    ) -> Columns:
        columns = tuple((name, self.types[name]) for name in (*reads, ROW))
        tables = {MAIN: empty(columns)}
        tables |= {self._union_name(table): empty(columns) for table in unions.values()}
        bound = query(self._session, sql, tables)
        adds = tuple(
            (name, of) for (name, *_), (_, of) in zip(pieces, bound.columns[1:], strict=True)
        )
        self.types |= dict(adds)
        return adds


def _within(inner: list[int], outer: list[int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _key_class(of: str) -> str | None:
    """Returns the kind of a key type; equal values of types of one kind have the same hash."""
    if of in ("SMALLINT", "INT", "BIGINT"):
        return "integer"
    if of in ("FLOAT", "DOUBLE"):
        return "float"
    return of if of in ("BOOL", "STRING", "DATE") else None
