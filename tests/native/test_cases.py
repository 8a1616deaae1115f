"""Failures other servers have shown, at the level of the native modules."""

import json

import pytest

from fastfront._speedups.detokenizer import Detokenizer
from fastfront._speedups.json_escape import escape
from fastfront._speedups.vocabulary import Vocabulary
from tests.native.tiny import byte_level, id_of, sentencepiece, word_level


def deltas(vocabulary: Vocabulary, ids: list[int], skip: bool = True, continues: bool = False) -> list[str]:
    detokenizer = Detokenizer(vocabulary, skip, continues)
    return [*(detokenizer.feed([i]) for i in ids), detokenizer.flush()]


def test_c04_a_character_is_sent_whole() -> None:
    vocabulary = Vocabulary.from_tokenizer(byte_level([b" hi ", b"\xf0\x9f"]))
    parts = deltas(vocabulary, [256, 257, 0x91, 0x8B, 0x21])
    assert parts == [" hi ", "", "", "👋", "!", ""]


def test_c05_byte_pieces_are_bytes() -> None:
    tokenizer = sentencepiece(["▁잠", "▁", "▁수", "A"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert "".join(deltas(vocabulary, [256, 257, 0xEA, 0xB9, 0xB0, 258])).endswith("깰 수")
    broken = "".join(deltas(vocabulary, [0xEA, 259]))
    assert broken.strip("\ufffd") == "A"
    assert broken.startswith("\ufffd")


def test_c07_a_broken_character_or_an_odd_id_does_not_stop_the_stream() -> None:
    vocabulary = Vocabulary.from_tokenizer(byte_level(["»".encode()]))
    text = "".join(deltas(vocabulary, [0xE0, 0xA4, 256, 0x78]))
    assert text.endswith("»x")
    assert set(text[:-2]) == {"\ufffd"}
    assert deltas(vocabulary, [0x78, -1, 2**40, 0x78]) == ["x", "", "", "x", ""]


@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "slow"])
def test_c08_a_prompt_ending_inside_a_character_is_never_repeated(kind: str) -> None:
    if kind == "byte_level":
        tokenizer, prompt, rest, ok = byte_level([b"Hello world ", b" ok"]), [256, 0xE2, 0x82], 0xAC, 257
    else:
        tokenizer = sentencepiece(["Hello▁world▁", "▁ok"])
        prompt, rest, ok = [256, 0xE2, 0x82], 0xAC, 257
        if kind == "slow":
            state = json.loads(tokenizer.to_str())
            state["decoder"]["decoders"][-1]["start"] = 2
            tokenizer = type(tokenizer).from_str(json.dumps(state))
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.kind_name == kind
    detokenizer = Detokenizer(vocabulary, continues=True)
    detokenizer.prime(prompt)
    assert detokenizer.feed([rest]) + detokenizer.feed([ok]) + detokenizer.flush() == "€ ok"
    detokenizer = Detokenizer(vocabulary, continues=True)
    detokenizer.prime(prompt)
    assert "Hello" not in detokenizer.feed([ok]) + detokenizer.flush()


def test_c10_leading_spaces_are_kept_after_a_prompt() -> None:
    pieces = ["▁Da", "ener", "ys", "▁is", "▁queen", "▁We", "▁say", ":"]
    vocabulary = Vocabulary.from_tokenizer(sentencepiece(pieces))
    ids = [256, 257, 258, 259, 260]
    assert "".join(deltas(vocabulary, ids, continues=True)) == " Daenerys is queen"
    assert "".join(deltas(vocabulary, ids)) == "Daenerys is queen"
    detokenizer = Detokenizer(vocabulary, continues=True)
    detokenizer.prime([261, 262, 263])
    assert detokenizer.feed(ids) == " Daenerys is queen"


def test_c11_special_tokens_are_hidden_or_shown() -> None:
    for tokenizer in (byte_level([b"Hi"]), sentencepiece(["Hi"])):
        vocabulary = Vocabulary.from_tokenizer(tokenizer)
        ids = [id_of(tokenizer, "<bos>"), 256, id_of(tokenizer, "<eos>")]
        assert "".join(deltas(vocabulary, ids)) == "Hi"
        assert "".join(deltas(vocabulary, ids[:2], skip=False)) == "<bos>Hi"


def test_c19_bytes_of_a_token_are_its_true_bytes() -> None:
    vocabulary = Vocabulary.from_tokenizer(byte_level(["是".encode(), b"\xe6\x98"]))
    assert list(vocabulary.token_bytes(256)) == [230, 152, 175]
    assert list(vocabulary.token_bytes(257) + vocabulary.token_bytes(0xAF)) == [230, 152, 175]
    assert "".join(deltas(vocabulary, [257, 0xAF])) == "是"
    assert json.loads(b'"' + escape(deltas(vocabulary, [256])[0]) + b'"') == "是"


def test_words_without_a_decoder_are_joined_by_spaces_after_the_first() -> None:
    vocabulary = Vocabulary.from_tokenizer(word_level(["a", "b"], None))
    assert deltas(vocabulary, [0, 1, 0]) == ["a", " b", " a", ""]
