"""Random expressions, from one table of expressions in both dialects.

``EXACT`` is a DOUBLE that sums without rounding, ``FINITE`` one that stays far from the ends;
both are DOUBLE where a rule says so. ``NEAR`` is allowed only at the top: its last digits may
differ. Where the two modes differ, the macros do (``macros``), or the rules (``OF_MODE``).
"""

from __future__ import annotations

from random import Random

from .modes import MODES, OPENMLDB, STANDARD
from .node import NULLS, SQL_TYPES, Items, Node, same
from .tables import ENDS, START_MS, text, texts

INTEGERS = ["SMALLINT", "INT", "BIGINT"]
NUMBERS = [*INTEGERS, "FINITE"]
SCALARS = [*INTEGERS, "EXACT", "FINITE", "DOUBLE", "STRING", "BOOL", "TIMESTAMP", "DATE"]
SUBTYPES = {"FINITE": ["FINITE", "EXACT"], "DOUBLE": ["DOUBLE", "FINITE", "EXACT"]}

BITS = {"SMALLINT": 16, "INT": 32, "BIGINT": 64}


def macros(mode: str) -> list[str]:
    """What an integer, and a fraction that is cut off, becomes in each integer type; and the text
    of a time."""
    fitting = []
    for name, bits in BITS.items():
        end = f"CAST({2 ** (bits - 1)} AS HUGEINT)"
        whole = f"CAST({2**bits} AS HUGEINT)"
        wrapped = f"((((v + {end}) % {whole}) + {whole}) % {whole} - {end})"
        # A DOUBLE beyond the type is an end of it; the least integer is a DOUBLE, the greatest not.
        held = (
            f"CASE WHEN v >= {2 ** (bits - 1)}e0 THEN {2 ** (bits - 1) - 1} "
            f"WHEN v < {-(2 ** (bits - 1))}e0 THEN CAST({-(2 ** (bits - 1))} AS HUGEINT) "
            f"ELSE TRY_CAST(trunc(v) AS {name}) END"
        )
        fit, cut = ("v", "trunc(v)") if mode == STANDARD else (wrapped, held)
        fitting.append(f"CREATE MACRO fit{bits}(v) AS TRY_CAST({fit} AS {name})")
        fitting.append(f"CREATE MACRO cut{bits}(v) AS TRY_CAST({cut} AS {name})")
    seconds = "strftime(t, '%Y-%m-%d %H:%M:%S')"
    parts = "strftime(t, '%Y-%m-%d %H:%M:%S.%g')"
    ms = f"CASE WHEN epoch_ms(t) % 1000 = 0 THEN {seconds} ELSE {parts} END"
    return [*fitting, f"CREATE MACRO time_text(t) AS {ms if mode == STANDARD else seconds}"]


Rule = tuple[str, list[str], str, str]


def wider(left: str, right: str) -> str:
    order = [*INTEGERS, "EXACT", "FINITE", "DOUBLE"]
    return max(left, right, key=order.index)


