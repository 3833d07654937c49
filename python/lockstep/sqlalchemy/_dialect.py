"""The dialect: how SQLAlchemy connects to Lockstep, and the features that it can use."""

from __future__ import annotations

import os
import warnings
from typing import Any

import sqlalchemy
from sqlalchemy import exc, pool
from sqlalchemy.engine import default, url

from .. import dbapi
from .._error import LockstepWarning
from . import _compiler, _reflection, _type

ROLLED_BACK = (
    "ROLLBACK, or a transaction that ended without COMMIT: transactions are not supported, and the "
    "changes remain in effect"
)


class LockstepDialect(_reflection.Reflection, default.DefaultDialect):
    """Connects SQLAlchemy to ``lockstep://``: an in-memory database or a server.

    An engine on an in-memory database has a single connection. ``connection.execute(table.insert(),
    rows)`` inserts all rows in one step.

    >>> import sqlalchemy as sa
    >>> with sa.create_engine("lockstep://").connect() as connection:
    ...     connection.execute(sa.text("SELECT 1 + 1 AS two")).all()
    [(2,)]
    """

    name = "lockstep"
    driver = "lockstep"
    statement_compiler = _compiler.Compiler
    ddl_compiler = _compiler.DDLCompiler
    type_compiler_cls = _type.TypeCompiler
    preparer = _compiler.IdentifierPreparer
    colspecs = _type.COLSPECS
    default_paramstyle = "qmark"

    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = False
    supports_multivalues_insert = True
    supports_default_values = False
    supports_default_metavalue = False
    supports_empty_insert = False
    supports_sane_rowcount = True
    supports_alter = False
    supports_comments = False
    supports_sequences = False
    supports_views = False
    supports_is_distinct_from = True
    supports_schemas = True
    postfetch_lastrowid = False
    div_is_floordiv = False
    tuple_in_values = False
    use_insertmanyvalues = False
    insert_returning = False
    max_identifier_length = 255

    construct_arguments = [  # noqa: RUF012 (as in SQLAlchemy)
        (sqlalchemy.Index, {"ts": None, "ttl": None, "ttl_type": None}),
        (sqlalchemy.Table, {"index": None, "options": None}),
    ]

    @classmethod
    def import_dbapi(cls) -> Any:
        """Returns the DB-API module."""
        return dbapi

    @classmethod
    def get_pool_class(cls, url: url.URL) -> type[pool.Pool]:
        """Returns the pool: one connection to an in-memory database, several to a server."""
        return pool.QueuePool if url.host else pool.StaticPool

    def create_connect_args(self, url: url.URL) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments of ``dbapi.connect`` for a URL."""
        options = _options(url)
        if url.host is None:
            if url.database:
                raise exc.ArgumentError(
                    f"`{url}` contains no host; for a directory, use "
                    f"lockstep+embedded:///{url.database}"
                )
            return [None], options
        login = {"user": url.username, "password": url.password, "port": url.port}
        options.update({name: value for name, value in login.items() if value is not None})
        if url.database:
            options["database"] = url.database
        return [], {"host": url.host, **options}

    def initialize(self, connection: Any) -> None:
        """Reads the properties of the database that an engine caches."""
        super().initialize(connection)
        self.default_schema_name = self._get_default_schema_name(connection)

    def _get_default_schema_name(self, connection: Any) -> str:
        return connection.connection.dbapi_connection.database

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        from .. import __version__

        return tuple(int(part) for part in __version__.split(".") if part.isdigit())

    def do_begin(self, dbapi_connection: Any) -> None:
        """Does nothing: transactions are not supported."""

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Warns if data was changed since the last commit, because the change remains."""
        try:
            dbapi_connection.rollback()
        except dbapi.NotSupportedError:
            warnings.warn(ROLLED_BACK, LockstepWarning, stacklevel=2)
            dbapi_connection.commit()

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        """Returns ``AUTOCOMMIT``, the only level."""
        return "AUTOCOMMIT"

    def get_isolation_level_values(self, dbapi_conn: Any) -> Any:
        """Returns ``AUTOCOMMIT``, the only level."""
        return ("AUTOCOMMIT",)

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        """Returns ``AUTOCOMMIT``, the only level."""
        return "AUTOCOMMIT"

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Does nothing: ``AUTOCOMMIT`` is the only level."""

    def reset_isolation_level(self, dbapi_conn: Any) -> None:
        """Does nothing: ``AUTOCOMMIT`` is the only level."""

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:
        """Returns whether an error means that the connection can no longer be used."""
        return isinstance(e, dbapi.Error) and (e.code[:2] == "08" or e.code == "57P01")


class EmbeddedDialect(LockstepDialect):
    """Connects SQLAlchemy to ``lockstep+embedded:///path``: a directory opened by this process.

    An engine has a single connection. Engines on the same directory share the open database.

    >>> import sqlalchemy as sa
    >>> engine = sa.create_engine("lockstep+embedded:///features.lockstep")
    >>> with engine.connect() as connection:
    ...     connection.execute(sa.text("SELECT 1 + 1 AS two")).all()
    [(2,)]
    >>> engine.dispose()
    """

    driver = "embedded"
    supports_statement_cache = True

    @classmethod
    def get_pool_class(cls, url: url.URL) -> type[pool.Pool]:
        """Returns a pool of one connection, which threads share."""
        return pool.StaticPool

    def create_connect_args(self, url: url.URL) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments of ``dbapi.connect`` for a URL."""
        if url.host is not None:
            raise exc.ArgumentError(
                f"`{url}` contains a host; for a directory, use three slashes: lockstep+embedded:///path"
            )
        # Absolute: the process may change its working directory before the first connection.
        path = os.path.abspath(url.database) if url.database else None
        return [path], _options(url)


def _options(address: url.URL) -> dict[str, Any]:
    """Returns the parameters of a URL; converts ``true`` and ``false`` to ``bool``."""
    words = {"true": True, "false": False}
    return {
        name: words.get(value, value) if isinstance(value, str) else value
        for name, value in address.query.items()
    }
