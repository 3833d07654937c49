"""Random tables, and their rows in both databases.

All tables have the same columns. ``id`` counts the rows in order of arrival; ``ts`` has no equal
values and no NULL; ``tt`` has both many equal values and NULLs.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from random import Random

from .modes import OPENMLDB

COLUMNS = {
    "id": "INT",
    "k": "INT",
    "g": "STRING",
    "n": "SMALLINT",
    "a": "INT",
    "b": "BIGINT",
    "x": "EXACT",
    "y": "DOUBLE",
    "s": "STRING",
    "f": "BOOL",
    "ts": "TIMESTAMP",
    "tt": "BIGINT",
    "d": "DATE",
}
DEFINITION = (
    "id INT, k INT, g STRING, n SMALLINT, a INT, b BIGINT, x DOUBLE, y DOUBLE, "
    "s STRING, f BOOL, ts TIMESTAMP, tt BIGINT, d DATE"
)
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "A",
    " x ",
    "%",
    "_b",
    "a%b",
    "it's",
    "ü",
    "漢字",
    "7",
    "-12",
    "\\",
]
ENDS = {"SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
DOUBLES = [-0.0, 5e-324, 1e-9, 0.1, 1e15, 123456789.125, 1.7e308, -1.7e308, 9007199254740993.0]
EPOCH = dt.datetime(1970, 1, 1)
START_MS = 1_583_020_700_000  # shortly before a month begins, in a leap year


@dataclass
class Table:
    name: str
    rows: list[tuple]


def texts(mode: str) -> list[str]:
    """Returns the texts of a mode: only ASCII where functions count bytes."""
    return [text for text in TEXTS if mode != OPENMLDB or text.isascii()]


def tables(random: Random, mode: str) -> list[Table]:
    return [Table(name, rows(random, mode)) for name in ("t1", "t2", "t3")]


def rows(random: Random, mode: str) -> list[tuple]:
    count = random.choice([0, 1, 2, 5, 10, 20, 30])
    times = random.sample(range(0, 400), count)
    step = random.choice([500, 1_000, 3_600_000])
    nulls = random.choice([0.0, 0.1, 0.5])
    is_extreme = random.random() < 0.4

    def row(index: int) -> tuple:
        def maybe(value: object) -> object:
            return None if random.random() < nulls else value

        return (
            index,
            maybe(random.randint(0, 3)),
            maybe(random.choice(TEXTS[:4])),
            maybe(integer(random, "SMALLINT", is_extreme)),
            maybe(integer(random, "INT", is_extreme)),
            maybe(integer(random, "BIGINT", is_extreme)),
            maybe(random.randint(-800, 800) / 8),
            maybe(random.choice(DOUBLES)),
            maybe(random.choice(texts(mode))),
            maybe(random.random() < 0.5),
            EPOCH + dt.timedelta(milliseconds=START_MS + times[index] * step + times[index] % 7),
            maybe(random.randint(0, 12)),
            maybe(dt.date(2020, 2, 26) + dt.timedelta(days=random.randint(-800, 800))),
        )

    return [row(index) for index in range(count)]


def integer(random: Random, type_: str, is_extreme: bool) -> int:
    if is_extreme and random.random() < 0.3:
        end = ENDS[type_]
        return random.choice([end - 1, end - 2, 1 - end, -end, end // 2])
    return random.randint(-20, 20)


def literal(value: object, dialect: str) -> str:
    """Writes a value as a literal of an INSERT."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        ms = (value - EPOCH) // dt.timedelta(milliseconds=1)
        return str(ms) if dialect == "lockstep" else f"epoch_ms({ms})"
    if isinstance(value, dt.date):
        return f"'{value}'"
    if isinstance(value, float):
        return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
    if isinstance(value, str):
        return text(value, dialect)
    return str(value)


def text(value: str, dialect: str) -> str:
    if dialect == "lockstep":
        value = value.replace("\\", "\\\\").replace("'", "\\'")
    else:
        value = value.replace("'", "''")
    return f"'{value}'"


def script(table: Table, dialect: str) -> str:
    """Returns the statements that create the table."""
    lines = [f"CREATE TABLE {table.name} ({DEFINITION});"]
    for row in table.rows:
        values = ", ".join(literal(value, dialect) for value in row)
        lines.append(f"INSERT INTO {table.name} VALUES ({values});")
    return "\n".join(lines)