def arithmetic() -> list[Rule]:
    rules: list[Rule] = []
    for left in INTEGERS:
        bits = BITS[left]
        rules.append((left, [left], "(- ⟨0⟩)", f"fit{bits}(- CAST(⟨0⟩ AS HUGEINT))"))
        rules.append((left, [left], "(~ ⟨0⟩)", "(~ ⟨0⟩)"))
        for right in INTEGERS:
            both = wider(left, right)
            for op, duck in (("+", "+"), ("-", "-"), ("*", "*"), ("DIV", "//"), ("%", "%")):
                exact = f"CAST(⟨0⟩ AS HUGEINT) {duck} CAST(⟨1⟩ AS HUGEINT)"
                rules.append((both, [left, right], f"(⟨0⟩ {op} ⟨1⟩)", f"fit{BITS[both]}({exact})"))
            for op in "&|":
                rules.append((both, [left, right], f"(⟨0⟩ {op} ⟨1⟩)", f"(⟨0⟩ {op} ⟨1⟩)"))
            rules.append((both, [left, right], "(⟨0⟩ ^ ⟨1⟩)", "xor(⟨0⟩, ⟨1⟩)"))
            if left != right:
                fitting = f"fit{BITS[right]}(CAST(⟨0⟩ AS HUGEINT))"
                rules.append((right, [left], f"CAST(⟨0⟩ AS {right})", fitting))
        rules.append((left, ["FINITE"], f"CAST(⟨0⟩ AS {left})", f"cut{bits}(⟨0⟩)"))
        rules.append((left, ["STRING"], f"CAST(⟨0⟩ AS {left})", whole_number(left)))
        rules.append(("STRING", [left], "CAST(⟨0⟩ AS STRING)", "CAST(⟨0⟩ AS VARCHAR)"))
        rules.append(("FINITE", [left], "CAST(⟨0⟩ AS DOUBLE)", "CAST(⟨0⟩ AS DOUBLE)"))
        rules.append(("BOOL", [left], "CAST(⟨0⟩ AS BOOL)", "CAST(⟨0⟩ AS BOOL)"))
        rules.append((left, ["BOOL"], f"CAST(⟨0⟩ AS {left})", f"CAST(⟨0⟩ AS {left})"))
        rules.append(("FINITE", [left, "FINITE"], "(⟨0⟩ + ⟨1⟩)", "(⟨0⟩ + ⟨1⟩)"))
    for left in NUMBERS:
        for right in NUMBERS:
            divided = "(CAST(⟨0⟩ AS DOUBLE) / nullif(CAST(⟨1⟩ AS DOUBLE), 0))"
            rules.append(("FINITE", [left, right], "(⟨0⟩ / ⟨1⟩)", divided))
    return rules


def whole_number(kind: str) -> str:
    """A text as a number; ``1.5`` is not one."""
    return f"CASE WHEN regexp_full_match(⟨0⟩, ' *[-+]?[0-9]+ *') THEN TRY_CAST(⟨0⟩ AS {kind}) END"


def comparison() -> list[Rule]:
    rules: list[Rule] = []
    kinds = [(kind, kind) for kind in SCALARS if kind not in ("EXACT", "FINITE")]
    kinds += [(l, r) for l in (*INTEGERS, "DOUBLE") for r in (*INTEGERS, "DOUBLE") if l != r]  # noqa: E741
    for left, right in kinds:
        for op in ("=", "<>", "<", "<=", ">", ">="):
            rules.append(("BOOL", [left, right], f"(⟨0⟩ {op} ⟨1⟩)", f"(⟨0⟩ {op} ⟨1⟩)"))
        for word in ("BETWEEN", "NOT BETWEEN"):
            between = f"(⟨0⟩ {word} ⟨1⟩ AND ⟨2⟩)"
            rules.append(("BOOL", [left, right, right], between, between))
        for word in ("IN", "NOT IN"):
            listed = f"(⟨0⟩ {word} (⟨1⟩, ⟨2⟩, ⟨3⟩))"
            rules.append(("BOOL", [left, right, right, right], listed, listed))
    for kind in SCALARS:
        rules += [("BOOL", [kind], text, text) for text in ("(⟨0⟩ IS NULL)", "(⟨0⟩ IS NOT NULL)")]
    for text_ in ("(NOT ⟨0⟩)", "(⟨0⟩ AND ⟨1⟩)", "(⟨0⟩ OR ⟨1⟩)"):
        rules += [("BOOL", ["BOOL"] * text_.count("⟨"), text_, text_)] * 8
    rules.append(("BOOL", ["BOOL", "BOOL"], "(⟨0⟩ XOR ⟨1⟩)", "(⟨0⟩ <> ⟨1⟩)"))
    return rules


