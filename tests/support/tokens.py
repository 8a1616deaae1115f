"""Token ids by what they stand for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer


@cache
def byte_alphabet() -> tuple[str, ...]:
    """The character that stands for each byte in vocabularies of byte-level BPE."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    shown = {byte: chr(byte) for byte in plain} | {byte: chr(256 + k) for k, byte in enumerate(rest)}
    return tuple(shown[byte] for byte in range(256))


class Pieces:
    """Ids of one tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def named(self, name: str) -> int:
        """The id of a vocabulary entry spelled as the vocabulary spells it."""
        found = self.tokenizer.token_to_id(name)
        assert found is not None, f"{name!r} is no token"
        return int(found)

    def byte_level(self, piece: str | bytes) -> int:
        """The one token of a byte-level vocabulary that stands for this text or these bytes."""
        data = piece.encode() if isinstance(piece, str) else piece
        return self.named("".join(byte_alphabet()[byte] for byte in data))

    def many(self, *pieces: str | bytes) -> list[int]:
        """The tokens of these pieces, one each."""
        return [self.byte_level(piece) for piece in pieces]

    def encode(self, text: str) -> list[int]:
        """A text's ids without special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens left out."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))
