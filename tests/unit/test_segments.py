"""Encoding in kept pieces gives the ids of encoding as a whole, whatever the text."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, pre_tokenizers

from fastfront.render import segments
from fastfront.render.chat import ChatRenderer
from fastfront.render.segments import SegmentEncoder, cutting_tokens
from fastfront.render.tokenizer import TextTokenizer, load_tokenizer
from tests.unit.support import CHATML, make_folder

PIECES = (
    "", " ", "\n", "\n\n", "  x", "Hello", " world", "user\n", "assistant", "é", "👩‍👩‍👧", "日本語", "'s", "123", "<|",
    "|>", "<", ">",
    "_end|>", "<|im_", "\t\t", "a\u0000b", "ﬁ", "İ", " \u3000", "<think>", "</think>", "…", "don't stop", "x" * 300,
)  # fmt: skip
NAMES = ("qwen3", "llama3_1", "gemma3", "llama2", "gptoss", "deepseek_v3")
TEMPLATES = {
    "llama2": "{% for m in messages %}<s>[INST] {{ m.content }} [/INST]</s>{% endfor %}",
    "gptoss": "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}",
}


def encoder_for(folder: Path) -> tuple[TextTokenizer, SegmentEncoder]:
    tokenizer = load_tokenizer(folder)
    renderer = ChatRenderer.build(folder, tokenizer, TEMPLATES.get(folder.name), "auto", {})
    return tokenizer, SegmentEncoder(tokenizer, renderer.sources())


@pytest.mark.parametrize("name", NAMES)
def test_real_tokenizers(tokenizer_folders: Path, name: str) -> None:
    tokenizer, encoder = encoder_for(tokenizer_folders / name)
    rng = random.Random(name)
    added = [token.content for token in tokenizer.raw.get_added_tokens_decoder().values()]
    for _ in range(400):
        parts = [rng.choice((*PIECES, *encoder.marks, *rng.sample(added, 3))) for _ in range(rng.randrange(12))]
        text = "".join(parts)
        assert encoder.encode(text) == tokenizer.encode(text, False)


@pytest.mark.parametrize(
    ("name", "mark"),
    [("qwen3", "<|im_end|>"), ("llama3_1", "<|eot_id|>"), ("gemma3", "<end_of_turn>"), ("gptoss", "<|end|>")],
)
def test_real_chats_are_cut_at_their_turns(tokenizer_folders: Path, name: str, mark: str) -> None:
    assert mark in encoder_for(tokenizer_folders / name)[1].marks


@pytest.fixture
def tiny(tmp_path: Path) -> TextTokenizer:
    return load_tokenizer(make_folder(tmp_path))


def test_a_piece_is_tokenized_once(tiny: TextTokenizer) -> None:
    encoder = SegmentEncoder(tiny, [CHATML])
    assert encoder.marks == {"<|im_start|>", "<|im_end|>"}
    asked: list[str] = []
    words = encoder._words

    class Listener:
        def packed(self, piece: str) -> bytes:
            asked.append(piece)
            return words.packed(piece)

    encoder._words = Listener()  # type: ignore[assignment]
    for end in ("one", "two", "one"):
        text = f"<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>{end}"
        assert encoder.encode(text) == tiny.encode(text, False)
    assert asked == ["system\nBe short.", "\n", "one", "two"]


def test_what_is_kept_is_bounded_and_what_is_used_stays(tiny: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_GENERATION_BYTES", 10_000)
    encoder = SegmentEncoder(tiny, [CHATML])
    for i in range(500):
        text = f"<|im_start|>always<|im_end|>number {i}"
        assert encoder.encode(text) == tiny.encode(text, False)
    assert len(encoder._young) + len(encoder._old) < 100
    assert "always" in encoder._young.keys() | encoder._old.keys()
    long = "<|im_end|>" + "x" * 70_000
    assert encoder.encode(long) == tiny.encode(long, False)
    assert not any(len(piece) > 60_000 for piece in encoder._young)


def test_threads_may_share_it(tiny: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_GENERATION_BYTES", 3_000)
    encoder = SegmentEncoder(tiny, [CHATML])

    def work(seed: int) -> bool:
        rng = random.Random(seed)
        texts = [f"<|im_start|>{rng.randrange(40)}<|im_end|>{rng.randrange(40)} z" for _ in range(300)]
        return all(encoder.encode(text) == tiny.encode(text, False) for text in texts)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


# --- where a text may be cut -----------------------------------------------------------------------------------------


def cuts(tokenizer: Tokenizer, *tokens: AddedToken) -> set[str]:
    tokenizer.add_special_tokens(list(tokens))
    return set(cutting_tokens(tokenizer, ["<a> <b> <|im_end|>"]))


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("<a>", special=True, lstrip=True),
        AddedToken("<a>", special=True, rstrip=True),
        AddedToken("<a>", special=True, single_word=True),
        AddedToken("<c>", special=True),
    ],
    ids=["eats blanks before it", "eats blanks behind it", "counts only as a word", "not in the text"],
)
def test_tokens_that_look_at_their_surroundings_do_not_cut(tiny: TextTokenizer, token: AddedToken) -> None:
    assert cuts(tiny.raw, token) == {"<|im_end|>"}


@pytest.mark.parametrize("other", ["<a><b>", "x<a>", "><", "a><|im", "<a", "a>"])
def test_tokens_that_overlap_do_not_cut(tiny: TextTokenizer, other: str) -> None:
    found = cuts(tiny.raw, AddedToken("<a>", special=True), AddedToken(other, special=True))
    assert "<a>" not in found
    assert SegmentEncoder(tiny, ["<a>"]).encode("x<a><b>y") == tiny.encode("x<a><b>y", False)


@pytest.mark.parametrize(("scheme", "cut"), [("first", False), ("always", True), ("never", True)])
def test_a_tokenizer_that_treats_the_first_piece_otherwise_is_not_cut(tiny: TextTokenizer, scheme: str, cut: bool) -> None:
    tiny.raw.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [pre_tokenizers.Metaspace(prepend_scheme=scheme), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert bool(cuts(tiny.raw)) is cut
    text = "a<|im_end|>b <|im_end|>"
    assert SegmentEncoder(tiny, [CHATML]).encode(text) == tiny.encode(text, False)
