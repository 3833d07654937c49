"""Module-level functions that use a default in-memory connection, created by the first call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._connection import Connection, Prepared, Verification, connect

if TYPE_CHECKING:
    from ._relation import Relation

_lock = threading.Lock()
_connection: Connection | None = None


def default_connection() -> Connection:
    """Returns the connection that ``lockstep.sql`` and the other module-level functions use.

    Its database is in memory and exists as long as the process. The first call on any thread
    creates it.

    >>> import lockstep
    >>> lockstep.default_connection() is lockstep.default_connection()
    True
    """
    global _connection
    with _lock:
        if _connection is None:
            _connection = connect()
        return _connection


def sql(query: str, parameters: Sequence[Any] = ()) -> Relation:
    """Returns a lazy relation for a query on the default connection; see ``Connection.sql``.

    - ``query``: query, which may use data frames of the caller as tables.
    - ``parameters``: value for each ``?``.

    Returns a ``Relation``. Raises ``Error`` as ``Connection.sql`` does.

    >>> import lockstep
    >>> lockstep.sql("SELECT 1 AS one").fetchall()
    [(1,)]
    """
    return default_connection().sql(query, parameters)


def execute(sql: str, parameters: Sequence[Any] = ()) -> Relation:
    """Runs a script on the default connection; see ``Connection.execute``.

    - ``sql``: statements, separated by semicolons.
    - ``parameters``: value for each ``?``; requires a single statement.

    Returns the ``Relation`` of the last statement. Raises ``Error`` as ``Connection.execute`` does.

    >>> import lockstep
    >>> lockstep.execute("CREATE TABLE IF NOT EXISTS visits (user STRING, ts TIMESTAMP)").message
    'CREATE TABLE'
    """
    return default_connection().execute(sql, parameters)


def append(table: Any, data: Any = None, **options: Any) -> int:
    """Appends rows to a table of the default connection; see ``Connection.append``.

    - ``table``: name of the table, or a mapping from table names to rows.
    - ``data``: data frame, Arrow table, rows, or path of a file.
    - ``options``: ``create``, ``replace``, ``durability`` and ``storage_mode``.

    Returns the number of rows. Raises ``Error`` as ``Connection.append`` does.

    >>> import lockstep
    >>> lockstep.append("payments", [{"card": "c1", "amount": 9.5}], replace=True)
    1
    """
    return default_connection().append(table, data, **options)


def request(target: str, rows: Any) -> Any:
    """Computes the results for request rows; see ``Connection.request``.

    Uses the default connection.

    - ``target``: name of a deployment, or a query.
    - ``rows``: row, list of rows, data frame or Arrow table.

    Returns a dict, a list of dicts, or an object of the same library. Raises ``Error`` as
    ``Connection.request`` does.

    >>> import lockstep
    >>> _ = lockstep.append("refunds", [{"card": "c1", "amount": 9.5}], replace=True)
    >>> lockstep.request("SELECT amount * 2 AS twice FROM refunds", {"amount": 4.0})
    {'twice': 8.0}
    """
    return default_connection().request(target, rows)


def prepare(target: str) -> Prepared:
    """Compiles a request on the default connection; see ``Connection.prepare``.

    - ``target``: name of a deployment, or a query.

    Returns a ``Prepared``, which is called with a request row. Raises ``Error`` as
    ``Connection.prepare`` does.

    >>> import lockstep
    >>> _ = lockstep.append("sales", [{"shop": "s1", "amount": 9.5}], replace=True)
    >>> answer = lockstep.prepare("SELECT amount * 2 AS twice FROM sales")
    >>> answer({"amount": 4.0})
    {'twice': 8.0}
    """
    return default_connection().prepare(target)


def training_set(main_table: str | None, deployment: str, *, as_known: bool = False) -> Relation:
    """Returns a training set on the default connection; see ``Connection.training_set``.

    - ``main_table``: table whose rows are the request rows; ``None`` for the request table of the
      deployment.
    - ``deployment``: name of the deployment.
    - ``as_known``: whether each row sees only the rows that had arrived before it.

    Returns a ``Relation``. Raises ``Error`` as ``Connection.training_set`` does.

    >>> import lockstep
    >>> _ = lockstep.append("trips", [{"driver": "d1", "fare": 9.5}], replace=True)
    >>> deployed = lockstep.execute("DEPLOY OR REPLACE trip AS SELECT fare * 2 AS f FROM trips")
    >>> lockstep.training_set(None, "trip", as_known=True).fetchall()
    [(19.0,)]
    """
    return default_connection().training_set(main_table, deployment, as_known=as_known)


def verify(deployment: str, **options: Any) -> Verification:
    """Verifies a deployment on the default connection; see ``Connection.verify``.

    - ``deployment``: name of the deployment.
    - ``options``: ``sample`` and ``progress``.

    Returns a ``Verification``. Raises ``Error`` as ``Connection.verify`` does.

    >>> import lockstep
    >>> _ = lockstep.append("rides", [{"driver": "d1", "fare": 9.5}])
    >>> deployed = lockstep.execute("DEPLOY fares AS SELECT driver, fare FROM rides")
    >>> lockstep.verify("fares").ok
    True
    """
    return default_connection().verify(deployment, **options)
