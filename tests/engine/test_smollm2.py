"""SmolLM2-135M through the engine core process: the very text that transformers' generate gives, alone and batched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from tests.engine.conftest import Spawn
from tests.engine.wire_frontend import WireFrontend
from tests.support.paths import SMOLLM2

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]
EOS = 2
TOKENS = 16
TOKENS_ALONE = 8
OPENINGS = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):", "Water boils at",
    "To be or not to be,", "The three primary colours are", "My favourite book is", "In 1969,",
    "The best way to learn", "Photosynthesis is", "A recipe for bread:", "Dear Sir or Madam,", "1, 2, 3, 4,",
    "The quick brown fox", "Roses are red,", "import numpy as np\n", "The meaning of life", "Breaking news:",
    "Q: What is 2 + 2?\nA:", "She opened the door and", "The Pythagorean theorem", "Here is a haiku:",
    "Bonjour,", "<html>", "The mitochondria is",
]  # fmt: skip
QUESTIONS = [
    "What is gravity?", "Name three fruits.", "Who wrote Hamlet?", "Say hello in Spanish.",
    "How do I boil an egg?", "What is the largest planet?", "Write a short poem about rain.",
    "Count to five.", "What is Python?", "Why is the sky blue?", "Tell me a joke.", "What is 7 times 8?",
    "Explain photosynthesis.", "Give me a name for a cat.", "What is the speed of light?",
    "List the days of the week.", "How old is the universe?", "What do bees make?",
    "Translate 'cat' to French.", "Who are you?", "What is a prime number?", "Is water wet?",
    "Recommend a book.", "How far is the moon?", "What is democracy?",
]  # fmt: skip


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    if not (SMOLLM2 / "model.safetensors").is_file():
        pytest.skip(f"{SMOLLM2} is missing: set-up makes it")
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2)
    ids = [tokenizer(text).input_ids for text in OPENINGS]
    for question in QUESTIONS:
        messages = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids.append(tokenizer(text, add_special_tokens=False).input_ids)
    return ids


@pytest.fixture(scope="module")
def expected(prompts: list[list[int]]) -> list[list[int]]:
    model = transformers.AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32)
    width = max(map(len, prompts))
    ids = torch.tensor([[EOS] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    output = model.generate(ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, pad_token_id=EOS)
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in output[:, width:].tolist()]


def ask(frontend: WireFrontend, name: str, prompt: list[int], tokens: int) -> Any:
    params = {"temperature": 0.0, "max_tokens": tokens, "_eos_token_id": EOS, "_all_stop_token_ids": [EOS]}
    return frontend.add(name, prompt, params)


@pytest.fixture
def engine(frontend: WireFrontend, spawn: Spawn, prompts: list[list[int]]) -> WireFrontend:
    spawn("engine", SMOLLM2, "--headless")
    frontend.accept()
    return frontend


def test_greedy_text_equals_generate(engine: WireFrontend, prompts: list[list[int]], expected: list[list[int]]) -> None:
    together = [ask(engine, f"together-{index}", prompt, TOKENS) for index, prompt in enumerate(prompts)]
    engine.finish(wait_s=120)
    assert [answer.tokens for answer in together] == expected
    for index, prompt in enumerate(prompts):
        alone = ask(engine, f"alone-{index}", prompt, TOKENS_ALONE)
        engine.finish(f"alone-{index}", wait_s=120)
        assert alone.tokens == expected[index][:TOKENS_ALONE]
