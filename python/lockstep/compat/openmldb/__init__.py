"""Implements the interface of OpenMLDB's Python package with Lockstep.

``import lockstep.compat.openmldb as openmldb`` runs programs written for OpenMLDB's package:
``openmldb.dbapi``, ``openmldb.sdk``, ``openmldb.sql_magic`` and the SQLAlchemy engine
``openmldb:///database?zk=…&zkPath=…``. To run a program without changing it, use
``python -m lockstep.compat.openmldb program.py``, or call ``install()`` first.

OpenMLDB programs connect to a cluster, by ZooKeeper address or by host and port. ``map_cluster``
maps a cluster to a Lockstep database: ``:memory:``, a directory path or a server URL. The
environment variable ``LOCKSTEP_OPENMLDB`` maps all other clusters. Without a mapping, a host and
port are the address of a Lockstep server.

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

As in OpenMLDB's package, a TIMESTAMP value is an ``int`` of milliseconds, a DATE value is a string,
and a naive ``datetime`` argument is in local time.
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
    """Makes ``import openmldb`` import this package, even if OpenMLDB's package is installed.

    >>> import lockstep.compat.openmldb
    >>> lockstep.compat.openmldb.install()
    >>> import openmldb
    >>> openmldb.__name__
    'lockstep.compat.openmldb'
    """
    for name, module in list(sys.modules.items()):
        if name == __name__ or name.startswith(f"{__name__}."):
            sys.modules["openmldb" + name.removeprefix(__name__)] = module
