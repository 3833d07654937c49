"""Connections whose calls are awaited, for asyncio programs.

A connection has a thread, which runs its calls one after another in the order in which they were
made, so that the event loop never waits. Cancelling the task that awaits a call takes it out of the
queue, or interrupts it where it runs: the engine ends it within a fraction of a second, and the
task is cancelled when it has ended. Connections run beside each other.

Cost: handing a call to the thread and back takes some tens of microseconds, more than answering a
request row does. Many request rows in one call cost it once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from . import _lockstep
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
from ._relation import ROWS_SHOWN, Relation

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Result = TypeVar("Result")

ROWS_PER_FETCH = 1024
"""The rows that an ``async for`` takes from the thread at once."""

INTERRUPT_INTERVAL_S = 0.01
"""How often a call that is to end is interrupted: it may be between two parts of its work."""


class Opening:
    """A database that is opened when this is awaited, or entered by ``async with``."""

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
        worker = _Worker()
        opened: list[Connection] = []
        try:
            await worker.run(lambda: opened.append(self._open()))
        except BaseException:
            # A cancelled opening may have finished first.
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
    """Opens a database whose calls are awaited; the parameters are those of ``connect``.

    The result is to be awaited, or entered with ``async with``, which also closes it.
    ``progress`` is called on another thread.

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
    """A session with a database, as ``Connection``, whose calls are awaited.

    Its calls run one after another; for calls beside each other, open several connections.
    """

    def __init__(self, blocking: Connection, worker: _Worker) -> None:
        self._blocking = blocking
        self._worker = worker

    @property
    def blocking(self) -> Connection:
        """The connection beneath, whose calls block; for other threads, and for short calls."""
        return self._blocking

    @property
    def opened(self) -> Opened | None:
        """What opening the directory has done; ``None`` for a database in memory."""
        return self._blocking.opened

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> AsyncRelation:
        """Runs a script of one or more statements and returns the outcome of the last one.

        It is ``Connection.execute``. A cancelled task ends the statement: a write then has taken
        effect as a whole or not at all.
        """
        relation = await self._worker.run(lambda: self._blocking.execute(sql, parameters))
        return AsyncRelation(lambda: relation, self._worker, relation)

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> AsyncRelation:
        """Makes a lazy relation of one query, with a value of ``parameters`` for each ``?``.

        Nothing is done before the relation is awaited, fetched from or iterated over, so that is
        where a wrong name or type raises. ``await db.sql(…)`` checks the query and returns the
        relation, whose ``columns`` and ``types`` are known from then on.
        """
        return AsyncRelation(lambda: self._blocking.sql(query, parameters), self._worker)

    async def append(
        self,
        table: str | Mapping[str, Any],
        data: Any = None,
        *,
        create: bool = True,
        replace: bool = False,
        durability: Literal["disk", "os", "memory"] | None = None,
    ) -> int:
        """Appends rows to a table, all or none, and returns their number.

        It is ``Connection.append``. The rows must not be changed before it returns.
        """
        return await self._worker.run(
            lambda: self._blocking.append(
                table, data, create=create, replace=replace, durability=durability
            )
        )

    async def request(self, target: str, rows: Any) -> Any:
        """Answers request rows in request mode, as ``Connection.request`` does."""
        return await self._worker.run(lambda: self._blocking.request(target, rows))

    async def deployment(self, name: str) -> Deployment:
        """Describes a deployment, as ``Connection.deployment`` does."""
        return await self._worker.run(lambda: self._blocking.deployment(name))

    async def prepare(self, target: str) -> AsyncPrepared:
        """Compiles a deployment or a query once, to answer many request rows one by one."""
        prepared = await self._worker.run(lambda: self._blocking.prepare(target))
        return AsyncPrepared(prepared, self._worker)

    async def verify(
        self,
        deployment: str,
        *,
        sample: int | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> Verification:
        """Replays stored rows as requests and compares with batch mode, bit by bit.

        ``progress`` is called by the event loop with the fraction that is done, from 0 to 1.
        """
        told = _in_loop(progress)
        return await self._worker.run(
            lambda: self._blocking.verify(deployment, sample=sample, progress=told)
        )

    async def close(self) -> None:
        """Ends the database, after the calls that were made before. Closing twice does nothing."""
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
    """A compiled request: answers one request row after another."""

    def __init__(self, prepared: Prepared, worker: _Worker) -> None:
        self._prepared = prepared
        self._worker = worker

    @property
    def input(self) -> list[tuple[str, str]]:
        """Names and types of the request row's columns."""
        return self._prepared.input

    @property
    def output(self) -> list[tuple[str, str]]:
        """Names and types of the answer's columns."""
        return self._prepared.output

    async def __call__(self, row: Mapping[str, Any] | tuple[Any, ...]) -> dict[str, Any] | None:
        """Answers one request row; ``None`` for one that a WHERE drops."""
        return await self._worker.run(lambda: self._prepared(row))


class AsyncRelation:
    """The rows of a query, or the outcome of another statement, as ``Relation``.

    A relation of ``db.sql`` runs when its rows are first fetched. ``async for`` returns all rows,
    also those that were fetched.
    """

    def __init__(
        self,
        make: Callable[[], Relation],
        worker: _Worker,
        relation: Relation | None = None,
    ) -> None:
        self._make = make
        self._worker = worker
        self._relation = relation

    def __await__(self) -> Generator[Any, None, AsyncRelation]:
        return self._checked().__await__()

    @property
    def columns(self) -> list[str]:
        """The column names. A relation of ``db.sql`` is awaited, fetched from or run before."""
        return self._known().columns

    @property
    def types(self) -> list[str]:
        """The column types, as SQL writes them; known when ``columns`` is."""
        return self._known().types

    @property
    def rows_affected(self) -> int | None:
        """The number of rows written, for a statement of ``execute`` that writes."""
        known = self._known()
        return known.rows_affected if known.has_run else None

    @property
    def message(self) -> str | None:
        """The name of a statement of ``execute`` without rows, such as ``CREATE TABLE``."""
        known = self._known()
        return known.message if known.has_run else None

    async def run(self, progress: Callable[[float], object] | None = None) -> AsyncRelation:
        """Runs the query now, if it has not run yet, and returns this relation.

        ``progress`` is called by the event loop with the fraction that is done, from 0 to 1.
        """
        told = _in_loop(progress)
        await self._with(lambda relation: relation.run(told))
        return self

    async def df(self) -> pandas.DataFrame:
        """Returns the rows as a pandas data frame."""
        return await self._with(lambda relation: relation.df())

    async def arrow(self) -> pyarrow.Table:
        """Returns the rows as a pyarrow table."""
        return await self._with(lambda relation: relation.arrow())

    async def pl(self) -> polars.DataFrame:
        """Returns the rows as a polars data frame."""
        return await self._with(lambda relation: relation.pl())

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows that were not fetched yet, as tuples."""
        return await self._with(lambda relation: relation.fetchall())

    async def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        """Returns the next rows, ``size`` of them; fewer at the end."""
        return await self._with(lambda relation: relation.fetchmany(size))

    async def fetchone(self) -> tuple[Any, ...] | None:
        """Returns the next row, or ``None`` after the last."""
        return await self._with(lambda relation: relation.fetchone())

    async def count(self) -> int:
        """Returns the number of rows, which ``len`` is for a ``Relation``."""
        return await self._with(len)

    async def show(self, rows: int = ROWS_SHOWN, width: int | None = None) -> None:
        """Prints the first rows."""
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
        """Works on the relation in the thread; makes it first where that was not done."""

        def call() -> Result:
            if self._relation is None:
                self._relation = self._make()
            return work(self._relation)

        return await self._worker.run(call)

    def _known(self) -> Relation:
        if self._relation is None:
            raise Error(
                "the columns of the relation are not known yet",
                code="55000",
                hint="Write `await relation` first.",
            )
        return self._relation


class _Worker:
    """The thread of a connection."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lockstep")
        self._is_ended = False

    async def run(self, work: Callable[[], Result]) -> Result:
        """Runs a call on the thread, after those before it, and returns its result.

        When the task is cancelled, the call is interrupted, and the task ends when it has ended.
        """
        if self._is_ended:
            # The connection is closed: the call raises the error that says so.
            return work()
        call = _Call(work)
        ended = asyncio.wrap_future(self._executor.submit(call.run))
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            await call.interrupt_until(ended)
            raise

    def end(self) -> None:
        """Lets the thread end. Later calls run on the thread that makes them."""
        self._is_ended = True
        self._executor.shutdown(wait=False)


