"""SQLAlchemy construct for LAST JOIN."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import coercions, roles
from sqlalchemy.sql.selectable import Join


class LastJoin(Join):
    """Joins each left row with the newest matching right row, or with NULLs if none matches.

    Created by ``last_join``.

    >>> import sqlalchemy as sa
    >>> from lockstep.sqlalchemy import LastJoin
    >>> orders = sa.table("orders", sa.column("name"))
    >>> users = sa.table("users", sa.column("name"))
    >>> print(*str(LastJoin(orders, users, orders.c.name == users.c.name)).split())
    orders LAST JOIN users ON orders.name = users.name
    """

    __visit_name__ = "lockstep_last_join"
    inherit_cache = False
    """``False``, because the cache key of a statement does not include the order."""

    def __init__(self, left: Any, right: Any, onclause: Any = None, order_by: Any = None) -> None:
        super().__init__(left, right, onclause, isouter=True)
        self.order_by = None
        if order_by is not None:
            self.order_by = coercions.expect(roles.ByOfRole, order_by)


def last_join(left: Any, right: Any, onclause: Any = None, *, order_by: Any = None) -> LastJoin:
    """Returns a LAST JOIN of two tables, for ``select(…).select_from``.

    - ``left``, ``right``: tables.
    - ``onclause``: condition under which rows match.
    - ``order_by``: column of the right table that determines the newest row; the default is the
      order of arrival.

    Returns a ``LastJoin``.

    >>> import sqlalchemy as sa
    >>> from lockstep.sqlalchemy import last_join
    >>> orders = sa.table("orders", sa.column("name"), sa.column("total"))
    >>> users = sa.table("users", sa.column("name"), sa.column("city"), sa.column("ts"))
    >>> joined = last_join(orders, users, orders.c.name == users.c.name, order_by=users.c.ts)
    >>> print(*str(joined).split())
    orders LAST JOIN users ORDER BY users.ts ON orders.name = users.name
    """
    return LastJoin(left, right, onclause, order_by)


@compiles(LastJoin)
def _compile(join: LastJoin, compiler: Any, from_linter: Any = None, **kw: Any) -> str:
    if from_linter is not None:
        for source in join._from_objects:
            from_linter.edges.add((join.left, source))
    kw["asfrom"] = True
    left = join.left._compiler_dispatch(compiler, **kw)
    right = join.right._compiler_dispatch(compiler, **kw)
    kw.pop("asfrom")
    order = ""
    if join.order_by is not None:
        order = " ORDER BY " + join.order_by._compiler_dispatch(compiler, **kw)
    condition = join.onclause._compiler_dispatch(compiler, **kw)
    return f"{left} LAST JOIN {right}{order} ON {condition}"
