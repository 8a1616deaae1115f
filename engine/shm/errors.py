"""What can go wrong with a ring."""

from __future__ import annotations


class RingError(Exception):
    """A ring cannot be used, or not any more."""


class RingCorruptError(RingError):
    """What lies in shared memory is not what a writer of this version puts there."""


class RingClosedError(RingError):
    """The other side has closed the ring, or `interrupt` ended the wait."""


class PeerDiedError(RingError):
    """The process on the other side has ended."""


class MessageTooLargeError(RingError):
    """More bytes than the ring takes in one message."""
