"""The exception and the warning of this package."""

from __future__ import annotations


class Error(Exception):
    """Says why a statement, a request or rows were refused, and what to do.

    ``str(error)`` is the whole report: code, message, the offending line with a caret under the
    position, detail and hint. Its fields are those of PostgreSQL's errors; the manual has a page
    with all codes.

    >>> import lockstep
    >>> db = lockstep.connect()
    >>> _ = db.append("clicks", [{"user": "ann", "price": 2.5}])
    >>> sql = "SELECT prise FROM clicks"
    >>> try:
    ...     db.sql(sql)
    ... except lockstep.Error as error:
    ...     print(error.code, error.kind, "|", error.hint, "|", sql[error.position :])
    42703 fix request | Did you mean `price`? | prise FROM clicks
    """

    message: str
    """One line, without the rest."""
    code: str
    """SQLSTATE, five characters; stable across versions."""
    kind: str
    """What to do: ``fix request``, ``fix data``, ``free resources``, ``retry``, ``prepare again``,
    ``report bug``."""
    hint: str | None
    """How to fix it, with the nearest name when a name was wrong."""
    detail: str | None
    """More about the cause, in full sentences."""
    position: int | None
    """Where in the SQL text, in characters: ``sql[error.position:]`` starts with the wrong part."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "XX000",
        kind: str = "fix request",
        hint: str | None = None,
        detail: str | None = None,
        position: int | None = None,
        rendered: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.kind = kind
        self.hint = hint
        self.detail = detail
        self.position = position
        self._rendered = rendered

    def __str__(self) -> str:
        if self._rendered is not None:
            return self._rendered
        lines = [f"error[{self.code}]: {self.message}"]
        lines += [
            f"{label}: {text}"
            for label, text in (("detail", self.detail), ("hint", self.hint))
            if text
        ]
        return "\n".join(lines)


class LockstepWarning(UserWarning):
    """Warns, with a lint for example, about a statement that took effect.

    It is shown by Python's ``warnings``, which also silence it or make it an error.

    >>> import lockstep, warnings
    >>> db = lockstep.connect()
    >>> _ = db.execute("CREATE TABLE t (k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1d))")
    >>> with warnings.catch_warnings(record=True) as warned:
    ...     warnings.simplefilter("always")
    ...     count = db.append("t", [{"k": "a", "ts": 1_000}])
    >>> str(warned[0].message).splitlines()[0]
    'warning[01L11]: 1 of 1 rows had expired before they arrived'
    """
