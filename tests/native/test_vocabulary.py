"""The table of token texts: kinds, flags, holes, odd vocabularies, fallback to the slow kind."""

from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from fastfront._speedups import decoders as plans
from fastfront._speedups import vocabulary as module
from fastfront._speedups.detokenizer import Detokenizer, agrees
from fastfront._speedups.vocabulary import Vocabulary
from tests.native.conftest import Model
from tests.native.tiny import byte_level, id_of, sentencepiece, spell, word_level

KNOWN, SPECIAL, BYTE, WHOLE = 1, 2, 4, 8
SPACES = (decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse())


def decoded(vocabulary: Vocabulary, ids: list[int], skip: bool = False) -> str:
    detokenizer = Detokenizer(vocabulary, skip)
    return detokenizer.feed(ids) + detokenizer.flush()


def test_flags() -> None:
    tokenizer = byte_level([b"ab", b"\xe6\x98"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.flags_of(0x61) == KNOWN | WHOLE
    assert vocabulary.flags_of(0xE6) == KNOWN
    assert vocabulary.flags_of(256) == KNOWN | WHOLE
    assert vocabulary.flags_of(257) == KNOWN
    assert vocabulary.flags_of(id_of(tokenizer, "<bos>")) == KNOWN | SPECIAL | WHOLE
    assert vocabulary.flags_of(id_of(tokenizer, "<think>")) == KNOWN | WHOLE
    assert vocabulary.flags_of(-1) == vocabulary.flags_of(vocabulary.size) == 0
    pieces = Vocabulary.from_tokenizer(sentencepiece(["<0xZZ>"]))
    assert pieces.flags_of(0x61) == KNOWN | BYTE | WHOLE
    assert pieces.flags_of(256) == KNOWN | WHOLE


def test_token_bytes_are_true_bytes() -> None:
    vocabulary = Vocabulary.from_tokenizer(byte_level([b"\xe6\x98", b" the"]))
    assert [vocabulary.token_bytes(i) for i in (0xFF, 256, 257, 258)] == [b"\xff", b"\xe6\x98", b" the", b"<bos>"]
    vocabulary = Vocabulary.from_tokenizer(sentencepiece(["▁the"]))
    assert [vocabulary.token_bytes(i) for i in (0xFF, 256)] == [b"\xff", b" the"]
    vocabulary = Vocabulary.from_tokenizer(word_level(["a", "b"], decoders.CTC("a", "|", False)))
    assert [vocabulary.token_bytes(i) for i in (0, 1, 99)] == [b"", b"b", b""]


def test_a_token_that_is_not_spelled_in_bytes_stands_for_itself() -> None:
    tokenizer = byte_level([b"x"])
    tokenizer.add_tokens(["a b", "日本", "Ġ日", "ĠĠ"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    texts = [vocabulary.token_bytes(id_of(tokenizer, token)).decode() for token in ("a b", "日本", "Ġ日", "ĠĠ")]
    assert texts == ["a b", "日本", "Ġ日", "  "]
    assert vocabulary.kind_name == "byte_level"


def test_holes_between_ids_decode_to_nothing() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 7, "c": 70_000}, unk_token="a"))
    tokenizer.decoder = decoders.Metaspace("▁", "never")
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.size == 70_001
    assert decoded(vocabulary, [0, 3, 7, 69_999, 70_000, 70_001]) == "abc"
    assert vocabulary.flags_of(3) == 0
    assert vocabulary.token_bytes(3) == b""


def test_an_id_out_of_all_proportion_is_refused() -> None:
    with pytest.raises(ValueError, match="proportion"):
        Vocabulary.from_tokenizer(Tokenizer(models.WordLevel({"a": 0, "b": 2**31}, unk_token="a")))


def test_two_ids_with_the_same_text() -> None:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("▁a", -2.0), ("b", -3.0)], 0, False))
    tokenizer.decoder = decoders.Metaspace("▁", "always")
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.size == 4
    for ids in ([1, 2, 3], [2, 1], [3, 2]):
        assert decoded(vocabulary, ids) == tokenizer.decode(ids)


def test_an_added_token_takes_the_place_of_a_model_token() -> None:
    tokenizer = byte_level([b"ab"])
    tokenizer.add_special_tokens([spell(b"ab")])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.flags_of(256) & SPECIAL
    assert decoded(vocabulary, [256, 0x61], skip=True) == tokenizer.decode([256, 0x61]) == "a"


def test_added_tokens_that_pass_the_normalizer() -> None:
    tokenizer = sentencepiece(["▁x"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_tokens([AddedToken("new token", normalized=True), AddedToken("raw token", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("sp ecial", normalized=True)])
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.kind_name == "metaspace"
    for skip in (True, False):
        for ids in ([i, 256, i] for i in range(256, vocabulary.size)):
            assert decoded(vocabulary, ids, skip) == tokenizer.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]),
        decoders.Sequence([*SPACES, decoders.Strip("x", 1, 0)]),
        decoders.Sequence([*SPACES, decoders.Strip(" ", 1, 1)]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()]),
        decoders.Fuse(),
        decoders.CTC("<pad>", "|", True),
        decoders.BPEDecoder("</w>"),
    ],
    ids=str,
)
def test_decoders_without_a_plan_are_slow(decoder: Any) -> None:
    tokenizer = word_level(["<pad>", " a", "▁b", "x", "c</w>"], decoder)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.kind_name == "slow"
    assert vocabulary.tokenizer is tokenizer
    for ids in ([1, 2, 3, 4], [3, 3], [2], [4, 1, 4]):
        assert decoded(vocabulary, ids) == tokenizer.decode(ids, skip_special_tokens=False)


def test_disagreement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is wrong in one piece only, on a byte, must not be used."""
    tokenizer = sentencepiece(["▁a", "b"])
    right = Vocabulary.from_tokenizer(tokenizer)
    assert agrees(right, tokenizer)
    other = sentencepiece(["▁a", "c"])
    assert not agrees(right, other)
    monkeypatch.setattr(module, "plan_for", lambda _: plans.DecoderPlan("pieces", byte_runs=False, replace=("▁", " ")))
    assert Vocabulary.from_tokenizer(tokenizer).kind_name == "slow"
    monkeypatch.setattr(
        module, "plan_for", lambda _: plans.DecoderPlan("pieces", byte_runs=True, strip=False, replace=("▁", " "))
    )
    assert Vocabulary.from_tokenizer(tokenizer).kind_name == "slow"


def test_tables_are_compact(real: Model) -> None:
    assert real.vocabulary.memory < 14 * real.vocabulary.size


def test_only_a_tokenizer_makes_a_vocabulary() -> None:
    with pytest.raises(TypeError, match="from_tokenizer"):
        Vocabulary()
    with pytest.raises(AttributeError):
        Vocabulary.from_tokenizer(object())  # type: ignore[arg-type]


def test_an_empty_tokenizer() -> None:
    vocabulary = Vocabulary.from_tokenizer(Tokenizer(models.BPE()))
    assert vocabulary.size == 0
    assert decoded(vocabulary, [0, 1]) == ""
