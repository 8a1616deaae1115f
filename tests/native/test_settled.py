"""The text of a token that ends inside a character comes with the one that ends the character, or not at all: as vLLM has it."""

from __future__ import annotations

import pytest

from tests.native.conftest import Model
from tests.native.pumping import Client, Rig

STOP, LENGTH = 0, 1


@pytest.fixture
def rig(qwen3: Model) -> Rig:
    return Rig(qwen3.vocabulary)


@pytest.fixture
def parts(qwen3: Model) -> list[int]:
    """Tokens `a`, ` ` with the first byte of 漢, its second and its third."""
    found = [qwen3.tokenizer.token_to_id(name) for name in ("a", "Ġæ", "¼", "¢")]
    assert None not in found
    return found


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("count", "text"), [(1, "a"), (2, "a"), (3, "a"), (4, "a 漢")])
def test_what_the_end_cuts_off(rig: Rig, parts: list[int], count: int, text: str, stream: bool) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=stream)
    for number, token in enumerate(parts[:count], 1):
        rig.step([request, [token], LENGTH if number == count else None])
    assert client.text() == text


def test_the_space_before_it_comes_with_it(rig: Rig, parts: list[int]) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=True)
    seen = []
    for token in parts:
        rig.step([request, [token]])
        seen.append(client.text())
    assert seen == ["a", "a", "a", "a 漢"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_string_in_front_of_it_is_seen_with_it(rig: Rig, parts: list[int], stream: bool) -> None:
    client = Client()
    call, (request,) = rig.start(client, stream=stream, stop=[" "])
    for token in parts:
        assert client.finish() == (None, None) if stream else client.body is None
        rig.step([request, [token]])
    assert client.text() == "a"
    assert client.finish() == ("stop", " ")
    assert call.usage[1] == 4


def test_broken_bytes_wait_for_a_whole_character(rig: Rig, parts: list[int]) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=True)
    letter, _, middle, _ = parts
    rig.step([request, [middle]])
    assert client.text() == ""
    rig.step([request, [letter]])
    assert client.text() == "\ufffda"
    rig.step([request, [middle], LENGTH])
    assert client.text() == "\ufffda"
