"""Conditions of the parts of a training set that is split by time."""

from __future__ import annotations

import datetime
import itertools
import re
from typing import Any

from ._error import Error

_EPOCH = datetime.datetime(1970, 1, 1)
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)([smhd])", re.IGNORECASE)
_DAY_MS = 86_400_000


def conditions(name: str, of: str, bounds: list[Any], gap: Any, test_until: Any) -> list[str]:
    """Returns the condition of each part on the column ``name`` of type ``of``.

    ``bounds`` are the start times of all parts after the first.
    """
    points = [_point(bound, of, "split bound") for bound in bounds]
    length = _length(gap, of)
    end = None if test_until is None else _point(test_until, of, "`test_until`")
    ordered = [*points, end] if end is not None else points
    if any(left >= right for left, right in itertools.pairwise(ordered)):
        raise Error("split bounds are not in ascending order", code="22023")
    parts = []
    for at in range(len(points) + 1):
        terms = []
        if at > 0:
            terms.append(f"{name} >= {_literal(points[at - 1], of)}")
        if at < len(points):
            before = points[at] - length
            if at > 0 and before <= points[at - 1]:
                raise Error("`gap` leaves no rows between two split bounds", code="22023")
            terms.append(f"{name} < {_literal(before, of)}")
        elif end is not None:
            terms.append(f"{name} < {_literal(end, of)}")
        parts.append(" AND ".join(terms))
    return parts


def _point(value: Any, of: str, what: str) -> int:
    """Returns a time in the unit of the column: milliseconds, days, or the integer itself."""
    if isinstance(value, str) and of in ("TIMESTAMP", "DATE"):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError as error:
            raise Error(
                f"invalid {what}: {value!r}",
                code="22007",
                hint="Use the form '2024-05-01' or '2024-05-01 12:00:00'.",
            ) from error
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        # Integer arithmetic: a float of seconds would lose microseconds.
        ms = (value - _EPOCH) // datetime.timedelta(milliseconds=1)
    elif isinstance(value, datetime.date):
        ms = (value - _EPOCH.date()).days * _DAY_MS
    elif isinstance(value, int) and not isinstance(value, bool) and of != "DATE":
        return value
    else:
        raise Error(f"invalid {what} for a column of type {of}: {value!r}", code="42804")
    if of == "DATE":
        if ms % _DAY_MS:
            raise Error(
                f"invalid {what} for a column of type DATE: {value} is not midnight", code="22023"
            )
        return ms // _DAY_MS
    return ms


def _length(gap: Any, of: str) -> int:
    if gap is None:
        return 0
    if isinstance(gap, str):
        found = _DURATION.fullmatch(gap.strip())
        if found is None:
            raise Error(
                f"invalid duration for `gap`: {gap!r}",
                code="22023",
                hint="Use the form '12h' or '30d'.",
            )
        ms = int(found[1]) * _UNITS[found[2].lower()]
    elif isinstance(gap, datetime.timedelta):
        # Rounded up to milliseconds: a gap is never shorter than specified.
        ms = -(-gap // datetime.timedelta(milliseconds=1))
    elif isinstance(gap, int) and not isinstance(gap, bool) and of != "DATE":
        ms = gap
    else:
        raise Error(f"invalid `gap` for a column of type {of}: {gap!r}", code="42804")
    if ms < 0:
        raise Error("`gap` must not be negative", code="22023")
    return -(-ms // _DAY_MS) if of == "DATE" else ms


def _literal(point: int, of: str) -> str:
    if of == "TIMESTAMP":
        return f"timestamp({point}L)"
    if of == "DATE":
        return f"DATE '{datetime.date(1970, 1, 1) + datetime.timedelta(days=point)}'"
    return f"{point}L"