def conditional() -> list[Rule]:
    rules: list[Rule] = []
    for kind in SCALARS:
        for text_, kinds in (
            ("CASE WHEN ⟨0⟩ THEN ⟨1⟩ ELSE ⟨2⟩ END", ["BOOL", kind, kind]),
            ("CASE WHEN ⟨0⟩ THEN ⟨1⟩ END", ["BOOL", kind]),
            ("CASE WHEN ⟨0⟩ THEN ⟨1⟩ WHEN ⟨2⟩ THEN ⟨3⟩ END", ["BOOL", kind, "BOOL", kind]),
            ("CASE ⟨0⟩ WHEN ⟨1⟩ THEN ⟨2⟩ ELSE ⟨3⟩ END", ["INT", "INT", kind, kind]),
            (
                "CASE ⟨0⟩ WHEN ⟨1⟩ THEN ⟨2⟩ WHEN ⟨3⟩ THEN ⟨4⟩ END",
                ["STRING", "STRING", kind, "STRING", kind],
            ),
            ("coalesce(⟨0⟩, ⟨1⟩)", [kind] * 2),
            ("coalesce(⟨0⟩, ⟨1⟩, ⟨2⟩)", [kind] * 3),
            ("ifnull(⟨0⟩, ⟨1⟩)", [kind] * 2),
            ("nullif(⟨0⟩, ⟨1⟩)", [kind] * 2),
            ("if(⟨0⟩, ⟨1⟩, ⟨2⟩)", ["BOOL", kind, kind]),
            ("greatest(⟨0⟩, ⟨1⟩)", [kind] * 2),
            ("least(⟨0⟩, ⟨1⟩, ⟨2⟩)", [kind] * 3),
        ):
            if kind == "BOOL" and text_.startswith(("greatest", "least")):
                continue
            rules.append((kind, kinds[: text_.count("⟨")], text_, text_))
        nvl2 = "CASE WHEN ⟨0⟩ IS NOT NULL THEN ⟨1⟩ ELSE ⟨2⟩ END"
        rules.append((kind, ["STRING", kind, kind], "nvl2(⟨0⟩, ⟨1⟩, ⟨2⟩)", nvl2))
    return rules


def least(function: str) -> str:
    """NULL where one of two is."""
    return f"CASE WHEN ⟨0⟩ IS NOT NULL AND ⟨1⟩ IS NOT NULL THEN {function}(⟨0⟩, ⟨1⟩) END"


