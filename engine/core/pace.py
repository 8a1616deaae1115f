"""When to plan the next step while one is computed: late enough for requests that come meanwhile to be in it."""

from __future__ import annotations

SHARE = 0.3
"""Of a step's expected duration: planned that long before its end, but at least MARGIN_S before."""
MARGIN_S = 0.004
SLOWER = 0.2
"""Weight of a step that took longer than expected; a faster one counts at once."""


class Pace:
    """Expects a step to take as long as earlier ones of about as many tokens. Times are seconds of one clock.

    What is expected errs on the short side, so that the next step is there when its turn comes: a request that comes just
    before the end of a step is in the one after the next, any other in the next.
    """

    def __init__(self) -> None:
        self._usual: dict[int, float] = {}
        self._began = 0.0
        self._size = 0

    def begin(self, now: float, tokens: int) -> None:
        """The workers have begun a step of that many tokens."""
        self._began, self._size = now, tokens.bit_length()

    def end(self, now: float) -> None:
        """Its result is here."""
        took = now - self._began
        usual = self._usual.get(self._size, took)
        self._usual[self._size] = min(took, usual + SLOWER * (took - usual))

    def wait(self, now: float) -> float:
        """Seconds until the next step should be planned; not positive: now."""
        usual = self._usual.get(self._size, 0.0)
        return self._began + usual - max(SHARE * usual, MARGIN_S) - now
