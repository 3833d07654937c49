"""Low-level interface of OpenMLDB's Python package; see ``sdk.sdk``."""

from __future__ import annotations

from . import sdk

__all__ = ["sdk"]