FUNCTIONS: list[Rule] = [
    ("EXACT", ["EXACT", "EXACT"], "(⟨0⟩ + ⟨1⟩)", "(⟨0⟩ + ⟨1⟩)"),
    ("EXACT", ["EXACT", "EXACT"], "(⟨0⟩ - ⟨1⟩)", "(⟨0⟩ - ⟨1⟩)"),
    ("EXACT", ["EXACT"], "(- ⟨0⟩)", "(- ⟨0⟩)"),
    ("EXACT", ["EXACT"], "abs(⟨0⟩)", "abs(⟨0⟩)"),
    ("EXACT", ["EXACT"], "floor(⟨0⟩)", "floor(⟨0⟩)"),
    ("EXACT", ["EXACT"], "ceil(⟨0⟩)", "ceil(⟨0⟩)"),
    ("EXACT", ["EXACT"], "round(⟨0⟩)", "round(⟨0⟩)"),
    ("EXACT", ["EXACT"], "truncate(⟨0⟩)", "trunc(⟨0⟩)"),
    ("FINITE", ["FINITE", "FINITE"], "(⟨0⟩ * ⟨1⟩)", "(⟨0⟩ * ⟨1⟩)"),
    ("FINITE", ["FINITE", "FINITE"], "(⟨0⟩ - ⟨1⟩)", "(⟨0⟩ - ⟨1⟩)"),
    ("FINITE", ["EXACT"], "sqrt(abs(⟨0⟩))", "sqrt(abs(⟨0⟩))"),
    ("DOUBLE", ["DOUBLE"], "abs(⟨0⟩)", "abs(⟨0⟩)"),
    ("DOUBLE", ["DOUBLE"], "(- ⟨0⟩)", "(- ⟨0⟩)"),
    ("DOUBLE", ["DOUBLE"], "floor(⟨0⟩)", "floor(⟨0⟩)"),
    ("NEAR", ["EXACT"], "exp(⟨0⟩)", "exp(⟨0⟩)"),
    ("NEAR", ["EXACT"], "sin(⟨0⟩)", "sin(⟨0⟩)"),
    ("NEAR", ["EXACT"], "atan(⟨0⟩)", "atan(⟨0⟩)"),
    ("NEAR", ["EXACT"], "ln(abs(⟨0⟩) + 1)", "ln(abs(⟨0⟩) + 1)"),
    ("NEAR", ["EXACT"], "log10(abs(⟨0⟩) + 1)", "log10(abs(⟨0⟩) + 1)"),
    ("NEAR", ["EXACT"], "log2(abs(⟨0⟩) + 1)", "log2(abs(⟨0⟩) + 1)"),
    ("NEAR", ["EXACT"], "pow(⟨0⟩, 3)", "pow(⟨0⟩, 3)"),
    ("NEAR", ["EXACT"], "round(⟨0⟩, 1)", "round(⟨0⟩, 1)"),
    ("INT", ["INT"], "abs(⟨0⟩)", "fit32(abs(CAST(⟨0⟩ AS HUGEINT)))"),
    ("BIGINT", ["BIGINT"], "abs(⟨0⟩)", "fit64(abs(CAST(⟨0⟩ AS HUGEINT)))"),
    ("INT", ["INT"], "pmod(⟨0⟩, 7)", "(((⟨0⟩ % 7) + 7) % 7)"),
    ("INT", ["STRING", "STRING"], "locate(⟨0⟩, ⟨1⟩)", "CAST(strpos(⟨1⟩, ⟨0⟩) AS INT)"),
    (
        "INT",
        ["STRING", "STRING"],
        "strcmp(⟨0⟩, ⟨1⟩)",
        "CASE WHEN ⟨0⟩ < ⟨1⟩ THEN -1 WHEN ⟨0⟩ = ⟨1⟩ THEN 0 WHEN ⟨0⟩ > ⟨1⟩ THEN 1 END",
    ),
    ("STRING", ["STRING"], "upper(⟨0⟩)", "upper(⟨0⟩)"),
    ("STRING", ["STRING"], "lower(⟨0⟩)", "lower(⟨0⟩)"),
    ("STRING", ["STRING"], "reverse(⟨0⟩)", "reverse(⟨0⟩)"),
    ("STRING", ["STRING"], "trim(⟨0⟩)", "trim(⟨0⟩)"),
    ("STRING", ["STRING"], "ltrim(⟨0⟩)", "ltrim(⟨0⟩)"),
    ("STRING", ["STRING"], "rtrim(⟨0⟩)", "rtrim(⟨0⟩)"),
    ("STRING", ["STRING"], "left(⟨0⟩, 2)", "left(⟨0⟩, 2)"),
    ("STRING", ["STRING"], "right(⟨0⟩, 2)", "right(⟨0⟩, 2)"),
    ("STRING", ["STRING"], "substring(⟨0⟩, 2)", "substring(⟨0⟩, 2)"),
    ("STRING", ["STRING"], "substring(⟨0⟩, 1, 2)", "substring(⟨0⟩, 1, 2)"),
    ("STRING", ["STRING"], "substring(⟨0⟩, -2, 1)", "substring(⟨0⟩, -2, 1)"),
    ("STRING", ["STRING", "STRING"], "concat(⟨0⟩, ⟨1⟩)", "(⟨0⟩ || ⟨1⟩)"),
    ("STRING", ["STRING", "STRING"], "concat_ws('-', ⟨0⟩, ⟨1⟩)", "(⟨0⟩ || '-' || ⟨1⟩)"),
    ("STRING", ["STRING", "STRING"], "(⟨0⟩ || ⟨1⟩)", "(⟨0⟩ || ⟨1⟩)"),
    ("STRING", ["STRING"], "replace(⟨0⟩, 'a', 'bb')", "replace(⟨0⟩, 'a', 'bb')"),
    ("STRING", ["STRING"], "replace(⟨0⟩, 'b', '')", "replace(⟨0⟩, 'b', '')"),
    ("STRING", ["STRING"], "lpad(⟨0⟩, 4, 'xy')", "lpad(⟨0⟩, 4, 'xy')"),
    ("STRING", ["STRING"], "rpad(⟨0⟩, 1, 'x')", "rpad(⟨0⟩, 1, 'x')"),
    ("INT", ["STRING"], "octet_length(⟨0⟩)", "CAST(strlen(⟨0⟩) AS INT)"),
    ("BOOL", ["STRING"], "regexp_like(⟨0⟩, 'a.*')", "regexp_full_match(⟨0⟩, 'a.*')"),
    ("BOOL", ["STRING"], "like_match(⟨0⟩, 'a%')", "(⟨0⟩ LIKE 'a%')"),
    ("BOOL", ["STRING"], "ilike_match(⟨0⟩, 'A%')", "(⟨0⟩ ILIKE 'A%')"),
    ("BOOL", ["STRING"], "isnull(⟨0⟩)", "(⟨0⟩ IS NULL)"),
    ("INT", ["INT"], "mod(⟨0⟩, 3)", "(⟨0⟩ % 3)"),
    ("INT", ["SMALLINT"], "sign(⟨0⟩)", "CAST(sign(⟨0⟩) AS INT)"),
    ("INT", ["INT", "INT"], "minimum(⟨0⟩, ⟨1⟩)", least("least")),
    ("INT", ["INT", "INT"], "maximum(⟨0⟩, ⟨1⟩)", least("greatest")),
    ("INT", ["INT"], "inc(⟨0⟩)", "fit32(CAST(⟨0⟩ AS HUGEINT) + 1)"),
    ("STRING", ["SMALLINT"], "hex(⟨0⟩)", "hex(CAST(⟨0⟩ AS BIGINT))"),
    ("STRING", ["DATE"], "char(64 + month(⟨0⟩))", "chr(CAST(64 + month(⟨0⟩) AS INT))"),
    *(
        ("NEAR", ["EXACT"], f"{name}(⟨0⟩)", f"{name}(⟨0⟩)")
        for name in ("cos", "degrees", "radians")
    ),
    # Arrays and maps, whose elements count from 0 and from 1.
    *(
        (kind, [kind, kind], f"[⟨0⟩, ⟨1⟩][{at}]", f"[⟨0⟩, ⟨1⟩][{at + 1}]")
        for kind in ("INT", "STRING", "DATE")
        for at in (0, 1)
    ),
    (
        "BOOL",
        ["INT", "INT"],
        "array_contains([⟨0⟩, 1], ⟨1⟩)",
        "CASE WHEN ⟨1⟩ IS NULL THEN ⟨0⟩ IS NULL ELSE list_contains([⟨0⟩, 1], ⟨1⟩) END",
    ),
    ("INT", ["INT", "INT"], "map('a', ⟨0⟩, 'b', ⟨1⟩)['b']", "map {'a': ⟨0⟩, 'b': ⟨1⟩}['b']"),
    (
        "INT",
        ["STRING"],
        "size(split(⟨0⟩, 'b'))",
        "CAST(ifnull(len(string_split(⟨0⟩, 'b')), 0) AS INT)",
    ),
    (
        "STRING",
        ["STRING"],
        "`join`(split(⟨0⟩, 'b'), '+')",
        "ifnull(replace(⟨0⟩, 'b', '+'), '')",
    ),
    ("STRING", ["BOOL"], "CAST(⟨0⟩ AS STRING)", "CAST(⟨0⟩ AS VARCHAR)"),
    ("STRING", ["DATE"], "CAST(⟨0⟩ AS STRING)", "CAST(⟨0⟩ AS VARCHAR)"),
    ("STRING", ["TIMESTAMP"], "CAST(⟨0⟩ AS STRING)", "time_text(⟨0⟩)"),
    ("STRING", ["TIMESTAMP"], "date_format(⟨0⟩, '%Y/%m %H')", "strftime(⟨0⟩, '%Y/%m %H')"),
    ("STRING", ["DATE"], "date_format(⟨0⟩, '%d.%m.%Y')", "strftime(⟨0⟩, '%d.%m.%Y')"),
    ("BOOL", ["STRING"], "starts_with(⟨0⟩, 'a')", "starts_with(⟨0⟩, 'a')"),
    ("BOOL", ["STRING"], "ends_with(⟨0⟩, 'b')", "ends_with(⟨0⟩, 'b')"),
    ("BOOL", ["STRING"], "(⟨0⟩ RLIKE '[a-z]+.*')", "regexp_full_match(⟨0⟩, '[a-z]+.*')"),
    ("BOOL", ["STRING"], "(⟨0⟩ LIKE '%!%%' ESCAPE '!')", "(⟨0⟩ LIKE '%!%%' ESCAPE '!')"),
    ("BOOL", ["STRING"], "(⟨0⟩ ILIKE 'A%')", "(⟨0⟩ ILIKE 'A%')"),
    ("DATE", ["TIMESTAMP"], "CAST(⟨0⟩ AS DATE)", "CAST(⟨0⟩ AS DATE)"),
    ("TIMESTAMP", ["DATE"], "CAST(⟨0⟩ AS TIMESTAMP)", "CAST(⟨0⟩ AS TIMESTAMP)"),
    ("BIGINT", ["TIMESTAMP"], "CAST(⟨0⟩ AS BIGINT)", "epoch_ms(⟨0⟩)"),
    ("TIMESTAMP", ["TIMESTAMP"], "(⟨0⟩ + 86400001)", "(⟨0⟩ + to_milliseconds(86400001))"),
    ("TIMESTAMP", ["TIMESTAMP"], "(⟨0⟩ - 999)", "(⟨0⟩ - to_milliseconds(999))"),
    *(
        ("TIMESTAMP", ["TIMESTAMP"], f"date_trunc('{unit}', ⟨0⟩)", f"date_trunc('{unit}', ⟨0⟩)")
        for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
    ),
    ("DATE", ["DATE"], "last_day(⟨0⟩)", "last_day(⟨0⟩)"),
    ("DATE", ["DATE"], "add_months(⟨0⟩, 1)", "CAST(⟨0⟩ + to_months(1) AS DATE)"),
    ("DATE", ["DATE"], "add_months(⟨0⟩, -13)", "CAST(⟨0⟩ + to_months(-13) AS DATE)"),
    ("INT", ["DATE", "DATE"], "datediff(⟨0⟩, ⟨1⟩)", "CAST(⟨0⟩ - ⟨1⟩ AS INT)"),
    ("BIGINT", ["DATE"], "unix_timestamp(⟨0⟩)", "CAST(epoch(⟨0⟩) AS BIGINT)"),
    *(
        ("INT", [kind], f"{name}(⟨0⟩)", f"CAST({name}(⟨0⟩) AS INT)")
        for kind in ("DATE", "TIMESTAMP")
        for name in ("year", "month", "day", "dayofyear", "weekofyear", "quarter")
    ),
    *(
        ("INT", ["TIMESTAMP"], f"{name}(⟨0⟩)", f"CAST({name}(⟨0⟩) AS INT)")
        for name in ("hour", "minute", "second")
    ),
    ("INT", ["DATE"], "dayofweek(⟨0⟩)", "CAST(dayofweek(⟨0⟩) + 1 AS INT)"),
    ("INT", ["TIMESTAMP"], "dayofweek(⟨0⟩)", "CAST(dayofweek(⟨0⟩) + 1 AS INT)"),
]

