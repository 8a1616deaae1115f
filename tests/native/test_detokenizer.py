"""Deltas joined equal the tokenizer's own decode, for any ids and any split; nothing sent would change later."""

import random
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.decoders import Decoder

from fastfront._speedups.detokenizer import Detokenizer
from fastfront._speedups.vocabulary import Vocabulary
from tests.native.conftest import REAL, Model, load
from tests.native.tiny import NATIVE, SLOW, id_of, spell

BYTE = 4
SPECIAL = 2

TEXTS = [
    "The quick brown fox jumps over the lazy dog.  Two spaces,\n\n\ttabs and newlines \r\n",
    "def f(x):\n    return {'a': [1, 2.5e-3], \"b\": None}  # comment\n",
    "Zażółć gęślą jaźń, naïve café, straße, İstanbul",
    "日本語のテキスト。中文文本，한국어 텍스트",
    "नमस्ते दुनिया، مرحبا بالعالم, שלום עולם, สวัสดีชาวโลก",
    "👋🏽 👨‍👩‍👧‍👦 🇩🇪 🏴󠁧󠁢󠁥󠁮󠁧󠁿 e\u0301 \u200b\u2028 \ufffd 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𒀀𒁁 \U0010ffff",
    "<|im_start|>assistant\n<think>\n</think><|im_end|><s></s><bos><eos><|start_header_id|>",
    " leading space", "   ", "\n", "a", "\x00\x01\x7f",
]  # fmt: skip


