"""Open databases that several connections of this process share.

A directory can be opened only once, by one process. Connections to the same directory share the
open database, but each has its own current database: a statement waits for statements that run in
another current database, and runs concurrently with statements in the same one.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator

from .. import _connection
from ._error import InterfaceError

BLANK = r"(?:\s|(?:--|\#)[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
"""White space and comments."""

USED = rf"USE\s+(?:`([^`]+)`|(\w+)){BLANK}"
"""Statement that selects the current database."""

ONLY_USE = re.compile(rf"{BLANK}{USED};?{BLANK}", re.IGNORECASE | re.DOTALL)

ANY_USE = re.compile(
    rf"""(?:\A|;){BLANK}{USED}(?=;|\Z)
        | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | (?:--|\#)[^\n]* | /\*.*?\*/""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""USE statement in a script; also matches strings and comments, so that they are skipped."""

FIRST_DATABASE = "default"
"""Current database of a new session."""


def used_database(sql: str) -> str | None:
    """Returns the database that a USE statement selects; ``None`` for any other SQL."""
    found = ONLY_USE.fullmatch(sql)
    return None if found is None else found[1] or found[2]


def last_used_database(sql: str) -> str | None:
    """Returns the last database that a script selects; ``None`` if it selects none."""
    names = [found[1] or found[2] for found in ANY_USE.finditer(sql)]
    return next((name for name in reversed(names) if name), None)


class SharedDatabase:
    """Open database and the connections that use it."""

    def __init__(self, database: _connection.Connection, path: str | None, read_only: bool) -> None:
        self.database = database
        self.path = path
        self.read_only = read_only
        self.connections = 1
        self._current: str | None = FIRST_DATABASE
        self._running = 0
        self._may_select = threading.Condition()

    @contextlib.contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Runs a call while database ``name`` is selected."""
        with self._may_select:
            while self._current != name and self._running:
                self._may_select.wait()
            self._select(name)
            self._running += 1
        try:
            yield
        finally:
            with self._may_select:
                self._running -= 1
                self._may_select.notify_all()

    @contextlib.contextmanager
    def selecting(self, name: str) -> Iterator[None]:
        """Runs a script that selects databases itself: exclusively, starting in ``name``."""
        with self._may_select:
            while self._running:
                self._may_select.wait()
            self._select(name)
            # The next call always selects its database again.
            self._current = None
            yield

    def _select(self, name: str) -> None:
        if self._current != name:
            quoted = name.replace("`", "``")
            self.database.execute(f"USE `{quoted}`")
            self._current = name


_open: dict[str, SharedDatabase] = {}
# Reentrant: the garbage collector may close an unreferenced connection during an opening.
_open_lock = threading.RLock()


def open_shared(path: str, read_only: bool, max_memory: int | str | None) -> SharedDatabase:
    """Opens a directory, or returns the database that another connection has opened."""
    key = os.path.realpath(path)
    with _open_lock:
        shared = _open.get(key)
        if shared is None:
            database = _connection.connect(path, read_only=read_only, max_memory=max_memory)
            shared = _open[key] = SharedDatabase(database, key, read_only)
            return shared
        if shared.read_only and not read_only:
            raise InterfaceError(
                f"another connection of this process has opened `{path}` read-only",
                code="25006",
                hint="Close that connection first.",
            )
        shared.connections += 1
        return shared


def leave(shared: SharedDatabase) -> None:
    """Releases a database for one connection. The last connection closes it."""
    with _open_lock:
        shared.connections -= 1
        if shared.connections:
            return
        if shared.path is not None:
            _open.pop(shared.path, None)
        shared.database.close()
