"""SQLAlchemy dialect for ``openmldb:///database?zk=…&zkPath=…``, implemented with Lockstep.

It is Lockstep's dialect with the parameters of ``openmldb.dbapi``: a dict passed with a query is a
request row.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import pool
from sqlalchemy.engine import url

from ...sqlalchemy import LockstepDialect
from . import dbapi


class OpenmldbDialect(LockstepDialect):
    """SQLAlchemy dialect for ``openmldb://``."""

    name = "openmldb"
    driver = "openmldb"
    supports_statement_cache = True

    construct_arguments = LockstepDialect.construct_arguments

    @classmethod
    def import_dbapi(cls) -> Any:
        """Returns the DB-API module."""
        return dbapi

    @classmethod
    def get_pool_class(cls, url: url.URL) -> type[pool.Pool]:
        """Returns a pool of one connection, so that USE applies to the whole engine."""
        return pool.StaticPool

    def create_connect_args(self, url: url.URL) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments of ``openmldb.dbapi.connect`` for a URL."""
        options: dict[str, Any] = dict(url.query)
        for name, value in (("host", url.host), ("port", url.port), ("user", url.username)):
            if value is not None:
                options.setdefault(name, value)
        if url.password is not None:
            options.setdefault("password", url.password)
        return [url.database or None], options