def split(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    return [ids[a:b] for a, b in pairwise(edges)]


def check(tokenizer: Tokenizer, vocabulary: Vocabulary, steps: list[list[int]], skip: bool) -> None:
    """The contract over one sequence of steps."""
    ids = [i for step in steps for i in step]
    whole = tokenizer.decode([i for i in ids if 0 <= i < 2**32], skip_special_tokens=skip)
    detokenizer = Detokenizer(vocabulary, skip)
    joined = ""
    for step in steps:
        joined += detokenizer.feed(step)
        assert whole.startswith(joined)
    assert joined + detokenizer.flush() == whole
    assert detokenizer.flush() == ""


def check_prompt(tokenizer: Tokenizer, vocabulary: Vocabulary, ids: list[int], skip: bool) -> None:
    """Nothing is held back but an unfinished character or a run of byte pieces that has not ended."""
    detokenizer = Detokenizer(vocabulary, skip)
    joined = ""
    in_run = False
    for n, token in enumerate(ids, 1):
        joined += detokenizer.feed([token])
        flags = vocabulary.flags_of(token)
        if flags and not (skip and flags & SPECIAL):
            in_run = bool(flags & BYTE)
        so_far = tokenizer.decode(ids[:n], skip_special_tokens=skip)
        assert so_far in (joined, joined + "\ufffd") or in_run


def interesting(vocabulary: Vocabulary) -> list[int]:
    """Special tokens, byte pieces and tokens that hold parts of characters."""
    flags = [(i, vocabulary.flags_of(i)) for i in range(vocabulary.size)]
    return [i for i, f in flags if f & (SPECIAL | BYTE) or not f & 8]


def id_lists(vocabulary: Vocabulary, max_size: int = 30) -> st.SearchStrategy[list[int]]:
    any_id = st.integers(-2, vocabulary.size + 2)
    some = interesting(vocabulary)
    return st.lists(st.one_of(any_id, st.sampled_from(some)) if some else any_id, max_size=max_size)


CUTS = st.lists(st.integers(0, 30), max_size=8)
IN_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


# --- the six real tokenizers -------------------------------------------------------------------------------------


def test_real_tokenizers_decode_natively(real: Model) -> None:
    assert real.vocabulary.kind_name == REAL[real.name]
    assert real.vocabulary.tokenizer is None


@pytest.mark.parametrize("skip", [True, False])
def test_every_id_alone(real: Model, skip: bool) -> None:
    ids = range(real.vocabulary.size + 3)
    whole = real.tokenizer.decode_batch([[i] for i in ids], skip_special_tokens=skip)
    for i, text in zip(ids, whole, strict=True):
        detokenizer = Detokenizer(real.vocabulary, skip)
        assert detokenizer.feed((i,)) + detokenizer.flush() == text, i


@pytest.mark.parametrize("skip", [True, False])
def test_every_id_inside_a_text(real: Model, skip: bool) -> None:
    letter = real.tokenizer.encode("a", add_special_tokens=False).ids[-1]
    ids = range(real.vocabulary.size)
    for order in ([x for i in ids for x in (letter, i)], list(ids), random.Random(1).sample(ids, len(ids))):
        detokenizer = Detokenizer(real.vocabulary, skip)
        joined = "".join(detokenizer.feed(order[at : at + 97]) for at in range(0, len(order), 97)) + detokenizer.flush()
        assert joined == real.tokenizer.decode(order, skip_special_tokens=skip)


@pytest.mark.parametrize("name", REAL)
@IN_FIXTURE
@given(st.data(), st.booleans())
def test_random_ids_in_random_steps(name: str, data: st.DataObject, skip: bool) -> None:
    model = load(name)
    ids = data.draw(lists_of(name))
    check(model.tokenizer, model.vocabulary, split(ids, data.draw(CUTS)), skip)
    check_prompt(model.tokenizer, model.vocabulary, [i for i in ids if i >= 0], skip)


@cache
def lists_of(name: str) -> st.SearchStrategy[list[int]]:
    """Building the strategy looks at every flag: once per model."""
    return id_lists(load(name).vocabulary)


@pytest.mark.parametrize("skip", [True, False])
def test_realistic_texts_whole_cut_and_damaged(real: Model, skip: bool) -> None:
    rng = random.Random(2)
    for text in [*TEXTS, "".join(TEXTS), " ".join(reversed(TEXTS))]:
        ids = real.tokenizer.encode(text).ids
        check(real.tokenizer, real.vocabulary, [[i] for i in ids], skip)
        check_prompt(real.tokenizer, real.vocabulary, ids, skip)
        for _ in range(30):
            damaged = list(ids)
            for _ in range(rng.randrange(4)):
                damaged.insert(rng.randrange(len(damaged) + 1), rng.randrange(-1, real.vocabulary.size + 1))
                del damaged[rng.randrange(len(damaged))]
            cuts = [rng.randrange(len(damaged) + 1) for _ in range(rng.randrange(8))]
            check(real.tokenizer, real.vocabulary, split(damaged, cuts), skip)


def test_bytes_of_a_real_text_join_to_its_utf8(qwen3: Model) -> None:
    for text in TEXTS[:6]:
        normal = qwen3.tokenizer.normalizer.normalize_str(text)
        ids = qwen3.tokenizer.encode(text, add_special_tokens=False).ids
        assert b"".join(map(qwen3.vocabulary.token_bytes, ids)) == normal.encode()


# --- small tokenizers of each kind -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NATIVE)
@IN_FIXTURE
@given(st.data(), st.booleans())
def test_native_kinds(name: str, data: st.DataObject, skip: bool) -> None:
    kind, tokenizer, vocabulary = tiny(name)
    assert vocabulary.kind_name == kind
    ids = data.draw(id_lists(vocabulary))
    check(tokenizer, vocabulary, split(ids, data.draw(CUTS)), skip)


@pytest.mark.parametrize("name", SLOW)
@IN_FIXTURE
@given(st.data(), st.booleans())
def test_slow_kinds(name: str, data: st.DataObject, skip: bool) -> None:
    kind, tokenizer, vocabulary = tiny(name)
    assert kind == vocabulary.kind_name == "slow"
    ids = data.draw(id_lists(vocabulary, 120))
    check(tokenizer, vocabulary, split(ids, data.draw(CUTS)), skip)


@cache
def tiny(name: str) -> tuple[str, Tokenizer, Vocabulary]:
    """The expected kind, the tokenizer, its table."""
    kind, build = NATIVE[name] if name in NATIVE else ("slow", SLOW[name])
    tokenizer = build()
    return kind, tokenizer, Vocabulary.from_tokenizer(tokenizer)


@pytest.mark.parametrize("name", [*NATIVE, *SLOW])
def test_every_pair_of_ids(name: str) -> None:
    _, tokenizer, vocabulary = tiny(name)
    ids = list(range(vocabulary.size))
    if vocabulary.size > 100:
        ids = [*ids[:256:9], 0xC2, 0xE0, 0xE6, 0xED, 0xF0, 0xF4, 0x80, 0x98, 0x9F, 0xA0, 0xAF, *ids[256:]]
    for first in ids:
        for second in ids:
            detokenizer = Detokenizer(vocabulary, False)
            joined = detokenizer.feed([first]) + detokenizer.feed([second]) + detokenizer.flush()
            assert joined == tokenizer.decode([first, second], skip_special_tokens=False)


@pytest.mark.parametrize("name", ["byte-level", "sentencepiece", "bytes-without-replace"])
@IN_FIXTURE
@given(st.lists(st.sampled_from(b"a \xc2\xe0\xe6\x98\xaf\xf0\x9f\x91\x8b\xed\xa0\xf4\x90")))
def test_dropping_the_partial_character_drops_nothing_else(name: str, ids: list[int]) -> None:
    _, tokenizer, vocabulary = tiny(name)
    detokenizer = Detokenizer(vocabulary, False)
    ids = [ids_of_byte(name, byte) for byte in ids]
    joined = detokenizer.feed(ids) + detokenizer.flush(keep_partial=False)
    whole = tokenizer.decode(ids, skip_special_tokens=False)
    if name == "byte-level":
        assert whole in (joined, joined + "\ufffd")
    elif name == "sentencepiece":
        cut = [ids[: len(ids) - n] for n in range(min(4, len(ids) + 1))]
        assert joined in [tokenizer.decode(shorter, skip_special_tokens=False) for shorter in cut]
    else:
        assert joined == whole.rstrip("\ufffd")


def ids_of_byte(name: str, byte: int) -> int:
    tokenizer = tiny(name)[1]
    spelled = spell(bytes([byte])) if name == "byte-level" else f"<0x{byte:02X}>"
    return id_of(tokenizer, spelled)


# --- continuing a prompt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NATIVE, *SLOW])
@IN_FIXTURE
@given(st.data())
def test_a_primed_output_is_what_follows_the_prompt(name: str, data: st.DataObject) -> None:
    """Where the prompt ends with a whole character, prompt and output together are the decode of all ids."""
    _, tokenizer, vocabulary = tiny(name)
    plain = [i for i in range(vocabulary.size) if vocabulary.flags_of(i) & (8 | BYTE | SPECIAL) == 8] or [
        i for i in range(vocabulary.size) if vocabulary.flags_of(i) & (BYTE | SPECIAL) == 0
    ]
    prompt = data.draw(st.lists(st.sampled_from(plain), min_size=3, max_size=8))
    ids = data.draw(st.lists(st.integers(0, vocabulary.size - 1), max_size=12))
    before = tokenizer.decode(prompt, skip_special_tokens=False)
    if not before.strip() or before.endswith("\ufffd"):
        return  # a prompt without text leaves the rules for the first token in force
    detokenizer = Detokenizer(vocabulary, False, continues=True)
    detokenizer.prime(prompt)
    joined = "".join(detokenizer.feed([i]) for i in ids) + detokenizer.flush()
    assert before + joined == tokenizer.decode(prompt + ids, skip_special_tokens=False)


@pytest.mark.parametrize("name", ["byte-level", "sentencepiece", "sentencepiece-strip"])
def test_a_prompt_that_ends_inside_a_character(name: str) -> None:
    _, _, vocabulary = tiny(name)
    prompt = [ids_of_byte(name, byte) for byte in b"Hi \xe2\x82"]
    rest = ids_of_byte(name, 0xAC)
    letter = ids_of_byte(name, 0x61)

    def output(ids: list[int]) -> str:
        detokenizer = Detokenizer(vocabulary, continues=True)
        detokenizer.prime(prompt)
        return "".join(detokenizer.feed([i]) for i in ids) + detokenizer.flush()

    assert output([rest]) == "€"
    assert output([]) == ""
    if name == "byte-level":
        assert output([letter, rest]) == "a\ufffd"
    else:  # one run with the prompt's bytes, invalid as a whole: each byte of the output is replaced
        assert output([letter, rest]) == "\ufffd\ufffd"


def test_an_empty_token_inside_a_character_changes_nothing() -> None:
    _, tokenizer, vocabulary = tiny("byte-level")
    empty = id_of(tokenizer, "")
    check(tokenizer, vocabulary, [[0xE6], [empty], [0x98], [empty], [0xAF]], False)


def test_a_broken_run_at_the_end_of_a_prompt_is_over() -> None:
    _, _, vocabulary = tiny("sentencepiece")
    for tail in (b"\xff", b"a\xffb", b"\xe6\x98a"):
        detokenizer = Detokenizer(vocabulary, continues=True)
        detokenizer.prime([ids_of_byte("sentencepiece", byte) for byte in tail])
        assert detokenizer.feed([ids_of_byte("sentencepiece", 0x62)]) + detokenizer.flush() == "b"


def test_text_held_while_the_slow_window_moves_is_not_lost() -> None:
    _, tokenizer, vocabulary = tiny("double-strip")
    letter, odd = id_of(tokenizer, "cat"), id_of(tokenizer, "\ufffd")
    for before in range(24, 40):
        for held in range(1, 6):
            check(tokenizer, vocabulary, [[letter]] * before + [[odd]] * held + [[letter]] * 3, False)


def test_the_slow_window_stays_short_however_long_the_stream() -> None:
    tokenizer, vocabulary = tiny("ctc")[1:]
    rng = random.Random(3)
    for choices in ([0], [2, 0], [2], [1, 2, 3, 4, 5, 6, 7]):
        ids = [rng.choice(choices) for _ in range(2000)]
        check(tokenizer, vocabulary, [[i] for i in ids], False)


def test_a_failing_tokenizer_loses_one_window_not_the_stream() -> None:
    class Fails:
        def decode_chain(self, tokens: list[str]) -> list[str]:
            if "b" in tokens:
                raise ValueError("no b")
            return tokens

    tokenizer = tiny("ctc")[1]
    failing = Tokenizer.from_str(tokenizer.to_str())
    failing.decoder = Decoder.custom(Fails())
    vocabulary = Vocabulary.from_tokenizer(failing)
    assert vocabulary.kind_name == "slow"
    detokenizer = Detokenizer(vocabulary)
    a, b = id_of(failing, "a"), id_of(failing, "b")
    assert [detokenizer.feed([i]) for i in (a, b, a, a, b, b, a)] == ["a", "", "a", "a", "", "", "a"]
    assert detokenizer.flush() == ""


@pytest.mark.parametrize("token", [-1, 2**31, 2**40, -(2**63), 2**63 - 1])
def test_ids_far_outside_the_vocabulary_decode_to_nothing(token: int) -> None:
    for name in ("byte-level", "sentencepiece", "wordpiece", "ctc"):
        vocabulary = tiny(name)[2]
        detokenizer = Detokenizer(vocabulary)
        assert detokenizer.feed([token]) + detokenizer.flush() == ""
        assert vocabulary.token_bytes(token) == b""
