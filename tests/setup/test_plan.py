"""Steps are made in order, only when they are missing, and a second run makes nothing."""

import io

import pytest

from tools.setup.console import Console
from tools.setup.plan import Context, Step, run_steps
from tools.setup.run import StepFailed


def recording_step(name: str, made: list[str]) -> Step:
    return Step(name, f"step {name}", lambda _: name in made, lambda _: made.append(name))


def test_missing_steps_are_made_in_order_and_once(context: Context) -> None:
    made = ["b"]
    steps = [recording_step(name, made) for name in ("a", "b", "c")]
    assert run_steps(steps, context)
    assert made == ["b", "a", "c"]
    assert not run_steps(steps, context)
    assert made == ["b", "a", "c"]


def test_steps_are_numbered_with_progress_and_time(context: Context) -> None:
    stream = io.StringIO()
    now = iter(float(second) for second in range(0, 1000, 20))
    context.console = Console(stream, lambda: next(now))
    made = ["a"]

    def make(inner: Context) -> None:
        inner.console.note("chosen because")
        inner.console.progress("halfway")
        made.append("b")

    run_steps([recording_step("a", made), Step("b", "step b", lambda _: "b" in made, make)], context)
    assert stream.getvalue().splitlines() == [
        "[1/2] step a: up to date",
        "[2/2] step b",
        "      chosen because",
        "        20 s  halfway",
        "      done in 40.0 s",
        "set-up complete (80.0 s)",
    ]


def test_progress_is_rare_where_lines_are_kept() -> None:
    stream = io.StringIO()
    now = iter([0.0, 0.0, 1.0, 2.0, 16.0, 17.0])
    console = Console(stream, lambda: next(now))
    console.step(1, 1, "long")
    for text in ("one", "two", "three", "four"):
        console.progress(text)
    assert stream.getvalue().splitlines() == ["[1/1] long", "        16 s  three"]


def test_a_failing_step_stops_the_rest(context: Context) -> None:
    made: list[str] = []

    def fail(_: Context) -> None:
        raise StepFailed("it broke", "mend it")

    steps = [recording_step("a", made), Step("b", "b", lambda _: False, fail), recording_step("c", made)]
    with pytest.raises(StepFailed, match="it broke"):
        run_steps(steps, context)
    assert made == ["a"]
    # The lock is free again.
    assert run_steps([recording_step("d", made)], context)
