"""Engines fill evenly, whatever they report and however late; waiting requests weigh more; equal prompts may stay together."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest

from fastfront.engine_client.affinity import PrefixTable, beginnings
from fastfront.engine_client.balancer import Balancer


def test_ties_rotate() -> None:
    balancer = Balancer(3)
    for _ in range(4):
        chosen = balancer.pick(1) + balancer.pick(1) + balancer.pick(1)
        assert chosen == [0, 1, 2]
        balancer.finished(chosen)
    alone = []
    for _ in range(6):                             # each is over before the next: all engines are idle
        chosen = balancer.pick(1)
        balancer.finished(chosen)
        alone += chosen
    assert alone == [0, 1, 2, 0, 1, 2]


def test_the_one_with_the_fewest_in_flight() -> None:
    balancer = Balancer(3)
    first = balancer.pick(5)
    assert first == [0, 1, 2, 0, 1]
    assert balancer.pick(1) == [2]
    balancer.finished([0, 0])
    assert balancer.pick(2) == [0, 0]
    assert balancer.in_flight == [2, 2, 2]


def test_lost_engines_get_nothing_and_come_back() -> None:
    balancer = Balancer(2)
    assert balancer.dead(0)
    assert not balancer.dead(0)
    assert balancer.pick(3) == [1, 1, 1]
    assert balancer.alive() == [1]
    balancer.dead(1)
    assert balancer.pick(1) == []
    assert not balancer.any_alive
    balancer.back(0)
    assert balancer.pick(2) == [0, 0]


def test_a_rank_pins() -> None:
    balancer = Balancer(2)
    assert balancer.pick(4, rank=1) == [1] * 4
    assert balancer.in_flight == [0, 4]
    balancer.dead(1)
    assert balancer.pick(1, rank=1) == []


def test_a_waiting_request_weighs_like_four_running_ones() -> None:
    balancer = Balancer(2)
    balancer.pick(4)
    balancer.pick(1, rank=1)
    assert balancer.in_flight == [2, 3]
    balancer.report(0, waiting=1, kv_usage=0.2)  # load 2 + 3 against 3
    assert balancer.pick(2) == [1, 1]
    balancer.finished([0, 0])
    assert balancer.pick(1) == [0]  # nothing can wait where at most that one request is in flight


def test_a_full_cache_makes_waiting_worse() -> None:
    balancer = Balancer(2)
    balancer.pick(20)
    for engine, usage in enumerate((1.0, 0.4)):
        balancer.report(engine, waiting=4, kv_usage=usage)
    assert balancer.load(0) == balancer.load(1) + 4 * 6 * 0.5


@pytest.mark.parametrize(("waiting", "usage"), [(-5, 0.0), (1, float("nan")), (1, float("inf")), (1, -3.0)])
def test_reports_that_make_no_sense(waiting: float, usage: float) -> None:
    """They weigh at most what a full cache does, and engines still fill."""
    balancer = Balancer(2)
    balancer.pick(2)
    balancer.report(0, waiting, usage)
    assert 1 <= balancer.load(0) <= 4 + 6 * 0.5
    chosen = Counter(balancer.pick(100))
    assert min(chosen.values()) > 40


def test_reports_of_engines_that_do_not_exist() -> None:
    balancer = Balancer(1)
    balancer.report(1, 5, 0.5)
    balancer.report(-1, 5, 0.5)
    assert balancer.load(0) == 0


@pytest.mark.parametrize("engines", [2, 8])
@pytest.mark.parametrize("took_s", [0.2, 0.001], ids=["busy", "idle"])
def test_c65_late_reports_do_not_unbalance(engines: int, took_s: float) -> None:
    """4,000 equal requests at 500/s, reports every 100 ms that are 50 ms old: each engine within 5% of its share."""
    rng = random.Random(engines)
    balancer = Balancer(engines)
    running: deque[tuple[float, int]] = deque()
    reports: deque[tuple[float, list[int]]] = deque()
    counts: Counter[int] = Counter()
    now, next_report = 0.0, 0.1
    for _ in range(4000):
        now += rng.expovariate(500)
        while running and running[0][0] <= now:
            balancer.finished([running.popleft()[1]])
        while next_report <= now:
            reports.append((next_report + 0.05, [max(0, count - 16) for count in balancer.in_flight]))
            next_report += 0.1
        while reports and reports[0][0] <= now:
            for engine, waiting in enumerate(reports.popleft()[1]):
                balancer.report(engine, waiting, 0.3)
        (engine,) = balancer.pick(1)
        counts[engine] += 1
        running.append((now + took_s, engine))
    for engine in range(engines):
        assert counts[engine] == pytest.approx(4000 / engines, rel=0.05)


def prompt(seed: int, tokens: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(50_000) for _ in range(tokens)]


def test_prompts_that_begin_alike_stay_together() -> None:
    balancer = Balancer(4, affinity=True)
    shared = prompt(0, 128)
    (home,) = balancer.pick(1, prompt=shared + prompt(1, 50))
    assert all(balancer.pick(1, prompt=shared + prompt(k, 50)) == [home] for k in range(2, 6))
    others = {balancer.pick(1, prompt=prompt(k, 200))[0] for k in range(10, 13)}
    assert others == {0, 1, 2, 3} - {home}


def test_prompts_of_other_adapters_are_other_prompts() -> None:
    balancer = Balancer(2, affinity=True)
    shared = prompt(0, 128)
    homes = {adapter: balancer.pick(1, prompt=shared, adapter=adapter) for adapter in (None, b"a")}
    assert sorted(homes.values()) == [[0], [1]]
    for _ in range(3):
        assert {adapter: balancer.pick(1, prompt=shared, adapter=adapter) for adapter in homes} == homes


def test_affinity_gives_way_to_load() -> None:
    balancer = Balancer(2, affinity=True)
    shared = prompt(0, 128)
    chosen = Counter(balancer.pick(1, prompt=shared)[0] for _ in range(40))
    assert len(chosen) == 2
    assert min(chosen.values()) >= 10


def test_without_affinity_prompts_do_not_matter() -> None:
    balancer = Balancer(2)
    assert [balancer.pick(1, prompt=prompt(0, 128)) for _ in range(4)] == [[0], [1], [0], [1]]


def test_a_lost_engine_has_lost_its_cache() -> None:
    balancer = Balancer(2, affinity=True)
    shared = prompt(0, 128)
    assert balancer.pick(1, prompt=shared) == [0]
    balancer.dead(0)
    assert balancer.pick(1, prompt=shared) == [1]
    balancer.back(0)
    assert balancer.pick(1, prompt=shared) == [1]


def test_beginnings_are_found_by_the_longest() -> None:
    table = PrefixTable()
    long, salt = prompt(0, 300), "salt"
    table.put(beginnings(long, None), 1)
    table.put(beginnings(long[:64] + prompt(1, 100), None), 2)
    assert table.find(beginnings(long, None)) == 1
    assert table.find(beginnings(long[:64], None)) == 2
    assert table.find(beginnings(long, salt)) == -1
    assert table.find(beginnings(long, None, b"adapter")) == -1
    assert table.find(beginnings(long, salt, b"adapter")) == -1
    assert table.find(beginnings(long[:63], None)) == -1
    assert table.find(beginnings(prompt(5, 300), None)) == -1


def test_the_table_is_bounded_and_the_oldest_go() -> None:
    table = PrefixTable(capacity=10)
    for k in range(20):
        table.put(beginnings(prompt(k, 64), None), k)
    assert len(table) == 10
    assert table.find(beginnings(prompt(9, 64), None)) == -1
    assert table.find(beginnings(prompt(10, 64), None)) == 10


def test_ranks_that_are_not_the_first_ones() -> None:
    balancer = Balancer(range(2, 5))
    assert (balancer.size, balancer.alive(), balancer.in_flight) == (3, [2, 3, 4], [0, 0, 0])
    assert balancer.pick(4) == [2, 3, 4, 2]
    assert balancer.in_flight == [2, 1, 1]
    assert balancer.pick(1, rank=4) == [4]
    assert balancer.pick(1) == [3]
    balancer.report(1, 5, 0.5)  # another frontend's
    balancer.report(3, 2, 0.0)
    balancer.finished([2, 2])
    assert balancer.pick(2) == [2, 2]
    assert balancer.dead(2)
    assert balancer.pick(1) == [4]
    assert balancer.dead(3)
    assert balancer.dead(4)
    assert not balancer.any_alive
    assert balancer.pick(1) == []


def test_a_single_rank_that_is_not_the_first() -> None:
    balancer = Balancer(range(3, 4))
    assert balancer.pick(2) == [3, 3]
    assert balancer.in_flight == [2]
    assert balancer.dead(3)
    assert balancer.pick(1) == []
