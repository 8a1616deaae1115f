"""Errors about a model; the message is meant for whoever started the engine."""

from __future__ import annotations


class ModelError(Exception):
    """The model cannot be loaded or served; says which file or property is at fault."""
