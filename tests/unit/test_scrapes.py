"""/metrics on a thread of its own."""

from __future__ import annotations

import threading
from typing import Any

from fastfront.server.scrapes import Scrapes
from tests.support.waiting import wait_for


class Page:
    """Metrics whose page can be held up."""

    content_type = "text/x"

    def __init__(self) -> None:
        self.made = 0
        self.may = threading.Event()

    def text(self) -> bytes:
        self.made += 1
        assert self.may.wait(60)
        if self.made == 3:
            raise RuntimeError("broken")
        return b"%d" % self.made


class Exchange:
    def __init__(self) -> None:
        self.answer: Any = None

    def reply(self, body: bytes, content_type: str) -> None:
        assert content_type == "text/x"
        self.answer = 200, body

    def json(self, body: bytes, status: int) -> None:
        self.answer = status, body


def test_requests_that_come_meanwhile_share_a_page() -> None:
    page = Page()
    scrapes = Scrapes(page)  # type: ignore[arg-type]
    scrapes.start()
    first, *others = exchanges = [Exchange() for _ in range(4)]
    scrapes.put(first)  # type: ignore[arg-type]
    wait_for(lambda: page.made == 1, "the first page")
    for exchange in others:
        scrapes.put(exchange)  # type: ignore[arg-type]
    assert not any(exchange.answer for exchange in exchanges)
    page.may.set()
    wait_for(lambda: all(exchange.answer for exchange in exchanges), "answers")
    assert [exchange.answer for exchange in exchanges] == [(200, b"1")] + [(200, b"2")] * 3


def test_an_answer_that_fails_costs_the_others_nothing() -> None:
    class Failing(Exchange):
        def reply(self, body: bytes, content_type: str) -> None:
            raise MemoryError

    page = Page()
    page.may.set()
    scrapes = Scrapes(page)  # type: ignore[arg-type]
    scrapes.start()
    exchanges = [Failing(), Exchange(), Exchange()]
    for exchange in exchanges:
        scrapes.put(exchange)  # type: ignore[arg-type]
    wait_for(lambda: all(exchange.answer for exchange in exchanges[1:]), "answers")


def test_a_failing_page_is_a_500_and_not_the_end() -> None:
    page = Page()
    page.may.set()
    scrapes = Scrapes(page)  # type: ignore[arg-type]
    exchanges = [Exchange() for _ in range(4)]
    for exchange in exchanges:
        scrapes.answer([exchange])  # type: ignore[list-item]
    assert [exchange.answer[0] for exchange in exchanges] == [200, 200, 500, 200]
