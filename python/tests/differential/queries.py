"""Random queries over the tables of ``tables``."""

from __future__ import annotations

from collections import Counter
from random import Random

from .expressions import SCALARS, Draw, Scope, items
from .modes import STANDARD
from .node import Items, Node, optional, same
from .tables import COLUMNS

TABLES = ["t1", "t2", "t3"]
BARE: Scope = list(COLUMNS.items())


def qualified(alias: str) -> Scope:
    return [(f"{alias}.{name}", type_) for name, type_ in COLUMNS.items()]


class Queries:
    """Draws queries and counts their constructs."""

    def __init__(self, random: Random, mode: str = STANDARD) -> None:
        self.random, self.mode = random, mode
        self.features: Counter[str] = Counter()

    def draw(self, scope: Scope = BARE) -> Draw:
        return Draw(self.random, scope, self.mode)

    def over_aggregates(self) -> OverAggregates:
        return OverAggregates(self.random, BARE, self.mode)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def query(self) -> Node:
        kinds = [self.projection] * 5 + [self.group] * 4 + [self.total] * 2 + [self.window] * 5
        kinds += [self.general_window] * 3 + [self.last_join] * 4 + [self.left_join] * 2
        kinds += [self.joined_window] * 2
        kinds += [self.union_all] * 2 + [self.ordered] * 2 + [self.distinct]
        make = self.random.choice(kinds)
        self.features[make.__name__] += 1
        return make()

    # FROM and WHERE

    def source(self, *, is_unique: bool = True) -> Node:
        """Draws what follows FROM: a table, or a sub-query with the columns of one.

        By default no two rows have the same ``id`` or the same ``ts``."""
        table = same("table", self.random.choice(TABLES))
        if self.chance(0.6):
            return table
        inner = self.source(is_unique=is_unique) if self.chance(0.2) else table
        makers = [self.like_a_table] * 3 + [self.window_rows, self.join_rows]
        if not is_unique:
            makers += [self.union_rows] * 2
        make = self.random.choice(makers)
        self.features["sub-query"] += 1
        return same("table", "(⟨0⟩) AS q", make(inner))

    def window_rows(self, table: Node) -> Node:
        """Rows like those of a table, some columns computed over a window."""
        self.features["window in a sub-query"] += 1
        lockstep, duckdb, _ = self.native_frame()
        computed = {
            "a": ("max(a)", "max(a)"),
            "k": ("CAST(count(*){} AS INT)", "CAST(count(*){} AS INT)"),
            "s": ("min(s)", "min(s)"),
        }
        name = self.random.choice(list(computed))
        ours, theirs = computed[name]
        kept = [column for column in COLUMNS if column != name]

        def listed(call: str, over: str) -> str:
            call = call.format(over) if "{}" in call else call + over
            return ", ".join([*kept, f"{call} AS {name}"])

        # The columns are matched by name, and not in a UNION.
        text = "SELECT {} FROM ⟨0⟩"
        return Node(
            "rows",
            text.format(listed(ours, " OVER w")) + f" WINDOW w AS ({lockstep})",
            text.format(listed(theirs, f" OVER ({duckdb})")),
            (table,),
        )

    def join_rows(self, table: Node) -> Node:
        """Rows like those of a table, some columns of another that is joined by LAST JOIN."""
        self.features["last join in a sub-query"] += 1
        other, key = self.random.choice(TABLES), self.random.choice(["k", "g", "n"])
        taken = [name for name in ("a", "b", "x", "s", "f") if self.chance(0.5)]
        listed = ", ".join(f"{'o' if name in taken else 'i'}.{name} AS {name}" for name in COLUMNS)
        left = f"SELECT {listed} FROM (SELECT * FROM ⟨0⟩) AS i"
        return Node(
            "rows",
            f"{left} LAST JOIN {other} AS o ORDER BY o.ts ON i.{key} = o.{key}",
            f"{left} LEFT JOIN LATERAL (SELECT * FROM {other} AS o WHERE i.{key} IS NOT DISTINCT "
            f"FROM o.{key} ORDER BY o.ts DESC NULLS LAST, o.id DESC LIMIT 1) AS o ON true",
            (table,),
        )

    def union_rows(self, table: Node) -> Node:
        """The rows of two tables, whose numbers and times may be equal."""
        self.features["union all in a sub-query"] += 1
        other = same("table", self.random.choice(TABLES))
        return same("rows", "⟨0⟩ UNION ALL ⟨1⟩", self.like_a_table(table), self.like_a_table(other))

    def like_a_table(self, table: Node) -> Node:
        """A query whose rows are like those of a table, some columns computed."""
        draw = self.draw()
        columns = []
        for name, type_ in COLUMNS.items():
            is_kept = name in ("id", "ts", "tt") or self.chance(0.8)
            value = same(type_, name) if is_kept else draw.expression(type_, 2)
            columns.append(same("column", f"⟨0⟩ AS {name}", value))
        where = self.where(BARE, 0.5)
        listed = Items(tuple(columns), least=len(columns))
        return same("rows", "SELECT ⟨0⟩ FROM ⟨1⟩⟨2⟩", listed, table, where)

    def where(self, scope: Scope, chance: float = 0.4) -> Items:
        if not self.chance(chance):
            return optional(" WHERE ")
        self.features["where"] += 1
        return optional(" WHERE ", self.draw(scope).expression("BOOL", 3))

    def named(self, make_query: object, *, is_unique: bool = True) -> Node:
        """A query over ``c``, which is a CTE, a sub-query or a table."""
        chance = self.random.random()
        if chance < 0.15:
            self.features["cte"] += 1
            make = self.random.choice([self.like_a_table, self.window_rows, self.join_rows])
            inner = make(same("table", self.random.choice(TABLES)))
            if self.chance(0.3):
                self.features["cte over a cte"] += 1
                outer = self.like_a_table(same("table", "b"))
                text = "WITH b AS (⟨0⟩), c AS (⟨1⟩) ⟨2⟩"
                return same("query", text, inner, outer, make_query(same("table", "c")))
            return same("query", "WITH c AS (⟨0⟩) ⟨1⟩", inner, make_query(same("table", "c")))
        return make_query(self.source(is_unique=is_unique))

    # The kinds

    def select_list(self, scope: Scope, depth: int = 3) -> list[Node]:
        draw = self.draw(scope)
        kinds = [draw.some_type() for _ in range(self.random.randint(1, 4))]
        return [draw.expression(kind, depth) for kind in kinds]

    def projection(self) -> Node:
        def make(table: Node) -> Node:
            listed = items([same("INT", "id"), *self.select_list(BARE, 4)])
            return same("query", "SELECT ⟨0⟩ FROM ⟨1⟩⟨2⟩", listed, table, self.where(BARE))

        return self.named(make, is_unique=False)

    def distinct(self) -> Node:
        draw = self.draw()
        listed = items([draw.expression(self.random.choice(KEYS), 1) for _ in range(2)])
        return same(
            "query",
            "SELECT DISTINCT ⟨0⟩ FROM ⟨1⟩⟨2⟩",
            listed,
            self.source(is_unique=False),
            self.where(BARE),
        )

    def ordered(self) -> Node:
        listed = items([same("INT", "id"), *self.select_list(BARE)])
        way = self.random.choice(
            ["ORDER BY id", "ORDER BY id DESC", "ORDER BY ts", "ORDER BY ts DESC"]
        )
        limit = self.random.choice(["", " LIMIT 0", " LIMIT 1", " LIMIT 3", " LIMIT 100"])
        text = f"SELECT ⟨0⟩ FROM ⟨1⟩⟨2⟩ {way}{limit}"
        return same("query", text, listed, self.source(), self.where(BARE))

    def union_all(self) -> Node:
        kinds = [self.random.choice(SCALARS) for _ in range(self.random.randint(1, 3))]

        def side() -> Node:
            draw = self.draw()
            listed = items([draw.expression(kind, 2) for kind in kinds])
            text = "SELECT ⟨0⟩ FROM ⟨1⟩⟨2⟩"
            table = self.source(is_unique=False)
            return same("side", text, listed, table, self.where(BARE))

        if self.chance(0.3):
            self.features["group of union"] += 1
            text = "SELECT c0, count(*) AS n FROM (⟨0⟩ UNION ALL ⟨1⟩) AS u GROUP BY c0"
            if kinds[0] not in KEYS:
                kinds[0] = self.random.choice(KEYS)
            return same("query", text, side(), side())
        sides = Items(tuple(side() for _ in range(self.random.randint(2, 3))), " UNION ALL ")
        return same("query", "⟨0⟩", sides)

    def group(self) -> Node:
        def make(table: Node) -> Node:
            draw = self.draw()
            keys = [
                draw.expression(self.random.choice(KEYS), self.random.choice([0, 0, 2]))
                for _ in range(self.random.randint(1, 2))
            ]
            over = self.over_aggregates()
            values = [
                draw.aggregate(self.random.choice([0, 1, 2]))
                if self.chance(0.7)
                else over.expression(self.random.choice(SCALARS), 2)
                for _ in range(self.random.randint(1, 4))
            ]
            having = optional(" HAVING ")
            if self.chance(0.4):
                self.features["having"] += 1
                having = optional(" HAVING ", over.expression("BOOL", 2))
            listed = items([*keys, *values], least=len(keys) + 1)
            names = ", ".join(f"c{index}" for index in range(len(keys)))
            text = f"SELECT ⟨0⟩ FROM ⟨1⟩⟨2⟩ GROUP BY {names}⟨3⟩"
            return same("query", text, listed, table, self.where(BARE), having)

        return self.named(make, is_unique=False)

    def total(self) -> Node:
        def make(table: Node) -> Node:
            draw = self.draw()
            over = self.over_aggregates()
            values = [draw.aggregate(2) for _ in range(self.random.randint(1, 4))]
            values.append(over.expression(self.random.choice(SCALARS), 2))
            return same("query", "SELECT ⟨0⟩ FROM ⟨1⟩⟨2⟩", items(values), table, self.where(BARE))

        return self.named(make, is_unique=False)

    # Windows

    def partition(self) -> list[str]:
        return self.random.choice([["k"], ["k"], ["g"], ["k", "g"], ["f"], ["n"], ["d"]])

    def window(self) -> Node:
        """A window that DuckDB has too: no equal order values, or ROWS with ``id`` to part them."""

        def make(table: Node) -> Node:
            listed, definitions = [same("INT", "id")], []
            for number in range(self.random.choice([1, 1, 2])):
                lockstep, duckdb, is_plain = self.native_frame()
                name = f"w{number}"
                definitions.append(f"{name} AS ({lockstep})")
                listed += self.window_items(name, duckdb, is_plain)
            text = "SELECT ⟨0⟩ FROM ⟨1⟩⟨2⟩"
            where = self.where(BARE)
            windows = f" WINDOW {', '.join(definitions)}"
            return Node("query", text + windows, text, (items(listed), table, where))

        return self.named(make)

    def native_frame(self) -> tuple[str, str, bool]:
        keys = f"PARTITION BY {', '.join(self.partition())}"
        if self.chance(0.5):
            start, end = sorted((self.random.randint(0, 5), self.random.choice([0, 0, 1, 2])))[::-1]
            old = "UNBOUNDED" if self.chance(0.2) else str(start)
            if self.chance(0.1):
                old = "1000"
            frame = f"ROWS BETWEEN {old} PRECEDING AND {bound(end)}"
            if self.is_ahead():
                first, last = self.ahead(f"{old} PRECEDING")
                frame = f"ROWS BETWEEN {first} AND {last}"
            exclude, duck_exclude = self.exclude_current_row()
            order = self.random.choice(["ts", "ts", "id"])
            lockstep = f"{keys} ORDER BY {order} {frame}{exclude}"
            return lockstep, f"{keys} ORDER BY {order} {frame}{duck_exclude}", not exclude
        unit, ms = self.random.choice(
            [("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)]
        )
        start = self.random.choice([self.random.randint(1, 30), self.random.randint(1, 30), 5_000])
        end = self.random.choice([0, 0, 0, self.random.randint(0, start)])
        is_open = end < start and self.chance(0.2)
        old = "UNBOUNDED" if self.chance(0.15) else f"{start}{unit}"
        opened = " OPEN" if is_open and old != "UNBOUNDED" else ""
        if self.is_ahead():
            return self.range_ahead(keys, unit, ms)
        exclude, duck_exclude = self.exclude_current_row()
        lockstep = (
            f"{keys} ORDER BY ts ROWS_RANGE BETWEEN {old}{opened} PRECEDING AND "
            f"{bound(f'{end}{unit}' if end else 0)}{exclude}"
        )
        far = (
            "UNBOUNDED"
            if old == "UNBOUNDED"
            else f"INTERVAL {start * ms - bool(opened)} MILLISECONDS"
        )
        near = "CURRENT ROW" if not end else f"INTERVAL {end * ms} MILLISECONDS PRECEDING"
        duckdb = f"{keys} ORDER BY ts RANGE BETWEEN {far} PRECEDING AND {near}{duck_exclude}"
        return lockstep, duckdb, not exclude

    def is_ahead(self) -> bool:
        """Whether a frame extends past the current row, which OpenMLDB refuses."""
        return self.mode == STANDARD and self.chance(0.25)

    def ahead(self, start: str, unit: str = "") -> tuple[str, str]:
        """Both ends of a frame that extends past the current row."""
        near, far = sorted((self.random.randint(1, 6), self.random.randint(1, 6)))
        last = "UNBOUNDED" if self.chance(0.2) else f"{far}{unit}"
        first = self.random.choice([start, start, "CURRENT ROW", f"{near}{unit} FOLLOWING"])
        return first, f"{last} FOLLOWING"

    def range_ahead(self, keys: str, unit: str, ms: int) -> tuple[str, str, bool]:
        first, last = self.ahead(f"{self.random.randint(1, 30)}{unit} PRECEDING", unit)
        exclude, duck_exclude = self.exclude_current_row()

        def theirs(end: str) -> str:
            distance, *way = end.split()
            if not distance.endswith(unit):
                return end
            return f"INTERVAL {int(distance.removesuffix(unit)) * ms} MILLISECONDS {way[0]}"

        lockstep = f"{keys} ORDER BY ts ROWS_RANGE BETWEEN {first} AND {last}{exclude}"
        frame = f"RANGE BETWEEN {theirs(first)} AND {theirs(last)}"
        return lockstep, f"{keys} ORDER BY ts {frame}{duck_exclude}", not exclude

    def exclude_current_row(self) -> tuple[str, str]:
        if self.chance(0.15):
            self.features["exclude current row"] += 1
            return " EXCLUDE CURRENT_ROW", " EXCLUDE CURRENT ROW"
        return "", ""

    def window_items(self, name: str, duckdb: str, is_plain: bool) -> list[Node]:
        over, duck_over = f" OVER {name}", f" OVER ({duckdb})"
        draw = self.draw()
        listed = []
        for _ in range(self.random.randint(1, 3)):
            chance = self.random.random()
            if chance < 0.25 and is_plain:
                kind = self.random.choice(SCALARS)
                value = draw.expression(kind, 1)
                function = self.random.choice(
                    ["first_value(⟨0⟩)", "last_value(⟨0⟩)", "lag(⟨0⟩, 1)", "lag(⟨0⟩, 3)"]
                )
                plain = duckdb.split(" ROWS ")[0].split(" RANGE ")[0]
                duck = f" OVER ({plain})" if "lag" in function else duck_over
                listed.append(Node(kind, function + over, function + duck, (value,)))
                self.features[function.split("(")[0]] += 1
            else:
                listed.append(draw.aggregate(self.random.choice([0, 0, 1, 2]), over, duck_over))
        return listed

    def general_window(self) -> Node:
        """Draws any window of Lockstep; for DuckDB, a sub-query that selects its rows."""
        main, other = self.random.sample(TABLES, 2)
        keys = self.partition()
        order = self.random.choice(["tt", "tt", "ts"])
        is_range = self.chance(0.6)
        union = f"UNION {other} " if self.chance(0.5) else ""
        attributes = [a for a in ATTRIBUTES if self.chance(0.25)]
        max_size = self.random.randint(1, 4) if is_range and self.chance(0.3) else None
        for feature in [union.split(" ")[0].lower(), *attributes, "MAXSIZE" * bool(max_size)]:
            if feature:
                self.features[f"window {feature}"] += 1
        unit = 1 if order == "tt" else self.random.choice([1_000, 3_600_000])
        start = self.random.randint(0, 6)
        end = self.random.choice([0, 0, min(1, start), self.random.randint(0, start)])
        is_unbounded = self.chance(0.2)
        old = "UNBOUNDED" if is_unbounded else str(start * unit if is_range else start)
        lockstep = (
            f"{union}PARTITION BY {', '.join(keys)} ORDER BY {order} "
            f"{'ROWS_RANGE' if is_range else 'ROWS'} BETWEEN {old} PRECEDING AND "
            f"{bound(end * unit if is_range else end)}"
            + (f" MAXSIZE {max_size}" if max_size else "")
            + "".join(f" {attribute}" for attribute in attributes)
        )
        frame = Frame(
            order,
            is_range,
            None if is_unbounded else start * (unit if is_range else 1),
            end * (unit if is_range else 1),
            max_size,
            attributes,
        )
        rows = frame.rows(main, other if union else None, keys)
        draw = self.draw()
        listed = [Node("INT", "id", "m.id")]
        for _ in range(self.random.randint(1, 3)):
            call = draw.aggregate(self.random.choice([0, 1]))
            text = f"(SELECT {call.duckdb} FROM {rows})"
            listed.append(Node(call.type, over_window(call.lockstep), text, call.parts))
        where = f" WHERE {order} IS NOT NULL"
        source = f"{main}{where}"
        if union:
            # Rows without an order value stay out on both sides.
            source = f"(SELECT * FROM {main}{where}) AS m"
            lockstep = lockstep.replace(union, f"UNION (SELECT * FROM {other}{where}) ")
        return Node(
            "query",
            f"SELECT ⟨0⟩ FROM {source} WINDOW w AS ({lockstep})",
            f"SELECT ⟨0⟩ FROM {main} AS m{where}",
            (items(listed, least=2),),
        )

    # Joins

    def right_side(self, alias: str) -> Node:
        table = same("table", self.random.choice(TABLES))
        if self.chance(0.7):
            return same("right", f"⟨0⟩ AS {alias}", table)
        self.features["sub-query on the right"] += 1
        make = self.random.choice([self.like_a_table, self.window_rows, self.join_rows])
        return same("right", f"(⟨0⟩) AS {alias}", make(table))

    def last_join(self) -> Node:
        parts: list[Node | Items] = [same("table", self.random.choice(TABLES))]
        lockstep = duckdb = "SELECT ⟨1⟩ FROM ⟨0⟩ AS m"
        scope = qualified("m")
        parts.append(items([]))
        for alias in ["r", "s"][: self.random.choice([1, 1, 2])]:
            side = len(parts)
            parts.append(self.right_side(alias))
            left = self.random.choice(["m", "r"]) if alias == "s" else "m"
            keys = self.random.choice([["k"], ["k"], ["g"], ["k", "g"], ["n"], ["d"]])
            equal = " AND ".join(f"{left}.{key} = {alias}.{key}" for key in keys)
            same_keys = " AND ".join(
                f"{left}.{key} IS NOT DISTINCT FROM {alias}.{key}" for key in keys
            )
            in_time = ""
            if self.chance(0.5):
                in_time = f" AND {alias}.ts {self.random.choice(['<=', '<'])} m.ts"
            scope = scope + qualified(alias)
            extra = optional(" AND ")
            if self.chance(0.4):
                self.features["condition of a last join"] += 1
                condition = self.draw(scope).expression("BOOL", 2)
                extra = optional(" AND ", same("extra", "(⟨0⟩ OR false)", condition))
            parts.append(extra)
            order = self.random.choice(["ts", "tt", "id", "ts", None])
            by = f"ORDER BY {alias}.{order} " if order else ""
            newest = (
                f"{alias}.{order} DESC NULLS LAST, {alias}.id DESC" if order else f"{alias}.id DESC"
            )
            lockstep += f" LAST JOIN ⟨{side}⟩ {by}ON {equal}{in_time}⟨{side + 1}⟩"
            duckdb += (
                f" LEFT JOIN LATERAL (SELECT * FROM ⟨{side}⟩ WHERE {same_keys}{in_time}⟨{side + 1}⟩"
                f" ORDER BY {newest} LIMIT 1) AS {alias} ON true"
            )
        parts[1] = items([same("INT", "m.id"), *self.select_list(scope, 2), same("INT", "r.id")])
        parts.append(self.where(scope, 0.3))
        where = f"⟨{len(parts) - 1}⟩"
        return Node("query", lockstep + where, duckdb + where, tuple(parts))

    def joined_window(self) -> Node:
        """Windows over the rows that a LAST JOIN in the same SELECT gives."""
        other, key = self.random.choice(TABLES), self.random.choice(["k", "g", "n"])
        lockstep, duckdb, _ = self.native_frame()
        joined = (
            f"(SELECT id AS rid, {key} AS rkey, ts AS rts, a AS ra, s AS rs, x AS rx FROM {other})"
        )
        scope = [*BARE, ("ra", "INT"), ("rs", "STRING"), ("rx", "EXACT")]
        calls = [
            self.draw(scope).aggregate(1, " OVER w", f" OVER ({duckdb})")
            for _ in range(self.random.randint(1, 3))
        ]
        listed = items([same("INT", "id"), same("INT", "rid"), *calls])
        text = "SELECT ⟨0⟩ FROM ⟨1⟩ AS m"
        newest = f"SELECT * FROM {joined} AS r WHERE m.{key} IS NOT DISTINCT FROM r.rkey"
        return Node(
            "query",
            f"{text} LAST JOIN {joined} AS r ORDER BY r.rts ON m.{key} = r.rkey⟨2⟩"
            f" WINDOW w AS ({lockstep})",
            f"{text} LEFT JOIN LATERAL ({newest} ORDER BY r.rts DESC NULLS LAST, r.rid DESC "
            "LIMIT 1) AS r ON true⟨2⟩",
            (listed, same("table", self.random.choice(TABLES)), self.where(scope, 0.3)),
        )

    def left_join(self) -> Node:
        scope = qualified("m") + qualified("r")
        keys = self.random.choice([["k"], ["g"], ["k", "g"], ["d"]])
        equal = " AND ".join(f"m.{key} = r.{key}" for key in keys)
        extra = optional(" AND ")
        if self.chance(0.5):
            condition = self.draw(scope).expression("BOOL", 2)
            extra = optional(" AND ", same("extra", "(⟨0⟩ OR false)", condition))
        listed = items([same("INT", "m.id"), same("INT", "r.id"), *self.select_list(scope, 2)])
        text = f"SELECT ⟨0⟩ FROM ⟨1⟩ AS m LEFT JOIN ⟨2⟩ ON {equal}⟨3⟩⟨4⟩"
        table = same("table", self.random.choice(TABLES))
        where = self.where(scope, 0.3)
        return same("query", text, listed, table, self.right_side("r"), extra, where)


KEYS = ["SMALLINT", "INT", "BIGINT", "STRING", "BOOL", "DATE", "TIMESTAMP"]
ATTRIBUTES = ["EXCLUDE CURRENT_ROW", "EXCLUDE CURRENT_TIME", "INSTANCE_NOT_IN_WINDOW"]


class OverAggregates(Draw):
    """Draws expressions whose columns are aggregates."""

    def leaf(self, kind: str) -> Node:
        for _ in range(8):
            call = Draw(self.random, self.scope, self.mode).aggregate(0)
            if call.type == kind:
                return call
        return Draw(self.random, [], self.mode).leaf(kind)


class Frame:
    """Writes the rows of a Lockstep window, newest first, as a DuckDB query."""

    def __init__(
        self,
        order: str,
        is_range: bool,
        start: int | None,
        end: int,
        max_size: int | None,
        attributes: list[str],
    ) -> None:
        self.order, self.is_range = order, is_range
        self.start, self.end = start, end
        self.max_size, self.attributes = max_size, attributes

    def rows(self, main: str, union: str | None, keys: list[str]) -> str:
        is_current = "(h.arm = 0 AND h.id = m.id)"
        ours, current = f"h.{self.order}", f"m.{self.order}"
        passed = f"({ours} = {current} AND (h.arm = 1 OR h.id <= m.id))"
        history = f"({ours} < {current} OR {passed})"
        conditions = [f"h.{key} IS NOT DISTINCT FROM m.{key}" for key in keys] + [history]
        if "EXCLUDE CURRENT_TIME" in self.attributes:
            conditions.append(f"(h.{self.order} < m.{self.order} OR {is_current})")
        if "INSTANCE_NOT_IN_WINDOW" in self.attributes:
            conditions.append(f"(h.arm = 1 OR {is_current})")
        without = "EXCLUDE CURRENT_ROW" in self.attributes
        limit, after = "", ""
        if self.is_range:
            distance = "m.tt - h.tt" if self.order == "tt" else "epoch_ms(m.ts) - epoch_ms(h.ts)"
            conditions.append(f"{distance} >= {self.end}")
            if self.start is not None:
                conditions.append(f"{distance} <= {self.start}")
            if without:
                conditions.append(f"NOT {is_current}")
            if self.max_size is not None:
                limit = f" LIMIT {self.max_size}"
        else:
            if self.start is not None:
                limit = f" LIMIT {self.start - self.end + 1}"
            limit += f" OFFSET {self.end}"
            after = f" WHERE NOT {is_current}" if without else ""
        arms = f"SELECT *, 0 AS arm FROM {main}" + (
            f" UNION ALL SELECT *, 1 AS arm FROM {union}" if union else ""
        )
        picked = (
            f"SELECT * FROM ({arms}) AS h WHERE {' AND '.join(conditions)} "
            f"ORDER BY h.{self.order} DESC, h.arm, h.id DESC{limit}"
        )
        return f"({picked}) AS h{after}"


def bound(end: object) -> str:
    return f"{end} PRECEDING" if end else "CURRENT ROW"


def over_window(call: str) -> str:
    return f"{call} OVER w"