# Expressions that one mode writes differently or does not have.
OF_MODE: dict[str, list[Rule]] = {
    STANDARD: [
        (
            "STRING",
            ["EXACT"],
            "CAST(⟨0⟩ AS STRING)",
            "regexp_replace(CAST(⟨0⟩ AS VARCHAR), '\\.0$', '')",
        ),
        ("INT", ["STRING"], "char_length(⟨0⟩)", "CAST(length(⟨0⟩) AS INT)"),
    ],
    OPENMLDB: [
        ("STRING", ["EXACT"], "CAST(⟨0⟩ AS STRING)", "printf('%g', ⟨0⟩)"),
        ("INT", ["STRING"], "char_length(⟨0⟩)", "CAST(strlen(⟨0⟩) AS INT)"),
    ],
}


def by_result(rules: list[Rule]) -> dict[str, list[Rule]]:
    sorted_: dict[str, list[Rule]] = {}
    for rule in rules:
        sorted_.setdefault(rule[0], []).append(rule)
    return sorted_


OPERATORS = by_result(arithmetic() + comparison() + conditional())
CALLS = {mode: by_result(FUNCTIONS + OF_MODE[mode]) for mode in MODES}

TOP = (
    "coalesce(array_to_string(list_reverse_sort(list(⟨0⟩) FILTER (WHERE ⟨0⟩ IS NOT NULL)⟨w⟩)[1:2],"
    " ','), '')"
)

