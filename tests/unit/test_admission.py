"""Requests beyond what may run and wait are refused."""

from __future__ import annotations

import contextlib
import threading

import pytest

from fastfront.errors import ApiError
from fastfront.streams.admission import Admission


def admission(
    max_requests: int | None = None, max_tokens: int | None = None, in_flight: int = 0, tokens: int = 0
) -> tuple[Admission, list[str]]:
    refused: list[str] = []
    return Admission(max_requests, max_tokens, lambda: in_flight, lambda: tokens, refused.append), refused


@pytest.mark.parametrize(
    ("there", "choices", "fits"), [(0, 1, True), (9, 1, True), (10, 1, False), (8, 2, True), (9, 2, False), (0, 11, False)]
)
def test_choices(there: int, choices: int, fits: bool) -> None:
    bound, refused = admission(max_requests=10, in_flight=there, tokens=10**9)
    if fits:
        assert bound.admit(choices, 5, lambda: [7]) == [7]
        assert refused == []
        return
    with pytest.raises(ApiError, match=f"{there} choices .*--max-num-queued-reqs 10") as error:
        bound.admit(choices, 5, lambda: pytest.fail("it is not taken"))
    assert (error.value.status, error.value.kind) == (429, "RateLimitError")
    assert refused == ["max_num_queued_reqs"]


@pytest.mark.parametrize(
    ("waiting", "tokens", "fits"),
    [(0, 100, True), (90, 10, True), (91, 10, False), (1, 100, False), (0, 5000, True), (5000, 1, False)],
)
def test_tokens(waiting: int, tokens: int, fits: bool) -> None:
    """A prompt that is longer than the bound is served, alone."""
    bound, refused = admission(max_tokens=100, in_flight=10**9, tokens=waiting)
    if fits:
        assert bound.admit(1, tokens, lambda: [7]) == [7]
    else:
        with pytest.raises(ApiError, match=f"{waiting} prompt tokens .*--max-num-queued-tokens 100"):
            bound.admit(1, tokens, lambda: [7])
    assert refused == ([] if fits else ["max_num_queued_tokens"])


def test_two_requests_do_not_take_the_same_place() -> None:
    there: list[int] = []
    bound = Admission(10, None, lambda: len(there), lambda: 0, lambda _: None)
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        for _ in range(10):
            with contextlib.suppress(ApiError):
                bound.admit(1, 1, lambda: [there.append(1) or 0])  # type: ignore[func-returns-value]

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(there) == 10
