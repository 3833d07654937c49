"""Rows of a stream or a table as they are appended, for asyncio programs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ._worker import Worker

if TYPE_CHECKING:
    import pyarrow

    from . import _lockstep


class AsyncSubscription:
    """Iterates over the rows of a stream or a table; created by ``AsyncConnection.subscribe``.

    Each item is a ``pyarrow.RecordBatch``. The iterator waits for rows, and has no end. If the task
    that waits is cancelled, for example by ``asyncio.wait_for``, no rows are lost: the next call
    returns them. Close the subscription with ``aclose`` or ``async with``; closing the connection
    closes it as well.

    Cost: one thread per subscription.

    >>> import asyncio, lockstep
    >>> async def main():
    ...     async with lockstep.connect_async() as db:
    ...         await db.append("clicks", [{"user": "ann"}])
    ...         async with await db.subscribe("clicks", start="earliest") as rows:
    ...             async for batch in rows:
    ...                 return batch.to_pylist()
    >>> asyncio.run(main())
    [{'user': 'ann'}]
    """

    def __init__(self, found: _lockstep.Batches, pyarrow: Any) -> None:
        self._found: _lockstep.Batches | None = found
        self._pyarrow = pyarrow
        # A thread of its own: other calls of the connection run while it waits.
        self._worker = Worker()
        # The call that waits for the next rows, also if the task that has made it was cancelled.
        self._waiting: asyncio.Task[Any] | None = None

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> pyarrow.RecordBatch:
        """Returns the next rows."""
        found = self._found
        if found is None:
            raise StopAsyncIteration
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._worker.run(lambda: next(found, None)))
        try:
            batch = await asyncio.shield(self._waiting)
        except Exception:
            self._waiting = None
            raise
        # Not if the task was cancelled, also at the moment at which the rows arrived.
        self._waiting = None
        if batch is None:
            raise StopAsyncIteration
        return self._pyarrow.record_batch(batch)

    async def aclose(self) -> None:
        """Ends the subscription. Closing a closed subscription does nothing.

        >>> import asyncio, lockstep
        >>> async def main():
        ...     async with lockstep.connect_async() as db:
        ...         await db.execute("CREATE TABLE clicks (user STRING)")
        ...         rows = await db.subscribe("clicks")
        ...         await rows.aclose()
        ...         return [batch async for batch in rows]
        >>> asyncio.run(main())
        []
        """
        waiting, self._waiting = self._waiting, None
        self._found = None
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait([waiting])
        self._worker.end()

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