class _Call(Generic[Result]):
    """A call that waits for its thread or runs there."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        # Guards the two fields: the thread's next call must not be interrupted for this one.
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._is_cancelled = False

    def run(self) -> Result | None:
        """Runs the call, on the thread of the connection."""
        with self._lock:
            if self._is_cancelled:
                return None
            self._thread = threading.get_ident()
        try:
            return self._work()
        finally:
            with self._lock:
                self._thread = None

    async def interrupt_until(self, ended: asyncio.Future[Any]) -> None:
        """Interrupts the call until it has ended, whatever it returns or raises then."""
        while not ended.done():
            with self._lock:
                self._is_cancelled = True
                if self._thread is not None:
                    _lockstep.interrupt(self._thread)
            try:
                await asyncio.wait([ended], timeout=INTERRUPT_INTERVAL_S)
            except asyncio.CancelledError:
                # Another cancellation: the caller is raising the first one.
                continue
        if not ended.cancelled():
            # Nobody else reads what it has raised.
            ended.exception()


def _in_loop(progress: Callable[[float], object] | None) -> Callable[[float], object] | None:
    """Makes a callback for any thread, of one for the event loop."""
    if progress is None:
        return None
    loop = asyncio.get_running_loop()
    return lambda fraction: loop.call_soon_threadsafe(progress, fraction)
