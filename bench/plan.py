"""What a run measures: which points of which peers, in which repeat, and about how long that takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.base import Peer
from bench.scenarios.points import Point, points, ramp_point

CONTROLS = frozenset({"fastfront-gil", "classic-2"})
"""No target depends on them: once, and the main points only."""
NARROW = {"vllm-python-2": frozenset({"decode/1024 streams", "requests/1 out, prompt 30"})}
"""Wanted for some points only, by `scenario/point`."""
NO_RAMP = frozenset({"floor"})
"""Frontends whose ceiling nobody asks for."""
_LANES_EXPECTED_S = 40.0
_START_S = {"vllm-python-1": 20.0, "vllm-python-2": 22.0}
_OTHER_START_S = 3.0
"""Starting and stopping."""
_RAMP = (1536, 3072, 4096)
"""About as many rungs as have to be looked at."""


@dataclass(frozen=True)
class Plan:
    """What to measure. `sparing` is for a run of everything: later repeats measure only what targets need repeated."""

    peers: tuple[Peer, ...]
    scenarios: frozenset[str]
    repeats: int
    quick: bool
    model: Path
    sparing: bool
    left_out: dict[str, str] = field(default_factory=dict)
    """Peers that are not measured, with the reason."""

    def points_of(self, peer: Peer, repeat: int) -> list[Point]:
        """What is measured of a peer in a repeat."""
        return [
            point
            for point in points(self.scenarios, self.quick)
            if peer.name not in point.without
            and (self._wanted_sparingly(peer.name, point, repeat) if self.sparing else not (point.once and repeat))
        ]

    def climbs(self, peer: Peer, repeat: int) -> bool:
        """Whether a peer's ceiling is looked for in a repeat."""
        out = (*NARROW, *CONTROLS, *NO_RAMP) if self.sparing else NO_RAMP
        return "saturation" in self.scenarios and repeat == 0 and peer.name not in out

    @property
    def lanes(self) -> bool:
        """Whether the token path alone is measured: where frontends' CPU per token is."""
        return "decode" in self.scenarios

    def expected_s(self) -> float:
        """About how long all of it takes on a quiet machine."""
        turns = sum(self.turn_s(peer, repeat) for repeat in range(self.repeats) for peer in self.peers)
        return turns + (_LANES_EXPECTED_S if self.lanes else 0.0)

    def turn_s(self, peer: Peer, repeat: int) -> float:
        """The same for one peer in one repeat."""
        of_points = sum(point.expected_s for point in self.points_of(peer, repeat))
        climbing = sum(ramp_point(streams, self.quick).expected_s for streams in _RAMP) if self.climbs(peer, repeat) else 0.0
        starting = _START_S.get(peer.name, _OTHER_START_S)
        return of_points + climbing + (starting if of_points or climbing else 0.0)

    def _wanted_sparingly(self, peer: str, point: Point, repeat: int) -> bool:
        if peer in NARROW:
            return f"{point.scenario}/{point.name}" in NARROW[peer]
        if peer in CONTROLS:
            return repeat == 0 and not point.once
        return repeat == 0 or peer in point.again
