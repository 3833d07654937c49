"""What SQLAlchemy's tests may expect of Lockstep, with a reason for each thing that is missing.

The plugin of the tests reads `Requirements`; test_suite.py lists the tests that are left out though
no requirement names what they need.
"""

from __future__ import annotations

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

CONSTRAINTS = "tables have no constraints but NOT NULL"
TRANSACTIONS = "there are no transactions: each statement takes effect at once"
SUBQUERIES = "there are no sub-queries in expressions"
GENERATED = "no value of a row is generated: no sequence, identity or lastrowid"

MISSING = {
    "on_update_cascade": CONSTRAINTS,
    "self_referential_foreign_keys": CONSTRAINTS,
    "recursive_fk_cascade": CONSTRAINTS,
    "named_constraints": CONSTRAINTS,
    "implicitly_named_constraints": CONSTRAINTS,
    "primary_key_constraint_reflection": CONSTRAINTS,
    "foreign_key_constraint_reflection": CONSTRAINTS,
    "unique_constraint_reflection": CONSTRAINTS,
    "duplicate_key_raises_integrity_error": CONSTRAINTS,
    "autoincrement_insert": GENERATED,
    "autoincrement_without_sequence": GENERATED,
    "implements_get_lastrowid": GENERATED,
    "empty_inserts": "INSERT names a value for at least one column",
    "insert_from_select": "INSERT has no SELECT as its source",
    "subqueries": SUBQUERIES,
    "update_where_target_in_subquery": SUBQUERIES,
    "sql_expression_limit_offset": "LIMIT and OFFSET are numbers, not expressions",
    "temp_table_reflection": "there are no temporary tables",
    "temporary_tables": "there are no temporary tables",
    "indexes_with_ascdesc": "the keys of an index have no order",
    "reflect_indexes_with_ascdesc": "the keys of an index have no order",
    "binary_comparisons": "there is no type for bytes",
    "binary_literals": "there is no type for bytes",
    "time": "there is no type for a time of day",
    "time_microseconds": "there is no type for a time of day",
    "time_implicit_bound": "there is no type for a time of day",
    "datetime_microseconds": "a TIMESTAMP has milliseconds",
    "date_coerces_from_datetime": "a DATE does not take a datetime, whose time would be lost",
    "precision_numerics_enotation_large": "there are no decimals; they are stored as DOUBLE",
    "window_functions": "a window has PARTITION BY, which the tests' have not",
    "independent_connections": "an engine in memory has one connection",
    "independent_readonly_connections": "an engine in memory has one connection",
}
"""What is missing, and why."""

PRESENT = [
    "ctes",
    "datetime_literals",
    "fetch_first",
    "fetch_no_order_by",
    "get_isolation_level_values",
    "isolation_level",
    "mod_operator_as_percent_sign",
    "order_by_label_with_expression",
    "regexp_match",
    "schema_create_delete",
    "server_defaults",
    "supports_is_distinct_from",
    "table_ddl_if_exists",
    "unicode_ddl",
]
"""What SQLAlchemy's tests do not expect of a database unless told."""


class Requirements(SuiteRequirements):
    """The requirements: SQLAlchemy's, but for the two tables above."""


def _missing(reason: str) -> property:
    skip = exclusions.skip_if(exclusions.BooleanPredicate(True, reason))
    return property(lambda self: skip)


for _name, _reason in MISSING.items():
    assert isinstance(getattr(SuiteRequirements, _name), property), _name
    setattr(Requirements, _name, _missing(_reason))
for _name in PRESENT:
    assert isinstance(getattr(SuiteRequirements, _name), property), _name
    setattr(Requirements, _name, property(lambda self: exclusions.open()))
