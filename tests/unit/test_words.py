"""Encoding word by word gives the ids of encoding as a whole, whatever the text and whatever came before."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from fastfront.render import words
from fastfront.render.segments import SegmentEncoder
from fastfront.render.tokenizer import load_tokenizer
from fastfront.render.words import WordEncoder, can_be_cut

CUT = ("qwen3", "llama3_1", "gptoss", "deepseek_v3")
WHOLE = ("gemma3", "llama2")
WORDS = (
    "the", "quick", "I'm", "don't", "DON'T", "x1", "3rd", "12,345.67", "(see", "below)", "\"quoted\"", "naïve", "e\u0301a",
    "a\u0301", "日本語", "foo…", "…", "—", "-", "a/b", "user\nthe", "end.\n", "end.\n\nNext", "\tTab", "a\u00a0b", "\u3000",
    "👩‍👩‍👧", "'s", "'S", "'", "can't.", "A", "İstanbul", "ﬁne", "ǅ", "ʰa", "a\u200bb", "x\x1cy", "\x85", "!", "?!",
    "http://a.example/b?c=d", "C++", "#1", "", "", "don'T", "a'b", "'ll", "we'll", "W'LL", "''s", "ſ's", "s'ſ", "\u212a", "K",
)  # fmt: skip


def text_of(rng: random.Random, more: list[str], most: int = 14) -> str:
    return " ".join(rng.choice((*WORDS, *more)) for _ in range(rng.randrange(most)))


@pytest.fixture(scope="module")
def real(tokenizer_folders: Path) -> dict[str, Tokenizer]:
    return {name: load_tokenizer(tokenizer_folders / name).raw for name in CUT + WHOLE}


@pytest.mark.parametrize("name", CUT + WHOLE)
def test_real_tokenizers(real: dict[str, Tokenizer], name: str) -> None:
    """One encoder sees all texts, so that words kept from one come up in all kinds of others."""
    tokenizer, rng = real[name], random.Random(name)
    encoder = WordEncoder(tokenizer)
    assert encoder.useful == (name in CUT)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    for _ in range(800):
        text = text_of(rng, rng.sample(added, 2))
        assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids, repr(text)


@pytest.mark.parametrize("name", CUT)
def test_any_text(real: dict[str, Tokenizer], name: str) -> None:
    tokenizer = real[name]
    encoder = WordEncoder(tokenizer)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(WORDS), max_size=12).map(" ".join))
    def check(text: str) -> None:
        assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids

    check()


def test_words_kept_at_the_edge_of_a_text_cut_nothing_in_its_middle(real: dict[str, Tokenizer]) -> None:
    """What ends or begins a text need not end or begin a piece of another."""
    for name in CUT:
        tokenizer = real[name]
        encoder = WordEncoder(tokenizer)
        for edge in ("foo…", "日本", "(x", "…", "1", "-", "\n", "'", "\x85"):
            for form in ("a b {}", " {} b c", "{} b c", "a {} b", "b c {} {}", "a b{} c d{}"):
                text = form.format(edge, edge)
                for _ in range(2):
                    assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids, (name, text)


def test_known_words_ask_the_tokenizer_nothing(real: dict[str, Tokenizer]) -> None:
    encoder = WordEncoder(real["qwen3"])
    text = "user\nHow many roads must a man walk down, before you call him a man?"
    expected = encoder.encode(text)
    encoder._encode = encoder._batch = None  # type: ignore[assignment]
    assert encoder.encode(text) == expected
    other = "user\nHow down, man?"
    assert encoder.encode(other) == real["qwen3"].encode(other, add_special_tokens=False).ids


def test_what_is_kept_is_bounded_and_what_is_used_stays(
    real: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "MOST_WORDS", 100)
    encoder = WordEncoder(real["qwen3"])
    for k in range(300):
        assert encoder.encode(f"stay here word{k} and w{k * 7} end")
    generations = (encoder._young, encoder._old)
    assert all(len(words.first) + len(words.later) <= 100 for words in generations)
    assert any("here" in words.later for words in generations)
    encoder.encode("a b " + "x" * 1000)
    assert all(len(word) < 100 for words in (encoder._young, encoder._old) for word in words.later)


def test_texts_of_new_words_only(real: dict[str, Tokenizer]) -> None:
    encoder, rng = WordEncoder(real["llama3_1"]), random.Random(3)
    for _ in range(30):
        text = " ".join("".join(rng.choices("abcdefghij", k=9)) for _ in range(60))
        assert encoder.encode(text) == real["llama3_1"].encode(text, add_special_tokens=False).ids


def test_threads(real: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MOST_WORDS", 60)
    tokenizer = real["qwen3"]
    encoder = WordEncoder(tokenizer)
    texts = [text_of(random.Random(k), []) for k in range(200)]
    expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            for results in pool.map(lambda _: [encoder.encode(text) for text in texts], range(12)):
                assert results == expected
    finally:
        sys.setswitchinterval(interval)


def byte_level(**changes: object) -> Tokenizer:
    """A small tokenizer that can be cut, unless changed."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, [], **changes))  # type: ignore[arg-type]
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_what_else_a_tokenizer_may_do_to_words() -> None:
    assert can_be_cut(byte_level())
    assert not can_be_cut(byte_level(dropout=0.1))
    for normalizer in (normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace(" ", "_"), normalizers.Prepend("x")):
        tokenizer = byte_level()
        tokenizer.normalizer = normalizer
        assert not can_be_cut(tokenizer), normalizer
    for pre_tokenizer in (
        pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace(),
    ):  # fmt: skip
        tokenizer = byte_level()
        tokenizer.pre_tokenizer = pre_tokenizer
        assert not can_be_cut(tokenizer), pre_tokenizer
    for token in (
        AddedToken("a b"), AddedToken("x", lstrip=True), AddedToken("x", rstrip=True), AddedToken("x", single_word=True),
    ):  # fmt: skip
        tokenizer = byte_level()
        tokenizer.add_tokens([token])
        assert not can_be_cut(tokenizer), token


def test_prompts_with_tokens_around_them(tokenizer_folders: Path) -> None:
    for name in ("llama3_1", "llama2", "qwen3"):
        tokenizer = load_tokenizer(tokenizer_folders / name)
        segments = SegmentEncoder(tokenizer, [])
        for text in ("", "a", "How do you do, my friend? Well. ", " x y z"):
            assert segments.encode_wrapped(text) == tokenizer.encode(text, True)
