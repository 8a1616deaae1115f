"""Errors about an adapter; the message is meant for whoever asked for it."""

from __future__ import annotations


class AdapterError(Exception):
    """The adapter cannot be loaded; says which file or property is at fault."""
