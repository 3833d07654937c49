"""Reflection of databases, tables, columns and indexes."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import reflection
from sqlalchemy.engine.reflection import ReflectionDefaults

from ._type import type_of

RETENTION = re.compile(r"TTL=(\([^)]*\)|\w+), TTL_TYPE=(\w+)")
"""Form of a retention in the system tables."""

TABLES = "SELECT name FROM lockstep.tables WHERE database_name = ? ORDER BY name"

VIEW = "SELECT statement FROM lockstep.views WHERE database_name = ? AND name = ?"

VIEWS = "SELECT name FROM lockstep.views WHERE database_name = ? ORDER BY name"

INDEXES = """
    SELECT name, key_columns, event_time, retention
    FROM lockstep.indexes
    WHERE database_name = ? AND table_name = ? AND declared
    ORDER BY name
"""


class Reflection:
    """Dialect methods that read the catalog. A SQLAlchemy schema is a database."""

    @reflection.cache
    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:
        """Returns the names of the databases."""
        return [name for (name,) in connection.exec_driver_sql("SHOW DATABASES")]

    @reflection.cache
    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        """Returns the names of the tables of a database."""
        if schema is None:
            return [name for (name,) in connection.exec_driver_sql("SHOW TABLES")]
        return [name for (name,) in connection.exec_driver_sql(TABLES, (schema,))]

    @reflection.cache
    def get_view_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        """Returns the names of the views of a database."""
        database = schema or connection.connection.dbapi_connection.database
        return [name for (name,) in connection.exec_driver_sql(VIEWS, (database,))]

    def get_view_definition(
        self, connection: Any, view_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        """Returns the query of a view."""
        database = schema or connection.connection.dbapi_connection.database
        found = connection.exec_driver_sql(VIEW, (database, view_name)).scalar()
        if found is None:
            raise exc.NoSuchTableError(f"{schema}.{view_name}" if schema else view_name)
        return str(found)

    def get_temp_table_names(self, connection: Any, **kw: Any) -> list[str]:
        """Returns an empty list: there are no temporary tables."""
        return []

    @reflection.cache
    def has_table(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Returns whether a table or view exists."""
        self._ensure_has_table_connection(connection)
        return table_name in self.get_table_names(
            connection, schema, **kw
        ) or table_name in self.get_view_names(connection, schema, **kw)

    def has_schema(self, connection: Any, schema_name: str, **kw: Any) -> bool:
        """Returns whether a database exists."""
        return schema_name in self.get_schema_names(connection, **kw)

    @reflection.cache
    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Returns the columns of a table, in order."""
        described = self._described(connection, table_name, schema, **kw)
        return [
            {
                "name": name,
                "type": type_of(data_type),
                "nullable": nullable == "YES",
                "default": default,
                "autoincrement": False,
                "comment": None,
            }
            for name, data_type, nullable, default, _ in described
        ]

    @reflection.cache
    def get_indexes(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Returns the declared indexes of a table with their event time and retention."""
        columns = self.get_columns(connection, table_name, schema, **kw)
        database = schema or connection.connection.dbapi_connection.database
        found = connection.exec_driver_sql(INDEXES, (database, table_name)).all()
        if not found:
            return ReflectionDefaults.indexes()
        return [
            {
                "name": name,
                "column_names": _keys(keys, [column["name"] for column in columns]),
                "unique": False,
                "dialect_options": _options(event_time, retention),
            }
            for name, keys, event_time, retention in found
        ]

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Returns no columns: primary keys are not supported."""
        self._described(connection, table_name, schema, **kw)
        return ReflectionDefaults.pk_constraint()

    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Returns an empty list: foreign keys are not supported."""
        self._described(connection, table_name, schema, **kw)
        return ReflectionDefaults.foreign_keys()

    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Returns an empty list: unique constraints are not supported."""
        self._described(connection, table_name, schema, **kw)
        return ReflectionDefaults.unique_constraints()

    def get_check_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Returns an empty list: check constraints are not supported."""
        self._described(connection, table_name, schema, **kw)
        return ReflectionDefaults.check_constraints()

    @reflection.cache
    def _described(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Returns the rows of DESC; raises ``NoSuchTableError`` if the table does not exist."""
        if not self.has_table(connection, table_name, schema, **kw):
            raise exc.NoSuchTableError(f"{schema}.{table_name}" if schema else table_name)
        quote = self.identifier_preparer.quote_identifier
        table = quote(table_name) if schema is None else f"{quote(schema)}.{quote(table_name)}"
        return connection.exec_driver_sql(f"DESC {table}").all()


def _keys(text: str, names: list[str]) -> list[str]:
    """Returns the key columns of an index; a name can contain a comma."""
    keys = text.split(", ")
    while any(key not in names for key in keys) and len(keys) > 1:
        odd = next(place for place, key in enumerate(keys) if key not in names)
        if odd + 1 == len(keys):
            break
        keys[odd : odd + 2] = [", ".join(keys[odd : odd + 2])]
    return keys


def _options(event_time: str | None, retention: str | None) -> dict[str, str]:
    options = {}
    if event_time is not None:
        options["lockstep_ts"] = event_time
    found = RETENTION.search(retention or "")
    if found is not None:
        options["lockstep_ttl"], options["lockstep_ttl_type"] = found[1], found[2]
    return options
