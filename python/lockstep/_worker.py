"""Thread of an asynchronous connection, which runs the calls of the connection in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from . import _lockstep

Result = TypeVar("Result")

INTERRUPT_INTERVAL_S = 0.01
"""Interval in seconds between interrupts of a cancelled call, which can miss an interrupt."""


class Worker:
    """Thread of a connection."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lockstep")
        self._is_ended = False

    async def run(self, work: Callable[[], Result]) -> Result:
        """Runs a call on the thread, after all earlier calls, and returns its result.

        If the task is cancelled, interrupts the call and waits until it ends.
        """
        if self._is_ended:
            # The connection is closed: the call raises the error for it.
            return work()
        call = _Call(work)
        ended = asyncio.wrap_future(self._executor.submit(call.run))
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            await call.interrupt_until(ended)
            raise

    def end(self) -> None:
        """Lets the thread end. Later calls run on the calling thread."""
        self._is_ended = True
        self._executor.shutdown(wait=False)


class _Call(Generic[Result]):
    """Call that waits for the thread of its connection or runs on it."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        # Guards the two fields, so that the next call of the thread is not interrupted instead.
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
        """Interrupts the call repeatedly until it ends, with or without an exception."""
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
            # Marks the exception as retrieved; it has no other reader.
            ended.exception()
