"""Generated feature queries and rows, for tests of executors that are not this process."""

from __future__ import annotations

import datetime
import math
import random
import struct

import pyarrow as pa


def rows_of(draw: random.Random, count: int) -> dict[str, list]:
    """Rows with ties, NULL keys, NULL values and late rows, in the order of arrival."""

    def some(values, nulls=0.1):
        return [None if draw.random() < nulls else draw.choice(values) for _ in range(count)]

    start = datetime.datetime(2024, 1, 1)
    ticks = [max(0, at // 4 + draw.randint(-5, 2)) for at in range(count)]
    return {
        "id": list(range(count)),
        "user": some(["ann", "bob", "çem", ""]),
        "item": some([1, 2, 3]),
        "shop": some([7, 8, 9, 10], 0.2),
        "price": [
            value if value is None else value * 0.1 + draw.choice([0.0, 1e-17, 1e16])
            for value in some(range(-50, 50))
        ],
        "weight": some([0.5, -0.0, math.inf, math.nan, 1.25]),
        "paid": some([True, False]),
        "ts": [start + datetime.timedelta(seconds=tick) for tick in ticks],
    }


CLICKS = {
    "id": ("BIGINT", pa.int64(), "bigint"),
    "user": ("STRING", pa.string(), "string"),
    "item": ("INT", pa.int32(), "int"),
    "shop": ("SMALLINT", pa.int16(), "smallint"),
    "price": ("DOUBLE", pa.float64(), "double"),
    "weight": ("FLOAT", pa.float32(), "float"),
    "paid": ("BOOL", pa.bool_(), "boolean"),
    "ts": ("TIMESTAMP", pa.timestamp("us", "UTC"), "timestamp"),
}

NAMES = ("clicks", "views", "ratings", "shops")


def bits(column: pa.ChunkedArray) -> list:
    """The values, floats as their bits and times as their milliseconds."""
    if pa.types.is_timestamp(column.type):
        per = {"ms": 1, "us": 1_000}[column.type.unit]
        instants = column.cast(pa.int64()).to_pylist()
        return [None if value is None else value // per for value in instants]
    if pa.types.is_floating(column.type):
        return [None if value is None else struct.pack("<d", value) for value in column.to_pylist()]
    return column.to_pylist()


FRAMES = [
    "ROWS BETWEEN 4 PRECEDING AND CURRENT ROW",
    "ROWS_RANGE BETWEEN 5s PRECEDING AND CURRENT ROW",
    "ROWS_RANGE BETWEEN 8s PRECEDING AND 1s PRECEDING MAXSIZE 3",
    "ROWS BETWEEN 6 PRECEDING AND CURRENT ROW EXCLUDE CURRENT_TIME",
    "ROWS_RANGE BETWEEN 9s PRECEDING AND CURRENT ROW EXCLUDE CURRENT_ROW",
    "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW",
]

CALLS = [
    "sum(price)",
    "avg(price)",
    "count(item)",
    "min(weight)",
    "max(ts)",
    "distinct_count(shop)",
    "lag(price, 1)",
    "first_value(user)",
    "sum_where(price, paid)",
    "top(item, 2)",
    "std(price)",
]

KEYS = ["user", "item", "shop", "user, item", "shop, user"]


class Generator:
    """Draws queries, and counts what they have."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.drawn: dict[str, int] = {}

    def chance(self, what: str, probability: float) -> bool:
        is_drawn = self.draw.random() < probability
        self.drawn[what] = self.drawn.get(what, 0) + is_drawn
        return is_drawn

    def query(self) -> str:
        draw = self.draw
        joins = draw.randint(0, 2) if self.chance("joins", 0.6) else 0
        windows = [f"w{at}" for at in range(draw.randint(1, 4))]
        clauses = []
        may_unite = self.chance("unions", 0.5)
        for name in windows:
            frame = draw.choice(FRAMES if may_unite else FRAMES[:-1])
            union = ""
            if "INSTANCE" in frame or (may_unite and self.chance("union", 0.5)):
                union = f"UNION {draw.choice(['views', 'views, ratings'])} "
            key = draw.choice(KEYS)
            clauses.append(f"{name} AS ({union}PARTITION BY {key} ORDER BY ts {frame})")
        alias = "c" if joins or self.chance("alias", 0.3) else None
        scope = f"{alias}." if alias else ""
        items = [f"{scope}id AS id", f"{scope}price * 2 AS double_price"]

        def call(window: str) -> str:
            text = draw.choice(CALLS)
            if joins:
                text = qualified(text, "c")
            return f"{text} OVER {window}"

        for window in windows:
            items += [call(window) for _ in range(draw.randint(1, 2))]
        if self.chance("two windows in an item", 0.5):
            numbers = [f"count({scope}id) OVER {draw.choice(windows)}" for _ in range(2)]
            items.append(" + ".join(numbers) + f" + {scope}item")
        if self.chance("nested lag", 0.3):
            window = draw.choice(windows)
            items.append(f"coalesce(lag({scope}price, 2) OVER {window}, 0.5)")
        if self.chance("window after OVER", 0.2):
            key = ", ".join(f"{scope}{part}" for part in draw.choice(KEYS).split(", "))
            items.append(
                f"sum({scope}price) OVER (PARTITION BY {key} ORDER BY {scope}ts "
                f"{draw.choice(FRAMES[:3])})"
            )
        sources = "clicks" + (f" AS {alias}" if alias else "")
        for number in range(joins):
            right, name = draw.choice([("ratings", "r"), ("shops", "s")]), f"j{number}"
            on = [f"c.{key} = {name}.{key}" for key in draw.choice(KEYS).split(", ")]
            if self.chance("time in ON", 0.5):
                on.append(f"{name}.ts <= c.ts")
            order = f"ORDER BY {name}.ts " if self.chance("order of a join", 0.7) else ""
            sources += f" LAST JOIN {right[0]} AS {name} {order}ON {' AND '.join(on)}"
            items += [f"{name}.price AS price{number}", f"{name}.ts AS ts{number}"]
            if self.chance("both sides in an item", 0.4):
                items.append(f"c.price - {name}.price AS apart{number}")
        where = ""
        if self.chance("where", 0.4):
            where = f" WHERE {scope}id % 3 != 1"
            # The engine refuses a UNION under such a condition.
            has_union = any("UNION" in clause for clause in clauses)
            if joins and not has_union and self.chance("where of a join", 0.9):
                where += " AND j0.id IS NOT NULL"
        if joins:
            clauses = [qualified_clause(clause) for clause in clauses]
        draw.shuffle(items)
        return f"SELECT {', '.join(items)} FROM {sources}{where} WINDOW {', '.join(clauses)}"


def qualified(text: str, alias: str) -> str:
    name, _, rest = text.partition("(")
    first, comma, others = rest.partition(",")
    if not comma:
        first = first.rstrip(")")
        return f"{name}({alias}.{first})"
    others = others.replace("paid", f"{alias}.paid")
    return f"{name}({alias}.{first},{others}"


def qualified_clause(clause: str) -> str:
    before, _, rest = clause.partition("PARTITION BY ")
    keys, _, frame = rest.partition(" ORDER BY ts")
    keys = ", ".join(f"c.{key}" for key in keys.split(", "))
    return f"{before}PARTITION BY {keys} ORDER BY c.ts{frame}"


def tables_of(draw: random.Random, count: int) -> dict[str, pa.Table]:
    """Draws the rows of every table."""
    tables = {}
    for name in NAMES:
        rows = rows_of(draw, count if name in ("clicks", "views") else count // 2)
        columns = {column: pa.array(rows[column], of) for column, (_, of, _) in CLICKS.items()}
        table = pa.table(columns)
        if name == "shops":
            table = table.set_column(3, "shop", table["shop"].cast(pa.int64()))
        tables[name] = table
    return tables
