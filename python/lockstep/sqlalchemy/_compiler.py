"""Compiles SQLAlchemy statements and definitions to Lockstep's SQL."""

from __future__ import annotations

import re
import warnings
from typing import Any

from sqlalchemy import exc, schema, types
from sqlalchemy.sql import compiler, elements

from .._error import LockstepWarning

# fmt: off
RESERVED_WORDS = compiler.RESERVED_WORDS | {
    "between", "by", "cross", "div", "escape", "exists", "fetch", "for", "full", "group", "having",
    "ilike", "inner", "into", "join", "last", "left", "like", "limit", "mod", "natural", "offset",
    "outer", "over", "partition", "qualify", "right", "rlike", "tablesample", "then", "union",
    "when", "window", "with", "xor",
}
# fmt: on
"""Words that must be quoted with backticks to be used as names."""

TTL = re.compile(r"\s*[\w]+\s*|\s*\(\s*\w+\s*(?:,\s*\w+\s*)?\)\s*")
"""A retention: ``30d``, ``100``, ``(30d, 100)``."""


class IdentifierPreparer(compiler.IdentifierPreparer):
    """Quotes names with backticks."""

    reserved_words = RESERVED_WORDS

    def __init__(self, dialect: Any, **kw: Any) -> None:
        super().__init__(dialect, initial_quote="`", escape_quote="`", **kw)


class Compiler(compiler.SQLCompiler):
    """Compiles queries, INSERT and DELETE."""

    def render_literal_value(self, value: Any, type_: Any) -> str:
        """Compiles a literal. Backslashes in strings are escaped."""
        # As of a parameter of LIMIT or OFFSET.
        if isinstance(type_, types.NullType) and isinstance(value, int):
            type_ = types.Integer()
        return super().render_literal_value(value, type_).replace("\\", "\\\\")

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """Compiles LIMIT and OFFSET with literals, because they do not accept parameters."""
        return self._limit(select._limit_clause, **kw) + self._offset(select, **kw)

    def fetch_clause(self, select: Any, **kw: Any) -> str:
        """Compiles FETCH FIRST to LIMIT."""
        options = select._fetch_clause_options or {}
        if options.get("percent") or options.get("with_ties"):
            raise exc.CompileError("FETCH FIRST with PERCENT or WITH TIES is not supported")
        return self._limit(select._fetch_clause, **kw) + self._offset(select, **kw)

    def _limit(self, count: Any, **kw: Any) -> str:
        if count is None:
            return ""
        return "\n LIMIT " + self.process(count, **{**kw, "literal_execute": True})

    def _offset(self, select: Any, **kw: Any) -> str:
        if select._offset_clause is None:
            return ""
        return "\n OFFSET " + self.process(select._offset_clause, **{**kw, "literal_execute": True})

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        """Returns an empty string: rows are not locked, and readers never wait for writers."""
        return ""

    def visit_over(self, over: Any, **kw: Any) -> str:
        """Compiles a window; RANGE becomes ROWS_RANGE, and frame bounds are literals."""
        text = super().visit_over(over, **{**kw, "literal_execute": True})
        call, over_word, window = text.rpartition(" OVER (")
        return call + over_word + window.replace("RANGE BETWEEN", "ROWS_RANGE BETWEEN", 1)

    def visit_delete(self, delete_stmt: Any, visiting_cte: Any = None, **kw: Any) -> str:
        """Compiles DELETE; without conditions, to TRUNCATE TABLE."""
        text = super().visit_delete(delete_stmt, visiting_cte=visiting_cte, **kw)
        if not delete_stmt._where_criteria and text.startswith("DELETE FROM "):
            return "TRUNCATE TABLE " + text.removeprefix("DELETE FROM ")
        return text

    def visit_is__binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Compiles IS TRUE and IS FALSE, which Lockstep does not support, to conditions."""
        condition = self._is_boolean(binary, **kw)
        return condition or self._generate_generic_binary(binary, " IS ", **kw)

    def visit_is_not_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Compiles IS NOT TRUE and IS NOT FALSE to conditions."""
        condition = self._is_boolean(binary, **kw)
        if condition is not None:
            return f"NOT {condition}"
        return self._generate_generic_binary(binary, " IS NOT ", **kw)

    def _is_boolean(self, binary: Any, **kw: Any) -> str | None:
        operand = self.process(binary.left, **kw)
        if isinstance(binary.right, elements.True_):
            return f"ifnull({operand}, false)"
        if isinstance(binary.right, elements.False_):
            return f"ifnull(NOT {operand}, false)"
        return None

    def visit_is_distinct_from_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Compiles IS DISTINCT FROM, which Lockstep does not support, to CASE."""
        return f"(NOT {self._is_same(binary, **kw)})"

    def visit_is_not_distinct_from_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Compiles IS NOT DISTINCT FROM to CASE."""
        return self._is_same(binary, **kw)

    def _is_same(self, binary: Any, **kw: Any) -> str:
        sides = [self.process(side, **kw) for side in (binary.left, binary.right) * 2]
        left, right, again_left, again_right = sides
        return (
            f"CASE WHEN {left} IS NULL THEN {right} IS NULL "
            f"ELSE ifnull({again_left} = {again_right}, false) END"
        )

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Compiles a regular expression match to RLIKE, extended to match any substring."""
        text, pattern = self.process(binary.left, **kw), self.process(binary.right, **kw)
        anything = self.render_literal_value("[\\s\\S]*", types.String())
        return f"{text} RLIKE concat({anything}, '(', {pattern}, ')', {anything})"

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Compiles a negated regular expression match to NOT RLIKE."""
        return f"NOT ({self.visit_regexp_match_op_binary(binary, operator, **kw)})"

    def visit_empty_set_expr(self, element_types: Any, **kw: Any) -> str:
        """Compiles an empty list to NULL, which is equal to no value."""
        return ", ".join("NULL" for _ in element_types)


