"""Steps and how they are run."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.setup.console import Console
from tools.setup.paths import Paths
from tools.setup.run import Command, run


@dataclass
class Context:
    """What every step is given: where things live, the environment variables and somewhere to say what happens."""

    paths: Paths
    environ: dict[str, str]
    console: Console
    log_name: str = field(default="setup")

    def run(self, command: Command) -> str:
        """Run a command of the current step, logged under the step's name."""
        return run(command, self.paths.logs / f"{self.log_name}.log", self.console.progress)


@dataclass(frozen=True)
class Step:
    """One duty. `ready` is quick and changes nothing; `make` makes the product so that `ready` is true after it."""

    name: str
    title: str
    ready: Callable[[Context], bool]
    make: Callable[[Context], None]


def run_steps(steps: Sequence[Step], context: Context) -> bool:
    """Make what is missing, in order; returns whether anything had to be made.

    `StepFailed` of a step ends the run. The cache is locked while something is made, so that set-ups of two clones
    do not build the same thing twice.
    """
    if all(step.ready(context) for step in steps):
        context.console.summary(f"set-up: all {len(steps)} steps up to date")
        return False
    with _locked(context.paths.cache / "lock", context.console):
        for number, step in enumerate(steps, 1):
            if step.ready(context):
                context.console.up_to_date(number, len(steps), step.title)
                continue
            context.console.step(number, len(steps), step.title)
            context.log_name = step.name
            step.make(context)
            context.console.done()
    context.console.summary("set-up complete")
    return True


@contextmanager
def _locked(path: Path, console: Console) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.note(f"another set-up is at work with {path.parent}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
