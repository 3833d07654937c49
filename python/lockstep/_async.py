"""Connections whose calls are awaited, for asyncio programs.

Each connection has a thread that runs its calls sequentially, in the order in which they were made,
so that the event loop is never blocked. Cancelling the task that awaits a call removes the call
from the queue, or interrupts it: the engine ends the call within a fraction of a second, and the
task is cancelled when the call has ended. Calls of different connections run concurrently.

Cost: passing a call to the thread and back takes tens of microseconds, longer than computing the
result of a request row. To pay this cost once, pass many request rows in one call.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ._arrow import require
from ._connection import (
    Connection,
    Deployment,
    Opened,
    OpenProgress,
    Prepared,
    Verification,
    connect,
)
from ._error import Error
from ._frames import finder
from ._relation import BATCH_ROWS, ROWS_SHOWN, Relation
from ._subscription import AsyncSubscription
from ._worker import Worker

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Result = TypeVar("Result")

ROWS_PER_FETCH = 1024
"""Number of rows that ``async for`` fetches from the thread at a time."""


class Opening:
    """Opens a database when it is awaited or entered with ``async with``.

    Created by ``connect_async``.

    >>> import asyncio, lockstep
    >>> async def main():
    ...     db = await lockstep.connect_async()
    ...     print(db)
    ...     await db.close()
    >>> asyncio.run(main())
    <lockstep async connection, in memory>
    """

    def __init__(self, open_connection: Callable[[], Connection]) -> None:
        self._open = open_connection
        self._connection: AsyncConnection | None = None

    def __await__(self) -> Generator[Any, None, AsyncConnection]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncConnection:
        self._connection = await self._opened()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _opened(self) -> AsyncConnection:
        worker = Worker()
        opened: list[Connection] = []
        try:
            await worker.run(lambda: opened.append(self._open()))
        except BaseException:
            # The opening may have finished before it was cancelled.
            if opened:
                opened[0].close()
            worker.end()
            raise
        return AsyncConnection(opened[0], worker)


def connect_async(
    target: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    max_memory: int | str | None = None,
    progress: Callable[[OpenProgress], object] | None = None,
    **options: Any,
) -> Opening:
    """Opens a database with an asyncio connection.

    The parameters are as in ``connect``; ``options`` are ``tls`` and ``ca``. ``progress`` is called
    on another thread.

    Returns an object that returns an ``AsyncConnection`` when it is awaited or entered with ``async
    with``; ``async with`` also closes the connection. Raises ``Error`` as ``connect`` does, when
    the object is awaited or entered.

    Cost: one thread per connection.

    >>> import asyncio, lockstep
    >>> async def main():
    ...     async with lockstep.connect_async() as db:
    ...         await db.append("clicks", [{"user": "ann", "price": 2.5}])
    ...         async for row in db.sql("SELECT user, price FROM clicks"):
    ...             print(row)
    >>> asyncio.run(main())
    ('ann', 2.5)
    """

    def open_connection() -> Connection:
        return connect(
            target, read_only=read_only, max_memory=max_memory, progress=progress, **options
        )

    return Opening(open_connection)


class AsyncConnection:
    """Runs statements and requests in a session, as ``Connection`` does; its calls are awaited.

    Created by ``connect_async``. Calls run sequentially, in the order in which they were made; open
    several connections to run calls concurrently. Cancelling a task cancels its call.

    Cost: passing a call to the thread and back takes tens of microseconds, longer than computing
    the result of a request row. To pay this cost once, pass many request rows in one call.

    >>> import asyncio, lockstep
    >>> async def main():
    ...     async with lockstep.connect_async() as db:
    ...         return await db.sql("SELECT 1 + 1 AS two").fetchall()
    >>> asyncio.run(main())
    [(2,)]
    """

    def __init__(self, blocking: Connection, worker: Worker) -> None:
        self._blocking = blocking
        self._worker = worker
        self._subscriptions: weakref.WeakSet[AsyncSubscription] = weakref.WeakSet()

    @property
    def blocking(self) -> Connection:
        """Underlying connection, whose calls block; for other threads and for short calls.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return db.blocking.sql("SELECT 1 + 1 AS two").fetchall()
        >>> asyncio.run(main())
        [(2,)]
        """
        return self._blocking

    @property
    def opened(self) -> Opened | None:
        """Result of opening the directory; ``None`` for a database in memory or on a server.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async("features.lockstep") as db:
        ...         return db.opened.cut_bytes
        >>> asyncio.run(main())
        0
        """
        return self._blocking.opened

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> AsyncRelation:
        """Runs a script of one or more statements and returns the result of the last statement.

        - ``sql``: statements, separated by semicolons.
        - ``parameters``: value for each ``?``; requires a single statement.

        Returns an ``AsyncRelation`` that has run. Raises ``Error`` as ``Connection.execute`` does.
        If the task is cancelled, the statement is cancelled, and a write takes effect completely or
        not at all.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return (await db.execute("CREATE TABLE clicks (user STRING)")).message
        >>> asyncio.run(main())
        'CREATE TABLE'
        """
        relation = await self._worker.run(lambda: self._blocking.execute(sql, parameters))
        return AsyncRelation(lambda: relation, self._worker, relation)

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> AsyncRelation:
        """Returns a lazy relation for one query.

        - ``query``: the query. As in ``Connection.sql``, a name that is not a table can be a
          variable of the caller.
        - ``parameters``: value for each ``?``.

        The query is neither checked nor run until the relation is awaited, fetched from or iterated
        over; an invalid name or type raises ``Error`` only then. ``await db.sql(…)`` checks the
        query and returns the relation, whose ``columns`` and ``types`` are then known.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         relation = await db.sql("SELECT 1 AS one")
        ...         return relation.columns, await relation.fetchall()
        >>> asyncio.run(main())
        (['one'], [(1,)])
        """
        find = finder()
        return AsyncRelation(lambda: self._blocking._sql(query, parameters, find), self._worker)

    async def append(
        self,
        table: str | Mapping[str, Any],
        data: Any = None,
        *,
        create: bool = True,
        replace: bool = False,
        durability: Literal["disk", "os", "memory"] | None = None,
        storage_mode: Literal["memory", "disk"] | None = None,
    ) -> int:
        """Appends rows to a table, all or none, and returns the number of rows.

        The parameters and errors are as in ``Connection.append``. Do not modify the rows before the
        call returns.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.append("clicks", [{"user": "ann"}, {"user": "bob"}])
        >>> asyncio.run(main())
        2
        """
        return await self._worker.run(
            lambda: self._blocking.append(
                table,
                data,
                create=create,
                replace=replace,
                durability=durability,
                storage_mode=storage_mode,
            )
        )

    async def request(self, target: str, rows: Any) -> Any:
        """Computes the results for request rows in request mode.

        - ``target``: name of a deployment, or a query.
        - ``rows``: row, list of rows, data frame or Arrow table.

        Returns a dict, a list of dicts, or an object of the same library, and raises ``Error``, as
        ``Connection.request`` does.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
        ...         await db.execute("DEPLOY twice AS SELECT price * 2 AS p FROM clicks")
        ...         return await db.request("twice", [{"price": 2.5}, {"price": 4.0}])
        >>> asyncio.run(main())
        [{'p': 5.0}, {'p': 8.0}]
        """
        return await self._worker.run(lambda: self._blocking.request(target, rows))

    async def deployment(self, name: str) -> Deployment:
        """Returns the description of a deployment: its query, input and output columns.

        - ``name``: name of the deployment, or ``database.name``.

        Returns a ``Deployment``. Raises ``Error`` with the code 42704 if the deployment does not
        exist.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
        ...         await db.execute("DEPLOY twice AS SELECT price * 2 AS p FROM clicks")
        ...         return (await db.deployment("twice")).sql
        >>> asyncio.run(main())
        'SELECT price * 2 AS p FROM clicks'
        """
        return await self._worker.run(lambda: self._blocking.deployment(name))

    async def prepare(self, target: str) -> AsyncPrepared:
        """Compiles a deployment or a query once, for many single-row requests.

        - ``target``: name of a deployment, or a query.

        Returns an ``AsyncPrepared``. Raises ``Error`` as ``Connection.prepare`` does.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
        ...         answer = await db.prepare("SELECT price * 2 AS p FROM clicks")
        ...         return await answer({"price": 2.5})
        >>> asyncio.run(main())
        {'p': 5.0}
        """
        prepared = await self._worker.run(lambda: self._blocking.prepare(target))
        return AsyncPrepared(prepared, self._worker)

    def training_set(
        self, main_table: str | None, deployment: str, *, as_known: bool = False
    ) -> AsyncRelation:
        """Returns a lazy relation for the training set of a deployment.

        - ``main_table``: table whose rows are the request rows; ``None`` for the request table of
          the deployment.
        - ``deployment``: name of a deployment.
        - ``as_known``: whether each row sees only the rows that had arrived before it.

        Returns an ``AsyncRelation``. Raises ``Error`` as ``Connection.training_set`` does, when the
        relation is awaited, fetched from or iterated over.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.append("clicks", [{"user": "ann", "price": 2.5}])
        ...         await db.execute("DEPLOY twice AS SELECT price * 2 AS p FROM clicks")
        ...         return await db.training_set(None, "twice", as_known=True).fetchall()
        >>> asyncio.run(main())
        [(5.0,)]
        """
        return AsyncRelation(
            lambda: self._blocking.training_set(main_table, deployment, as_known=as_known),
            self._worker,
        )

    async def subscribe(
        self, name: str, *, start: Literal["latest", "earliest"] = "latest"
    ) -> AsyncSubscription:
        """Returns an iterator over the rows of a stream, or of a table, as they are appended.

        - ``name``: name of the stream or table.
        - ``start``: ``"latest"`` for the rows that are appended after this call; ``"earliest"`` to
          begin with the rows that are stored.

        Returns an ``AsyncSubscription``. Other calls of the connection run while it waits for rows.
        Raises ``Error`` as ``Connection.subscribe`` does.

        Cost: one thread per subscription.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.execute("CREATE TABLE clicks (user STRING)")
        ...         rows = await db.subscribe("clicks")
        ...         await db.append("clicks", [{"user": "ann"}])
        ...         return (await anext(rows)).to_pylist()
        >>> asyncio.run(main())
        [{'user': 'ann'}]
        """
        pyarrow = require("pyarrow", "to create Arrow batches")
        session = self._blocking._session
        found = await self._worker.run(lambda: session.subscribe(name, start))
        subscription = AsyncSubscription(found, pyarrow)
        self._subscriptions.add(subscription)
        return subscription

    async def verify(
        self,
        deployment: str,
        *,
        sample: int | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> Verification:
        """Replays stored rows as requests and compares the results with batch mode, bit by bit.

        - ``deployment``: name of a deployment.
        - ``sample``: number of rows to replay; the default is as in ``Connection.verify``.
        - ``progress``: function that the event loop calls with the fraction done, from 0 to 1.

        Returns a ``Verification``. Raises ``Error`` as ``Connection.verify`` does.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.append("clicks", [{"user": "ann", "price": 2.5}])
        ...         await db.execute("DEPLOY twice AS SELECT price * 2 AS p FROM clicks")
        ...         return (await db.verify("twice")).ok
        >>> asyncio.run(main())
        True
        """
        told = _in_loop(progress)
        return await self._worker.run(
            lambda: self._blocking.verify(deployment, sample=sample, progress=told)
        )

    async def close(self) -> None:
        """Closes the database, after all earlier calls. Closing a closed connection does nothing.

        Any process can then open the directory. Later calls raise ``Error`` with the code 08003.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     db = await lockstep.connect_async()
        ...     await db.close()
        ...     return db
        >>> asyncio.run(main())
        <lockstep async connection, closed>
        """
        for subscription in list(self._subscriptions):
            await subscription.aclose()
        await self._worker.run(self._blocking.close)
        self._worker.end()

    async def __aenter__(self) -> AsyncConnection:
        self._blocking.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._blocking).replace("lockstep connection", "lockstep async connection")


class AsyncPrepared:
    """Computes the result of a request row; created by ``AsyncConnection.prepare``.

    Call it with a request row, as ``Prepared``, and await the result: a dict, or ``None`` for a row
    that WHERE rejects.

    >>> import asyncio, lockstep
    >>> async def main():
    ...     async with lockstep.connect_async() as db:
    ...         await db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
    ...         answer = await db.prepare("SELECT price * 2 AS p FROM clicks WHERE price > 1")
    ...         return await answer({"price": 2.5}), await answer({"price": 0.5})
    >>> asyncio.run(main())
    ({'p': 5.0}, None)
    """

    def __init__(self, prepared: Prepared, worker: Worker) -> None:
        self._prepared = prepared
        self._worker = worker

    @property
    def input(self) -> list[tuple[str, str]]:
        """Names and types of the columns of a request row, in the order of the table.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
        ...         return (await db.prepare("SELECT price * 2 AS p FROM clicks")).input
        >>> asyncio.run(main())
        [('user', 'STRING'), ('price', 'DOUBLE')]
        """
        return self._prepared.input

    @property
    def output(self) -> list[tuple[str, str]]:
        """Names and types of the columns of a result.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.execute("CREATE TABLE clicks (user STRING, price DOUBLE)")
        ...         return (await db.prepare("SELECT price * 2 AS p FROM clicks")).output
        >>> asyncio.run(main())
        [('p', 'DOUBLE')]
        """
        return self._prepared.output

    async def __call__(self, row: Mapping[str, Any] | tuple[Any, ...]) -> dict[str, Any] | None:
        """Returns the result of a request row; ``None`` for a row that WHERE rejects."""
        return await self._worker.run(lambda: self._prepared(row))


class AsyncRelation:
    """Holds the rows of a query, or the result of another statement, as ``Relation`` does.

    A relation from ``db.sql`` runs when rows are first fetched. ``async for`` returns all rows,
    including rows already fetched.

    >>> import asyncio, lockstep
    >>> async def main():
    ...     async with lockstep.connect_async() as db:
    ...         return [row async for row in db.sql("SELECT 1 AS one")]
    >>> asyncio.run(main())
    [(1,)]
    """

    def __init__(
        self,
        make: Callable[[], Relation],
        worker: Worker,
        relation: Relation | None = None,
    ) -> None:
        self._make = make
        self._worker = worker
        self._relation = relation

    def __await__(self) -> Generator[Any, None, AsyncRelation]:
        return self._checked().__await__()

    @property
    def columns(self) -> list[str]:
        """Column names of the query, which may repeat.

        Raises ``Error`` with the code 55000 before a relation from ``db.sql`` is awaited, fetched
        from or run.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return (await db.sql("SELECT 1 AS one, 'a' AS letter")).columns
        >>> asyncio.run(main())
        ['one', 'letter']
        """
        return self._known().columns

    @property
    def types(self) -> list[str]:
        """SQL types of the columns; raises the same error as ``columns``.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return (await db.sql("SELECT 1 AS one, 'a' AS letter")).types
        >>> asyncio.run(main())
        ['INT', 'STRING']
        """
        return self._known().types

    @property
    def rows_affected(self) -> int | None:
        """Number of rows written by a statement of ``execute`` that writes; otherwise ``None``.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.execute("CREATE TABLE t (a INT)")
        ...         return (await db.execute("INSERT INTO t VALUES (1), (2)")).rows_affected
        >>> asyncio.run(main())
        2
        """
        known = self._known()
        return known.rows_affected if known.has_run else None

    @property
    def message(self) -> str | None:
        """Name of a statement of ``execute`` that returns no rows; otherwise ``None``.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return (await db.execute("CREATE TABLE t (a INT)")).message
        >>> asyncio.run(main())
        'CREATE TABLE'
        """
        known = self._known()
        return known.message if known.has_run else None

    async def run(self, progress: Callable[[float], object] | None = None) -> AsyncRelation:
        """Runs the query, unless it has already run, and returns this relation.

        - ``progress``: function that the event loop calls with the fraction done, from 0 to 1.

        Raises ``Error`` as ``Relation.run`` does, and for an invalid name or type.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         relation = await db.sql("SELECT 1 AS one").run()
        ...         return await relation.fetchall()
        >>> asyncio.run(main())
        [(1,)]
        """
        told = _in_loop(progress)
        await self._with(lambda relation: relation.run(told))
        return self

    async def df(self) -> pandas.DataFrame:
        """Returns the rows as a pandas data frame, as ``Relation.df`` does.

        Requires pandas and pyarrow: ``pip install "lockstep-db[pandas]"``.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.sql("SELECT 1 AS one, 'a' AS letter").df()
        >>> asyncio.run(main())
           one letter
        0    1      a
        """
        return await self._with(lambda relation: relation.df())

    async def arrow(self) -> pyarrow.Table:
        """Returns the rows as a pyarrow table, as ``Relation.arrow`` does.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.sql("SELECT 1 AS one, 'a' AS letter").arrow()
        >>> asyncio.run(main()).to_pydict()
        {'one': [1], 'letter': ['a']}
        """
        return await self._with(lambda relation: relation.arrow())

    async def pl(self) -> polars.DataFrame:
        """Returns the rows as a polars data frame, as ``Relation.pl`` does.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.sql("SELECT 1 AS one, 'a' AS letter").pl()
        >>> asyncio.run(main()).rows()
        [(1, 'a')]
        """
        return await self._with(lambda relation: relation.pl())

    async def to_numpy(self) -> dict[str, Any]:
        """Returns the columns as numpy arrays, as ``Relation.to_numpy`` does.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.sql("SELECT 1 AS one").to_numpy()
        >>> asyncio.run(main())["one"].tolist()
        [1]
        """
        return await self._with(lambda relation: relation.to_numpy())

    async def batches(
        self, rows: int = BATCH_ROWS, *, shuffle: bool | int = False, seed: int = 0
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Runs the query and yields batches of rows as they are computed.

        - ``rows``, ``shuffle``, ``seed``: as in ``Relation.batches``.

        Other calls of the connection can run between two batches. The query is cancelled when the
        iterator is closed. If ``async for`` ends early, the event loop closes the iterator
        eventually; ``contextlib.aclosing`` closes it immediately.

        Raises the errors of ``Relation.batches``, at the first batch.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.append("t", [{"a": number} for number in range(5)])
        ...         found = db.sql("SELECT a FROM t").batches(2)
        ...         return [batch.num_rows async for batch in found]
        >>> asyncio.run(main())
        [2, 2, 1]
        """
        found = await self._with(
            lambda relation: relation.batches(rows, shuffle=shuffle, seed=seed)
        )
        try:
            while (batch := await self._worker.run(lambda: next(found, None))) is not None:
                yield batch
        finally:
            # Closes the generator, and so its query, on the thread, after the running call.
            if close := getattr(found, "close", None):
                await self._worker.run(close)

    async def split(self, **bounds: Any) -> tuple[AsyncRelation, ...]:
        """Splits the rows by time into training, validation and test rows.

        - ``bounds``: parameters of ``Relation.split``.

        Raises the errors of ``Relation.split``.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.append("t", [{"day": number} for number in range(10)])
        ...         days = db.sql("SELECT day FROM t")
        ...         train, test = await days.split(by="day", train_until=7, gap=2)
        ...         return await train.count(), await test.count()
        >>> asyncio.run(main())
        (5, 3)
        """
        parts = await self._with(lambda relation: relation.split(**bounds))
        # The parts exist already: `_make` is not called again.
        return tuple(AsyncRelation(self._make, self._worker, part) for part in parts)

    async def to_torch(self, rows: int = 1_024, **options: Any) -> Any:
        """Returns a PyTorch ``IterableDataset``, as ``Relation.to_torch`` does.

        - ``rows``, ``options``: as in ``Relation.to_torch``.

        The query has run when the call returns. Iterating over the dataset blocks; use the worker
        processes of a ``DataLoader``, or another thread.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.sql("SELECT 1.5 AS x, 2 AS y").to_torch(256, label="y")
        >>> dataset = asyncio.run(main())  # doctest: +SKIP
        """
        return await self._with(lambda relation: relation.to_torch(rows, **options))

    async def to_tf(self, rows: int = 1_024, **options: Any) -> Any:
        """Returns a ``tf.data.Dataset`` of batches, as ``Relation.to_tf`` does.

        - ``rows``, ``options``: as in ``Relation.to_tf``.

        Each iteration runs the query on the iterating thread and blocks it. The connection must be
        open during the iteration.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         rows = await db.sql("SELECT 1.5 AS x, 2 AS y").to_tf(256, label="y")
        ...         await asyncio.to_thread(model.fit, rows)
        >>> asyncio.run(main())  # doctest: +SKIP
        """
        return await self._with(lambda relation: relation.to_tf(rows, **options))

    async def write(self, path: str | os.PathLike[str], **options: Any) -> int:
        """Writes the rows to a file or a directory, and returns the number of rows.

        - ``path``, ``options``: as in ``Relation.write``.

        Raises the errors of ``Relation.write``.

        >>> import asyncio, lockstep, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "ones.csv"
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.sql("SELECT 1 AS one").write(path)
        >>> asyncio.run(main()), path.read_text()
        (1, 'one\\n1\\n')
        """
        return await self._with(lambda relation: relation.write(path, **options))

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows not yet fetched, as tuples, as ``Relation.fetchall`` does.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.sql("SELECT 1 AS one, 'a' AS letter").fetchall()
        >>> asyncio.run(main())
        [(1, 'a')]
        """
        return await self._with(lambda relation: relation.fetchall())

    async def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        """Returns the next ``size`` rows as tuples, or fewer at the end.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.append("t", [{"a": number} for number in range(3)])
        ...         relation = db.sql("SELECT a FROM t ORDER BY a")
        ...         return await relation.fetchmany(2), await relation.fetchmany(2)
        >>> asyncio.run(main())
        ([(0,), (1,)], [(2,)])
        """
        return await self._with(lambda relation: relation.fetchmany(size))

    async def fetchone(self) -> tuple[Any, ...] | None:
        """Returns the next row as a tuple; ``None`` after the last row.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         relation = db.sql("SELECT 1 AS one")
        ...         return await relation.fetchone(), await relation.fetchone()
        >>> asyncio.run(main())
        ((1,), None)
        """
        return await self._with(lambda relation: relation.fetchone())

    async def count(self) -> int:
        """Returns the number of rows, as ``len`` does for a ``Relation``. Runs the query.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         return await db.sql("SELECT 1 AS one").count()
        >>> asyncio.run(main())
        1
        """
        return await self._with(len)

    async def show(self, rows: int = ROWS_SHOWN, width: int | None = None) -> None:
        """Prints the first rows and the number of rows.

        - ``rows``: maximum number of rows to print.
        - ``width``: maximum width of a cell, in characters; the default is as in ``Relation.show``.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.sql("SELECT 1 AS one").show()
        >>> asyncio.run(main())
        one
        ---
          1
        (1 row)
        """
        await self.run()
        self._known().show(rows, width)

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        start = 0
        while True:
            end = start + ROWS_PER_FETCH
            rows = await self._with(lambda relation, at=(start, end): relation.rows(*at))
            for row in rows:
                yield row
            if len(rows) < ROWS_PER_FETCH:
                return
            start = end

    async def _checked(self) -> AsyncRelation:
        await self._with(lambda relation: None)
        return self

    async def _with(self, work: Callable[[Relation], Result]) -> Result:
        """Calls ``work`` with the relation on the thread; creates the relation if necessary."""

        def call() -> Result:
            if self._relation is None:
                self._relation = self._make()
            return work(self._relation)

        return await self._worker.run(call)

    def _known(self) -> Relation:
        if self._relation is None:
            raise Error(
                "the columns of the relation are not yet known",
                code="55000",
                hint="Use `await relation` first.",
            )
        return self._relation


def _in_loop(progress: Callable[[float], object] | None) -> Callable[[float], object] | None:
    """Returns a callback for any thread that calls ``progress`` in the event loop."""
    if progress is None:
        return None
    loop = asyncio.get_running_loop()
    return lambda fraction: loop.call_soon_threadsafe(progress, fraction)
