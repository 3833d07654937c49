"""Lockstep, a feature database: one SQL definition for training and for serving.

A feature is written once, in SQL.
Batch mode computes it over all history for a training set; request mode computes it for one
incoming row. Both return the same value, bit for bit, and ``db.verify`` proves it.

    >>> import lockstep
    >>> db = lockstep.connect()
    >>> db.append("clicks", [{"user": "ann", "price": 2.5, "ts": 1000}])
    1
    >>> db.sql("SELECT user, price FROM clicks").fetchall()
    [('ann', 2.5)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._connection import (
    Connection,
    Deployment,
    DeploymentColumn,
    Difference,
    Opened,
    OpenProgress,
    Prepared,
    Verification,
    connect,
)
from ._default import (
    append,
    default_connection,
    execute,
    prepare,
    request,
    sql,
    training_set,
    verify,
)
from ._error import Error, LockstepWarning
from ._lockstep import __version__
from ._relation import Relation

if TYPE_CHECKING:
    from ._async import (
        AsyncConnection,
        AsyncPrepared,
        AsyncRelation,
        AsyncSubscription,
        connect_async,
    )

__all__ = [
    "AsyncConnection",
    "AsyncPrepared",
    "AsyncRelation",
    "AsyncSubscription",
    "Connection",
    "Deployment",
    "DeploymentColumn",
    "Difference",
    "Error",
    "LockstepWarning",
    "OpenProgress",
    "Opened",
    "Prepared",
    "Relation",
    "Verification",
    "__version__",
    "append",
    "connect",
    "connect_async",
    "default_connection",
    "execute",
    "prepare",
    "request",
    "sql",
    "training_set",
    "verify",
]


def __getattr__(name: str) -> Any:
    # Importing asyncio takes longer than importing the rest of the package.
    if name.startswith("Async") or name == "connect_async":
        from . import _async

        return getattr(_async, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
