"""Shared memory between an engine core and its workers."""
