"""The converted SmolLM2 speaks: a wrong weight order or tokenizer gives noise instead of an answer."""

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture(scope="module")
def folder(cache_folder: Path) -> Path:
    return cache_folder / "models" / "smollm2"


def test_greedy_answer_is_right(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    inputs = tokenizer(prompt, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    assert tokenizer.decode(output[0][inputs.input_ids.shape[1] :]) == "The capital of France is Paris.<|im_end|>"


def test_digits_are_tokens_of_their_own_and_any_text_survives(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("in 2024") == ["in", "Ġ", "2", "0", "2", "4"]
    for text in ("Hello  world\n\n\tx", "é 你好 🎉", "<|im_start|>user\n1234567890<|im_end|>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
