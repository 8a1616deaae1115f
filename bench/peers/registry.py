"""All peers, in the order of tables."""

from __future__ import annotations

from bench.peers.base import Peer
from bench.peers.classic import CLASSIC_2
from bench.peers.fastfront import FASTFRONT, FASTFRONT_GIL
from bench.peers.floor import FLOOR
from bench.peers.vllm import VLLM_PYTHON_1, VLLM_PYTHON_2, VLLM_RUST

PEERS: tuple[Peer, ...] = (FLOOR, FASTFRONT, FASTFRONT_GIL, VLLM_RUST, VLLM_PYTHON_1, VLLM_PYTHON_2, CLASSIC_2)
