"""The thread of an asynchronous connection, on which its calls run one after another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from . import _lockstep

Result = TypeVar("Result")

INTERRUPT_INTERVAL_S = 0.01
"""How often a call that is to end is interrupted: it may be between two parts of its work."""


class Worker:
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
