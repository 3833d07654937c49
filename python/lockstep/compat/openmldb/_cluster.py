"""Maps OpenMLDB clusters to Lockstep databases."""

from __future__ import annotations

import os
import threading
from urllib.parse import quote, urlsplit, urlunsplit

from ... import _connection
from ...dbapi._error import OperationalError, conversion
from ...dbapi._shared import SharedDatabase, open_shared

TARGET_VARIABLE = "LOCKSTEP_OPENMLDB"
"""Environment variable with the target of all clusters that are not mapped."""

Address = tuple[str, str]
"""Address of a cluster: ZooKeeper address and path, or host and port."""

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
    """Maps an OpenMLDB cluster to a Lockstep database, for connections opened later.

    - ``target``: ``":memory:"``, the path of a database directory, or the URL of a server. An
      in-memory database exists as long as the process; all connections to the cluster share it.
    - ``zk``, ``zkPath``: ZooKeeper address and path of the cluster; or
    - ``host``, ``port``: host and port of the cluster.

    Raises ``OperationalError`` if neither pair is specified.

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
    """Returns the address of a cluster; raises ``OperationalError`` if it is incomplete."""
    if zk is not None and zkPath is not None:
        return (zk, zkPath)
    if host is not None and port is not None:
        return (host, str(port))
    raise OperationalError(
        "the address of the cluster is missing",
        code="08001",
        hint="Specify zk and zkPath, or host and port.",
    )


def open_cluster(
    zk: str | None,
    zkPath: str | None,
    host: str | None,
    port: int | str | None,
    user: str | None,
    password: str | None,
) -> tuple[_connection.Connection, SharedDatabase | None]:
    """Opens the database of a cluster, which connections share unless it is on a server."""
    address = address_of(zk, zkPath, host, port)
    with _lock:
        target = _targets.get(address) or os.environ.get(TARGET_VARIABLE)
    if target is None and zk is not None and zkPath is not None:
        raise OperationalError(
            f"cluster `{zkPath}` at `{zk}` is not mapped to a database",
            code="08001",
            hint=f"Set {TARGET_VARIABLE} to `:memory:`, a directory path or a server URL.",
        )
    target = target or f"lockstep://{host}:{port}"
    with conversion():
        if "://" in target:
            return _connection.connect(_with_login(target, user, password)), None
        shared = _memory(address) if target == ":memory:" else open_shared(target, False, None)
    return shared.database, shared


def _memory(address: Address) -> SharedDatabase:
    """Returns the in-memory database of a cluster and counts the new connection."""
    with _lock:
        shared = _in_memory.get(address)
        if shared is None:
            # The initial count of 1 is never released: the database exists as long as the process.
            shared = _in_memory[address] = SharedDatabase(_connection.connect(), None, False)
        shared.connections += 1
        return shared


def _with_login(target: str, user: str | None, password: str | None) -> str:
    """Returns the URL with user and password, unless it already contains a login."""
    parts = urlsplit(target)
    if user is None or "@" in parts.netloc:
        return target
    login = quote(user, safe="")
    if password:
        login += ":" + quote(password, safe="")
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
