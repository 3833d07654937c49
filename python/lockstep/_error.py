"""Exception and warning classes of this package."""

from __future__ import annotations


class Error(Exception):
    """Reports why a statement, a request or rows were rejected, and how to fix the error.

    ``str(error)`` is the complete report: code, message, the offending line with a caret under the
    position, detail and hint. The fields are as in PostgreSQL's error messages; the manual has a
    list of all codes.

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
    """Message in one line, without position, detail and hint."""
    code: str
    """SQLSTATE code of five characters; stable across versions."""
    kind: str
    """Kind of action required: ``fix request``, ``fix data``, ``free resources``, ``retry``,
    ``prepare again`` or ``report bug``."""
    hint: str | None
    """Suggested fix, such as the most similar name; ``None`` if there is no suggestion."""
    detail: str | None
    """Further information about the cause; ``None`` if there is none."""
    position: int | None
    """Offset of the error in the SQL text, in characters: ``sql[error.position:]`` starts with the
    erroneous part. ``None`` if the error has no position."""

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
    """Warns about a statement that took effect, for example with a lint.

    Python's ``warnings`` module shows it, and can suppress it or turn it into an exception.

    >>> import lockstep, warnings
    >>> db = lockstep.connect()
    >>> _ = db.execute("CREATE TABLE t (k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1d))")
    >>> with warnings.catch_warnings(record=True) as warned:
    ...     warnings.simplefilter("always")
    ...     count = db.append("t", [{"k": "a", "ts": 1_000}])
    >>> str(warned[0].message).splitlines()[0]
    'warning[01L11]: 1 of 1 rows had expired before they arrived'
    """
