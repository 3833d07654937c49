"""Which database of Lockstep a cluster of OpenMLDB is."""

from __future__ import annotations

import os
import threading
from urllib.parse import quote, urlsplit, urlunsplit

from ... import _connection
from ...dbapi._error import OperationalError, conversion
from ...dbapi._shared import SharedDatabase, open_shared

TARGET_VARIABLE = "LOCKSTEP_OPENMLDB"
"""The environment variable with the target of every cluster that was not mapped."""

Address = tuple[str, str]
"""The address of a cluster: of ZooKeeper and the path there, or host and port."""

_targets: dict[Address, str] = {}
_in_memory: dict[Address, SharedDatabase] = {}
_lock = threading.Lock()


def map_cluster(
    target: str | os.PathLike[str],
    *,
    zk: str | None = None,
    zkPath: str | None = None,
    host: str | None = None,
    port: int | str | None = None,
) -> None:
    """Says which database of Lockstep a cluster is, for connections that are opened later.

    - ``target``: ``":memory:"``, the path of a directory, or the URL of a server. A cluster in
      memory exists as long as the process, and all its connections see the same tables.
    - ``zk``, ``zkPath``: the address of ZooKeeper and the path there; or
    - ``host``, ``port``: the host and port that name the cluster.

    Raises ``OperationalError`` where neither pair is given.

    >>> import lockstep.compat.openmldb as openmldb
    >>> openmldb.map_cluster(":memory:", host="cluster", port=9080)
    >>> openmldb.dbapi.connect(host="cluster", port=9080)
    <lockstep.dbapi connection, in memory>
    """
    with _lock:
        _targets[address_of(zk, zkPath, host, port)] = os.fsdecode(target)


def address_of(
    zk: str | None, zkPath: str | None, host: str | None, port: int | str | None
) -> Address:
    """Returns the address of a cluster; raises where there is none."""
    if zk is not None and zkPath is not None:
        return (zk, zkPath)
    if host is not None and port is not None:
        return (host, str(port))
    raise OperationalError(
        "no cluster is named",
        code="08001",
        hint="Give zk and zkPath, or host and port.",
    )


def open_cluster(
    zk: str | None,
    zkPath: str | None,
    host: str | None,
    port: int | str | None,
    user: str | None,
    password: str | None,
) -> tuple[_connection.Connection, SharedDatabase | None]:
    """Opens the database of a cluster; it is shared unless it is that of a server."""
    address = address_of(zk, zkPath, host, port)
    with _lock:
        target = _targets.get(address) or os.environ.get(TARGET_VARIABLE)
    if target is None and zk is not None and zkPath is not None:
        raise OperationalError(
            f"no database is known for the cluster `{zkPath}` at `{zk}`",
            code="08001",
            hint=f"Set {TARGET_VARIABLE} to `:memory:`, a directory or the URL of a server.",
        )
    target = target or f"lockstep://{host}:{port}"
    with conversion():
        if "://" in target:
            return _connection.connect(_with_login(target, user, password)), None
        shared = _memory(address) if target == ":memory:" else open_shared(target, False, None)
    return shared.database, shared


def _memory(address: Address) -> SharedDatabase:
    """Returns the database in memory of a cluster, and counts one more connection to it."""
    with _lock:
        shared = _in_memory.get(address)
        if shared is None:
            # The first count is never given back: the database stays as long as the process.
            shared = _in_memory[address] = SharedDatabase(_connection.connect(), None, False)
        shared.connections += 1
        return shared


def _with_login(target: str, user: str | None, password: str | None) -> str:
    """Returns the URL with the user and password, unless it has them."""
    parts = urlsplit(target)
    if user is None or "@" in parts.netloc:
        return target
    login = quote(user, safe="")
    if password:
        login += ":" + quote(password, safe="")
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
