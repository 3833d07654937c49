"""SQLAlchemy 2 dialect: tables, queries, reflection, pandas' ``read_sql`` and ``to_sql``.

    >>> import datetime, sqlalchemy as sa
    >>> engine = sa.create_engine("lockstep://")
    >>> clicks = sa.Table(
    ...     "clicks",
    ...     sa.MetaData(),
    ...     sa.Column("user", sa.String),
    ...     sa.Column("price", sa.Float),
    ...     sa.Column("ts", sa.DateTime),
    ...     sa.Index("by_user", "user", lockstep_ts="ts", lockstep_ttl="9000d"),
    ... )
    >>> clicks.metadata.create_all(engine)
    >>> with engine.begin() as connection:
    ...     click = {"user": "ann", "price": 2.5, "ts": datetime.datetime(2020, 1, 1)}
    ...     _ = connection.execute(clicks.insert(), [click])
    ...     connection.execute(sa.select(clicks.c.price)).all()
    [(2.5,)]

| URL | database |
|---|---|
| ``lockstep://`` | a new in-memory database |
| ``lockstep+embedded:///path`` | a directory, relative path |
| ``lockstep+embedded:////path`` | a directory, absolute path |
| ``lockstep://user:password@host:port/database`` | a database on a server |

The URL of a directory accepts the parameters ``database``, ``read_only`` and ``max_memory`` after
``?``. Transactions and UPDATE are not supported: see the guide.
"""

from __future__ import annotations

from sqlalchemy.dialects import registry

from ._dialect import EmbeddedDialect, LockstepDialect
from ._join import LastJoin, last_join

__all__ = ["EmbeddedDialect", "LastJoin", "LockstepDialect", "last_join"]

registry.register("lockstep", __name__, "LockstepDialect")
registry.register("lockstep.lockstep", __name__, "LockstepDialect")
registry.register("lockstep.embedded", __name__, "EmbeddedDialect")
