"""The exception and the warning of this package."""

from __future__ import annotations


class Error(Exception):
    """The error of a statement, a request or rows that Lockstep refuses.

    ``str(error)`` is the whole report: code, message, the offending line with a caret under the
    position, detail and hint.
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
    """A warning, such as a lint, about a statement that took effect."""
