"""The one error of all checks."""

from __future__ import annotations


class BadConstraint(ValueError):
    """The constraint cannot be compiled; the text says why and where."""