# Aggregates: result, arguments, texts. ⟨w⟩ is replaced by OVER.
SAME_AGGREGATES: list[Rule] = [
    ("BIGINT", [], "count(*)⟨w⟩", "count(*)⟨w⟩"),
    *(("BIGINT", [kind], "count(⟨0⟩)⟨w⟩", "count(⟨0⟩)⟨w⟩") for kind in SCALARS),
    ("FINITE", ["EXACT"], "sum(⟨0⟩)⟨w⟩", "sum(⟨0⟩)⟨w⟩"),
    *(("FINITE", [kind], "avg(⟨0⟩)⟨w⟩", "avg(⟨0⟩)⟨w⟩") for kind in (*INTEGERS, "EXACT", "EXACT")),
    *(
        (kind, [kind], f"{name}(⟨0⟩)⟨w⟩", f"{name}(⟨0⟩)⟨w⟩")
        for kind in SCALARS
        if kind != "BOOL"
        for name in ("min", "max")
    ),
    *(
        ("NEAR", [kind], f"{name}(⟨0⟩)⟨w⟩", f"{name}(⟨0⟩)⟨w⟩")
        for kind in ("SMALLINT", "EXACT")
        for name in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
    ),
    ("FINITE", ["EXACT"], "median(⟨0⟩)⟨w⟩", "median(⟨0⟩)⟨w⟩"),
    ("NEAR", ["EXACT"], "percentile(⟨0⟩, 0.25)⟨w⟩", "quantile_cont(⟨0⟩, 0.25)⟨w⟩"),
    (
        "NEAR",
        ["STRING"],
        "entropy(⟨0⟩)⟨w⟩",
        "CASE WHEN count(⟨0⟩)⟨w⟩ > 0 THEN entropy(⟨0⟩)⟨w⟩ END",
    ),
    ("STRING", ["INT"], "top(⟨0⟩, 2)⟨w⟩", TOP),
    ("STRING", ["DATE"], "top(⟨0⟩, 2)⟨w⟩", TOP),
    ("BIGINT", ["DATE"], "approx_distinct(⟨0⟩)⟨w⟩", "count(DISTINCT ⟨0⟩)⟨w⟩"),
    ("BIGINT", ["BOOL"], "count_where(*, ⟨0⟩)⟨w⟩", "count(*) FILTER (WHERE ⟨0⟩)⟨w⟩"),
    *(
        (result, [kind, "BOOL"], f"{name}_where(⟨0⟩, ⟨1⟩)⟨w⟩", duck)
        for name, result, kind, duck in (
            ("count", "BIGINT", "STRING", "count(⟨0⟩) FILTER (WHERE ⟨1⟩)⟨w⟩"),
            ("min", "INT", "INT", "min(⟨0⟩) FILTER (WHERE ⟨1⟩)⟨w⟩"),
            ("max", "EXACT", "EXACT", "max(⟨0⟩) FILTER (WHERE ⟨1⟩)⟨w⟩"),
        )
    ),
]


