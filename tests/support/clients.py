"""Many clients at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")


def at_once(call: Callable[[A], T], arguments: Iterable[A], timeout_s: float = 120.0) -> list[T]:
    """Calls `call` with each argument on a thread of its own, all at the same time; results in order.

    Fails if any call fails, or takes longer than `timeout_s`.
    """
    given = list(arguments)
    results: list[T | BaseException | None] = [None] * len(given)
    barrier = threading.Barrier(len(given))

    def run(k: int) -> None:
        try:
            barrier.wait(60)
            results[k] = call(given[k])
        except BaseException as error:
            results[k] = error

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
        assert not thread.is_alive(), "a client hangs"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]
