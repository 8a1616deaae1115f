"""Small tokenizers of every decoder kind, built in memory."""

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

BYTE_ALPHABET = {
    byte: chr(byte) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174 else chr(256 + rank)
    for byte, rank in zip(
        sorted(range(256), key=lambda b: (33 <= b <= 126 or 161 <= b <= 172 or b >= 174, b)), range(256), strict=True
    )
}


def spell(data: bytes) -> str:
    """Bytes in the alphabet of byte-level BPE."""
    return "".join(BYTE_ALPHABET[byte] for byte in data)


def id_of(tokenizer: Tokenizer, token: str) -> int:
    """The token's id; it must exist."""
    found = tokenizer.token_to_id(token)
    assert found is not None, token
    return found


def with_specials(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(["<bos>", "<eos>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("ta g▁", normalized=True)])
    return tokenizer


def byte_level(pieces: list[bytes]) -> Tokenizer:
    """All single bytes are ids 0..255, then `pieces`, then the special and added tokens."""
    tokens = [spell(bytes([byte])) for byte in range(256)] + [spell(piece) for piece in pieces]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return with_specials(tokenizer)


def sentencepiece(pieces: list[str], strip: bool = True, parts: list[Any] | None = None) -> Tokenizer:
    """Byte pieces are ids 0..255, then `pieces`, then the special and added tokens."""
    tokens = [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[], byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    chain = parts or [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if strip:
        chain = [*chain, decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(chain)
    return with_specials(tokenizer)


def word_level(tokens: list[str], decoder: Any) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=tokens[0]))
    if decoder is not None:
        tokenizer.decoder = decoder
    return with_specials(tokenizer)


WORDS = [
    *("[UNK]", "the", "cat", "##s", "##ing", ".", ",", "!", "?", "n't", "'m", "'s", "'ve", "'re", "do not", "'", "' "),
    *("a . b", "", "##", " x", "##.", "x##y", "é", "日本", "##語", "can", "##'", "don't do not"),
]
PIECES = [
    *("▁", "▁▁", "▁the", "cat", "▁cat▁", "", " ", "é", "▁日本", "語", ".", "<0xZZ>", "<0x+5>", "<0x4>", "<0x411>"),
    *("\ufffd", "a▁b", "▁\ufffd", "</s>x", "\n"),
]
BYTES = [
    *(b" the", "é".encode(), "👋".encode(), "👋".encode()[:2], b"\x8b!", b"a\xe6\x98", b"\xed\xa0", b"\xaf b"),
    *(b"", "\ufffd".encode(), b"\xf0", b"\xf4\x90", b"\xe0\x80", b"x\xf0\x9f"),
]

NATIVE: dict[str, tuple[str, Callable[[], Tokenizer]]] = {
    "byte-level": ("byte_level", lambda: byte_level(BYTES)),
    "sentencepiece-strip": ("metaspace", lambda: sentencepiece(PIECES)),
    "sentencepiece": ("metaspace", lambda: sentencepiece(PIECES, strip=False)),
    "metaspace-always": ("metaspace", lambda: word_level(PIECES, decoders.Metaspace("▁", "always"))),
    "metaspace-first": ("metaspace", lambda: word_level(PIECES, decoders.Metaspace("▁", "first"))),
    "metaspace-never": ("metaspace", lambda: word_level(PIECES, decoders.Metaspace("▁", "never"))),
    "wordpiece": ("wordpiece", lambda: word_level(WORDS, decoders.WordPiece("##", True))),
    "wordpiece-raw": ("wordpiece", lambda: word_level(WORDS, decoders.WordPiece("##", False))),
    "wordpiece-no-prefix": ("wordpiece", lambda: word_level(WORDS, decoders.WordPiece("", True))),
    "no-decoder": ("wordpiece", lambda: word_level(WORDS, None)),
    "sequence-of-one": ("byte_level", lambda: _sequence_of_one()),
}


def _sequence_of_one() -> Tokenizer:
    tokenizer = byte_level([b"ab", b"\xe6\x98"])
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel()])
    return tokenizer


CTC_TOKENS = ["<pad>", "|", "a", "b", "'", "n't", " .", "é", "<unk>"]
SUFFIXED = ["the</w>", "c", "at</w>", "s</w>", ".", "é</w>", "</w>"]
RUNS = [decoders.ByteFallback(), decoders.Fuse()]
SLOW: dict[str, Callable[[], Tokenizer]] = {
    "ctc": lambda: word_level(CTC_TOKENS, decoders.CTC("<pad>", "|", True)),
    "bpe-suffix": lambda: word_level(SUFFIXED, decoders.BPEDecoder()),
    "double-strip": lambda: sentencepiece(
        PIECES, strip=False, parts=[decoders.Replace("▁", " "), *RUNS, decoders.Strip(" ", 2, 0)]
    ),
    "bytes-without-replace": lambda: sentencepiece(PIECES, strip=False, parts=RUNS),
    "bytes-then-metaspace": lambda: sentencepiece(
        PIECES, strip=False, parts=[decoders.ByteFallback(), decoders.Metaspace("▁", "never")]
    ),
}
