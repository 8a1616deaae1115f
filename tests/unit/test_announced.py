"""A death that is announced without a name is that of the engine that is lost next; if none is, of all."""

from __future__ import annotations

from fastfront.engine_client.announced import PATIENCE_S, AnnouncedDeath
from fastfront.engine_client.balancer import Balancer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_none_leaves() -> None:
    clock = Clock()
    announced = AnnouncedDeath(Balancer(2), clock)
    assert announced.remaining_s() is None
    announced.announce()
    assert announced.remaining_s() == PATIENCE_S
    assert not announced.none_has_left()
    clock.now += PATIENCE_S
    assert announced.none_has_left()
    assert not announced.none_has_left()


def test_one_leaves_and_even_comes_back_in_time() -> None:
    clock, balancer = Clock(), Balancer(2)
    announced = AnnouncedDeath(balancer, clock)
    announced.announce()
    balancer.dead(1)
    balancer.dead(1)
    balancer.back(1)
    clock.now += PATIENCE_S
    assert not announced.none_has_left()
    assert balancer.losses == 1


def test_a_loss_just_before_is_the_one_but_explains_no_second_death() -> None:
    clock = Clock()
    balancer = Balancer(3, clock=clock)
    announced = AnnouncedDeath(balancer, clock)
    balancer.dead(0)
    clock.now += 1
    announced.announce()
    assert announced.remaining_s() is None
    clock.now += 1
    announced.announce()
    clock.now += PATIENCE_S
    assert announced.none_has_left()


def test_a_loss_that_was_waited_for_explains_no_second_death() -> None:
    clock = Clock()
    balancer = Balancer(3, clock=clock)
    announced = AnnouncedDeath(balancer, clock)
    announced.announce()
    clock.now += PATIENCE_S - 1
    balancer.dead(1)
    clock.now += 1
    assert not announced.none_has_left()
    announced.announce()
    clock.now += PATIENCE_S
    assert announced.none_has_left()


def test_a_loss_long_before_does_not_count() -> None:
    clock = Clock()
    balancer = Balancer(3, clock=clock)
    balancer.dead(0)
    clock.now += PATIENCE_S
    announced = AnnouncedDeath(balancer, clock)
    announced.announce()
    clock.now += 1
    announced.announce()  # the same one, from another engine's lane
    clock.now += PATIENCE_S - 1
    assert announced.none_has_left()


def test_nothing_was_announced() -> None:
    assert not AnnouncedDeath(Balancer(1), Clock()).none_has_left()