def aggregates(mode: str) -> list[Rule]:
    is_standard = mode == STANDARD
    passed = "⟨1⟩" if is_standard else "⟨1⟩ AND ⟨0⟩ <> 0"
    rules = [*SAME_AGGREGATES]
    for kind in INTEGERS * 2:
        result = "BIGINT" if is_standard else kind
        total = f"fit{BITS[result]}(sum(⟨0⟩)⟨w⟩)"
        rules.append((result, [kind], "sum(⟨0⟩)⟨w⟩", total))
    result = "BIGINT" if is_standard else "INT"
    some = f"sum(⟨0⟩) FILTER (WHERE {passed})⟨w⟩"
    rules += [
        (result, ["INT", "BOOL"], "sum_where(⟨0⟩, ⟨1⟩)⟨w⟩", f"fit{BITS[result]}({some})"),
        ("FINITE", ["EXACT", "BOOL"], "sum_where(⟨0⟩, ⟨1⟩)⟨w⟩", some),
        ("FINITE", ["EXACT", "BOOL"], "avg_where(⟨0⟩, ⟨1⟩)⟨w⟩", some.replace("sum", "avg")),
    ]
    zeros = {"INT": "0", "STRING": "''", "SMALLINT": "CAST(0 AS SMALLINT)"}
    for kind, zero in zeros.items():
        value = "⟨0⟩" if is_standard else f"coalesce(⟨0⟩, {zero})"
        distinct = f"count(DISTINCT {value})⟨w⟩"
        rules.append(("BIGINT", [kind], "distinct_count(⟨0⟩)⟨w⟩", distinct))
    if is_standard:
        rules.append(("BIGINT", ["DATE"], "distinct_count(⟨0⟩)⟨w⟩", "count(DISTINCT ⟨0⟩)⟨w⟩"))
        rules.append(("FINITE", ["SMALLINT"], "median(⟨0⟩)⟨w⟩", "median(⟨0⟩)⟨w⟩"))
    return rules