class DDLCompiler(compiler.DDLCompiler):
    """Compiles definitions of tables and indexes."""

    def create_table_constraints(self, table: Any, **kw: Any) -> str:
        """Compiles the indexes in ``lockstep_index``.

        Constraints are not supported: the columns of a primary key become NOT NULL, and other
        constraints cause a warning.
        """
        for constraint in table._sorted_constraints:
            if not isinstance(constraint, schema.PrimaryKeyConstraint):
                _warn_of_constraint(constraint, f"table {table.name!r}")
        given = table.dialect_options["lockstep"]["index"] or ()
        indexes = [given] if isinstance(given, str) else given
        return ", \n\t".join(f"INDEX({index})" for index in indexes)

    def visit_column_check_constraint(self, constraint: Any, **kw: Any) -> str:
        """Returns an empty string, with a warning: a CHECK of a column is not enforced."""
        column = constraint.parent
        _warn_of_constraint(constraint, f"column {column.name!r} of table {column.table.name!r}")
        return ""

    def post_create_table(self, table: Any) -> str:
        """Compiles ``lockstep_options`` to OPTIONS(…)."""
        options = table.dialect_options["lockstep"]["options"] or {}
        if not options:
            return ""
        return " OPTIONS(" + ", ".join(_option(*option) for option in options.items()) + ")"

    def visit_create_index(
        self,
        create: Any,
        include_schema: bool = False,
        include_table_schema: bool = True,
        **kw: Any,
    ) -> str:
        """Compiles CREATE INDEX, with the event time and retention of the index."""
        index = create.element
        if create.if_not_exists:
            raise exc.CompileError("CREATE INDEX IF NOT EXISTS is not supported")
        if index.unique:
            _warn(f"Lockstep does not enforce the uniqueness of index {index.name!r}")
        keys = [self.preparer.quote(column.name) for column in index.columns]
        if len(keys) != len(index.expressions):
            raise exc.CompileError(f"the keys of index {index.name!r} must be columns")
        name = self._prepared_index_name(index, include_schema=False)
        table = self.preparer.format_table(index.table, use_schema=include_table_schema)
        text = f"CREATE INDEX {name} ON {table} ({', '.join(keys)})"
        options = self._index_options(index)
        return text + (f" OPTIONS({', '.join(options)})" if options else "")

    def _index_options(self, index: Any) -> list[str]:
        given = index.dialect_options["lockstep"]
        options = []
        if given["ts"] is not None:
            name = getattr(given["ts"], "name", given["ts"])
            options.append(f"ts={self.preparer.quote(name)}")
        for name in ("ttl", "ttl_type"):
            if given[name] is not None:
                value = self.preparer.validate_sql_phrase(str(given[name]), TTL)
                options.append(f"{name}={value}")
        return options

    def visit_drop_index(self, drop: Any, **kw: Any) -> str:
        """Compiles DROP INDEX, with the table of the index."""
        index = drop.element
        if drop.if_exists:
            raise exc.CompileError("DROP INDEX IF EXISTS is not supported")
        table = self.preparer.format_table(index.table)
        return f"DROP INDEX {table}.{self._prepared_index_name(index, include_schema=False)}"

    def visit_create_schema(self, create: Any, **kw: Any) -> str:
        """Compiles CREATE DATABASE."""
        condition = "IF NOT EXISTS " if create.if_not_exists else ""
        return f"CREATE DATABASE {condition}{self.preparer.format_schema(create.element)}"

    def visit_drop_schema(self, drop: Any, **kw: Any) -> str:
        """Compiles DROP DATABASE, which fails if the database contains tables."""
        condition = "IF EXISTS " if drop.if_exists else ""
        return f"DROP DATABASE {condition}{self.preparer.format_schema(drop.element)}"

    def visit_computed_column(self, generated: Any, **kw: Any) -> str:
        """Raises ``CompileError``: computed columns are not supported."""
        raise exc.CompileError("computed columns are not supported")


def _warn(text: str) -> None:
    warnings.warn(text, LockstepWarning, stacklevel=2)


def _warn_of_constraint(constraint: Any, owner: str) -> None:
    _warn(f"Lockstep does not enforce the {type(constraint).__name__} of {owner}")


def _option(name: str, value: object) -> str:
    if not re.fullmatch(r"\w+", name):
        raise exc.CompileError(f"{name!r} is not a valid option name")
    if isinstance(value, bool):
        return f"{name}={str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"{name}={value}"
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"{name}='{text}'"
