"""The interface of OpenMLDB's Python package, over Lockstep.

``import lockstep.compat.openmldb as openmldb`` runs programs that were written for that package:
``openmldb.dbapi``, ``openmldb.sdk``, ``openmldb.sql_magic``, and the engine
``openmldb:///database?zk=…&zkPath=…`` of SQLAlchemy. Programs that are not to be changed run with
``python -m lockstep.compat.openmldb program.py``, or after ``install()``.

Such programs name a cluster, by ZooKeeper or by a host. Which database of Lockstep that is, says
``map_cluster``, or the environment variable ``LOCKSTEP_OPENMLDB`` for every cluster: ``:memory:``,
the path of a directory, or the URL of a server. A host and port that nothing is said of is a server
of Lockstep.

    >>> import lockstep.compat.openmldb as openmldb
    >>> openmldb.map_cluster(":memory:", zk="127.0.0.1:2181", zkPath="/example")
    >>> db = openmldb.dbapi.connect(zk="127.0.0.1:2181", zkPath="/example")
    >>> cursor = db.cursor()
    >>> done = cursor.execute("CREATE DATABASE db1")
    >>> done = cursor.execute("USE db1")
    >>> done = cursor.execute("CREATE TABLE t1 (col1 bigint, col2 date, index(key=col1))")
    >>> cursor.execute("INSERT INTO t1 VALUES (?, ?)", {"col1": 1000, "col2": "2020-12-25"})
    >>> cursor.execute("SELECT * FROM t1").fetchall()
    [(1000, '2020-12-25')]

As there, a TIMESTAMP is an ``int`` of milliseconds and a DATE is text, and a naive ``datetime``
that is given is local time.
"""

from __future__ import annotations

import contextlib
import sys

from . import dbapi, sdk, sql_magic
from ._cluster import map_cluster

__all__ = ["dbapi", "install", "map_cluster", "sdk", "sql_magic"]

with contextlib.suppress(ImportError):
    from sqlalchemy.dialects import registry

    registry.register("openmldb", f"{__name__}.sqlalchemy_openmldb", "OpenmldbDialect")


def install() -> None:
    """Makes ``import openmldb`` import this package, whatever is installed.

    >>> import lockstep.compat.openmldb
    >>> lockstep.compat.openmldb.install()
    >>> import openmldb
    >>> openmldb.__name__
    'lockstep.compat.openmldb'
    """
    for name, module in list(sys.modules.items()):
        if name == __name__ or name.startswith(f"{__name__}."):
            sys.modules["openmldb" + name.removeprefix(__name__)] = module
