"""The six real tokenizers of the cache, loaded once."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from fastfront._speedups.vocabulary import Vocabulary
from tests.support.paths import TOKENIZERS

REAL = {
    "qwen3": "byte_level",
    "llama3_1": "byte_level",
    "gemma3": "metaspace",
    "llama2": "metaspace",
    "gptoss": "byte_level",
    "deepseek_v3": "byte_level",
}


@dataclass(frozen=True)
class Model:
    """A tokenizer with its vocabulary table."""

    name: str
    tokenizer: Tokenizer
    vocabulary: Vocabulary


def cache_folder() -> Path:
    return TOKENIZERS


@cache
def load(name: str) -> Model:
    path = cache_folder() / name / "tokenizer.json"
    if not path.exists():
        if os.environ.get("FASTFRONT_REQUIRE_MODELS"):
            pytest.fail(f"{path} is missing: run `make setup`")
        pytest.skip(f"{path} is missing: run `make setup`")
    tokenizer = Tokenizer.from_file(str(path))
    return Model(name, tokenizer, Vocabulary.from_tokenizer(tokenizer))


@pytest.fixture(params=REAL)
def real(request: pytest.FixtureRequest) -> Model:
    return load(request.param)


@pytest.fixture
def qwen3() -> Model:
    return load("qwen3")


@pytest.fixture
def llama2() -> Model:
    return load("llama2")
