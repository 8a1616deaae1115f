"""The mock engine seen from a test: what it is told to do, and what it saw."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import zmq

from tests.support.waiting import wait_for

Event = dict[str, Any]
Step = Any  # a list of ids or a step's map, as the mock's scripts have them


def rule(*steps: Step, **keys: Any) -> dict[str, Any]:
    """A rule of these steps; a bare id is a step of one token."""
    return {"steps": [[step] if isinstance(step, int) else step for step in steps], **keys}


def scripted(*steps: Step, **keys: Any) -> dict[str, Any]:
    """The request field that makes the mock answer this very request with these steps."""
    return {"vllm_xargs": {"script": json.dumps(rule(*steps, **keys))}}


def named(name: str) -> dict[str, Any]:
    """The request field that picks the rules with `when: {"name": name}`."""
    return {"vllm_xargs": {"script": name}}


class MockEngine:
    """One mock process: its flags, its report and its control socket."""

    def __init__(self, folder: Path, *flags: str, script: Mapping[str, Any] | None = None, name: str | None = None) -> None:
        """`name` is part of the paths of report and control socket (one that no other mock has)."""
        name = name or secrets.token_hex(8)
        self._report_path = folder / f"mock-{name}.jsonl"
        self._report_path.touch()
        self.log_path = self._report_path.with_suffix(".log")  # for what a mock started by hand prints
        # In the abstract namespace: no path that could be too long, no file to remove.
        self._control = f"ipc://@fastfront-test-{name}"
        self.args = [*flags, "--report", str(self._report_path), "--control", self._control]
        if script is not None:
            path = folder / f"script-{secrets.token_hex(4)}.json"
            path.write_text(json.dumps(script))
            self.args += ["--script", str(path)]

    def quiet(self) -> Self:
        """Without a report, for runs that are long or measured."""
        at = self.args.index("--report")
        del self.args[at : at + 2]
        return self

    # ---- what it saw

    def events(self, since: int = 0) -> list[Event]:
        """Everything reported behind the first `since` events."""
        lines = self._report_path.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines[since:]]

    def mark(self) -> int:
        """The number of events so far, for `since`."""
        return self._report_path.read_bytes().count(b"\n")

    def of(self, kind: str, since: int = 0) -> list[Event]:
        """Events of one kind."""
        return [event for event in self.events(since) if event["event"] == kind]

    def adds(self, since: int = 0) -> list[Event]:
        """Requests that arrived."""
        return self.of("add", since)

    def wait(self, look: Callable[[list[Event]], Any], what: str, since: int = 0, timeout_s: float = 60.0) -> Any:
        """The first true value of `look(events)`."""
        return wait_for(lambda: look(self.events(since)), what, timeout_s)

    def wait_adds(self, count: int, since: int = 0, timeout_s: float = 60.0) -> list[Event]:
        """Waits until that many requests have arrived."""

        def look() -> list[Event] | None:
            adds = self.adds(since)
            return adds if len(adds) >= count else None

        return wait_for(look, f"{count} requests at the engine", timeout_s) or []

    def aborted(self, since: int = 0) -> list[str]:
        """Ids named in ABORT messages, in order, as often as they were named."""
        return [name for event in self.of("abort", since) for name in event["ids"]]

    def wait_aborts(self, ids: Iterable[str], since: int = 0, timeout_s: float = 60.0) -> None:
        """Waits until every one of the ids has been aborted."""
        wanted = set(ids)
        wait_for(lambda: wanted <= set(self.aborted(since)), f"aborts of {len(wanted)} requests", timeout_s)

    def wait_ended(self, since: int = 0, timeout_s: float = 60.0) -> tuple[list[str], list[str], list[str]]:
        """Waits until all requests that have arrived have ended: their ids, those of finished ones, those named in aborts.

        All three are of one moment: a request whose client has left may still come after it.
        """

        def look() -> tuple[list[str], list[str], list[str]] | None:
            events = self.events(since)
            added, finished = ([event["id"] for event in events if event["event"] == kind] for kind in ("add", "finish"))
            aborted = [name for event in events if event["event"] == "abort" for name in event["ids"]]
            return (added, finished, aborted) if set(added) <= {*finished, *aborted} else None

        ended = wait_for(look, "the end of every request at the engine", timeout_s)
        assert ended is not None
        return ended

    # ---- what it is told

    def command(self, **command: Any) -> dict[str, Any]:
        """One command on the control socket; the mock's counts."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        with context.socket(zmq.REQ) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(self._control)
            socket.send(json.dumps(command).encode())
            assert socket.poll(60_000), f"the mock does not answer {command}"
            answer: dict[str, Any] = json.loads(socket.recv())
        assert answer["ok"], answer
        return answer

    def counts(self) -> dict[str, Any]:
        """running, waiting, adds, aborts, steps, tokens as of now."""
        return self.command(cmd="counts")

    def wait_idle(self, timeout_s: float = 60.0) -> None:
        """Waits until nothing runs or waits."""
        wait_for(lambda: (c := self.counts())["running"] == 0 == c["waiting"], "an idle engine", timeout_s)

    def use(self, *rules: dict[str, Any], **script: Any) -> None:
        """Requests from now on are served by these rules."""
        self.command(cmd="script", script={"rules": list(rules), **script})

    def raw(self, *frames: bytes, client: int = 0) -> None:
        """Sends a message of these frames to the frontend."""
        self.command(cmd="raw", client=client, frames=[frame.hex() for frame in frames])

    def pause(self) -> None:
        self.command(cmd="pause")

    def resume(self) -> None:
        self.command(cmd="resume")

    def step(self, count: int = 1) -> None:
        """Steps of a paused mock."""
        self.command(cmd="step", count=count)

    def open(self, gate: str) -> None:
        """Steps that wait at that gate, now or later, go on."""
        self.command(cmd="open", gate=gate)

    def die(self, how: str, code: int = 1) -> None:
        """exit, dead (ENGINE_CORE_DEAD first), kill or hang."""
        self.command(cmd="die", how=how, code=code)


def ranks(folder: Path, count: int, *flags: str) -> tuple[MockEngine, list[MockEngine]]:
    """Mocks that one server starts: what it has to be told to start all of them, and each one."""
    name = secrets.token_hex(8)
    return MockEngine(folder, *flags, name=f"{name}-{{index}}"), [MockEngine(folder, name=f"{name}-{k}") for k in range(count)]


def texts(events: Sequence[Mapping[str, Any]], key: str = "text") -> list[str]:
    """The deltas of completion chunks."""
    return [choice[key] for event in events for choice in event["choices"]]