AGGREGATES: dict[str, list[Rule]] = {mode: aggregates(mode) for mode in MODES}

Scope = list[tuple[str, str]]
"""The columns in scope: how they are written, and their types."""


class Draw:
    """Draws expressions over the columns in scope."""

    def __init__(self, random: Random, scope: Scope, mode: str) -> None:
        self.random = random
        self.scope = scope
        self.mode = mode

    def expression(self, kind: str, depth: int) -> Node:
        """Draws an expression of a type; a constant or a column at depth 0."""
        kind = self.random.choice(SUBTYPES.get(kind, [kind]))
        if depth <= 0 or self.random.random() < 0.15:
            return self.leaf(kind)
        if kind == "BOOL" and self.random.random() < 0.08:
            return self.like(depth)
        operators, calls = OPERATORS.get(kind, []), CALLS[self.mode].get(kind, [])
        # A function is one of dozens, an operator stands there for every pair of types.
        rules = calls if calls and (not operators or self.random.random() < 0.45) else operators
        result, kinds, lockstep, duckdb = self.random.choice(rules)
        parts = tuple(self.expression(part, depth - 1) for part in kinds)
        return Node(result, lockstep, duckdb, parts)

    def leaf(self, kind: str) -> Node:
        columns = [text for text, type_ in self.scope if type_ == kind]
        chance = self.random.random()
        if columns and chance < 0.8:
            return same(kind, self.random.choice(columns))
        if chance > 0.95 and kind in NULLS:
            return NULLS[kind]
        return constant(self.random, kind, self.mode)

    def like(self, depth: int) -> Node:
        pattern = "".join(self.random.choice(["a", "b", "%", "_", "A", "字"]) for _ in range(3))
        words = self.random.choice(["LIKE", "NOT LIKE"])
        return same("BOOL", f"(⟨0⟩ {words} '{pattern}')", self.expression("STRING", depth - 1))

    def aggregate(self, depth: int, over: str = "", over_duckdb: str = "") -> Node:
        """Draws an aggregate over the columns in scope."""
        result, kinds, lockstep, duckdb = self.random.choice(AGGREGATES[self.mode])
        parts = tuple(self.expression(kind, depth) for kind in kinds)
        return Node(
            result, lockstep.replace("⟨w⟩", over), duckdb.replace("⟨w⟩", over_duckdb), parts
        )

    def some_type(self) -> str:
        return self.random.choice([*SCALARS, "NEAR", "NEAR"])


def constant(random: Random, kind: str, mode: str) -> Node:
    """Draws a literal, extreme at times."""
    if kind in INTEGERS:
        value = random.choice([0, 1, -1, 2, 3, 7, random.randint(-50, 50)])
        if random.random() < 0.05:
            value = random.choice([ENDS[kind] - 1, 1 - ENDS[kind]])
        cast = f"CAST({value} AS {kind})"
        return Node(kind, f"({value})" if kind == "INT" else cast, cast)
    if kind in ("EXACT", "FINITE", "DOUBLE"):
        return same(kind, f"({random.randint(-40, 40) / 8!r}e0)")
    if kind == "STRING":
        value = random.choice(texts(mode))
        return Node(kind, text(value, "lockstep"), text(value, "duckdb"))
    if kind == "BOOL":
        return same(kind, random.choice(["true", "false"]))
    if kind == "TIMESTAMP":
        ms = START_MS + random.randint(0, 10**8)
        return Node(kind, f"CAST({ms} AS TIMESTAMP)", f"epoch_ms({ms})")
    if kind == "DATE":
        return same(kind, f"CAST('20{random.randint(19, 21)}-0{random.randint(1, 9)}-28' AS DATE)")
    return same(kind, "CAST(1 AS DOUBLE)")


def items(nodes: list[Node], *, least: int = 1) -> Items:
    """A select list: the nodes named c0, c1, …"""
    named = [
        same(f"item {node.type}", f"⟨0⟩ AS c{index}", node) for index, node in enumerate(nodes)
    ]
    return Items(tuple(named), least=least)


__all__ = [
    "AGGREGATES",
    "CALLS",
    "OPERATORS",
    "SCALARS",
    "SQL_TYPES",
    "Draw",
    "Scope",
    "constant",
    "items",
    "macros",
]
