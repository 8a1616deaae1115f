"""The official client against the whole stack: every answer is what `generate` gives, alone and in a crowd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from tests.support.server import Server

TOKENS = 16
SUBJECTS = ["Paris", "the moon", "bread", "a cat", "rain", "gold", "Monday", "music"]
SUBJECTS += ["trees", "zero", "salt", "time", "a bridge", "snow", "tea", "sand"]
QUESTIONS = [f"{ask} {subject}?" for ask in ("What is", "Tell me about") for subject in SUBJECTS]


@pytest.fixture(scope="module")
def folder(cache_folder: Path) -> Path:
    path = cache_folder / "models" / "smollm2"
    assert path.is_dir(), "run `make setup`"
    return path


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, tuple[str, str]]:
    """Per question: the greedy answer as a chat, and as a plain completion of the question's text."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    chats = tokenizer.apply_chat_template(
        [[{"role": "user", "content": question}] for question in QUESTIONS], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    answers = greedy(model, chats + tokenizer(QUESTIONS)["input_ids"])
    texts = [str(tokenizer.decode(ids, skip_special_tokens=True)) for ids in answers]
    return {q: (texts[k], texts[k + len(QUESTIONS)]) for k, q in enumerate(QUESTIONS)}


def greedy(model: PreTrainedModel, prompts: list[list[int]]) -> list[list[int]]:
    """The greedy continuation of every prompt, cut at the end of sequence."""
    width, end = max(map(len, prompts)), model.generation_config.eos_token_id
    ids = torch.tensor([[end] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, pad_token_id=end)[
            :, width:
        ].tolist()
    return [row[: row.index(end)] if end in row else row for row in out]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("openai"), "--dtype", "float32", model=folder) as server:
        yield server.wait_ready(timeout_s=300)


async def ask(client: openai.AsyncOpenAI, model: str, question: str, chat: bool, stream: bool) -> str:
    if chat:
        call = client.chat.completions.create
        options = {"messages": [{"role": "user", "content": question}], "max_completion_tokens": TOKENS}
    else:
        call = client.completions.create  # type: ignore[assignment]
        options = {"prompt": question, "max_tokens": TOKENS}
    answer = await call(model=model, temperature=0, stream=stream, **options)  # type: ignore[call-overload]
    if not stream:
        choice = answer.choices[0]
        return str(choice.message.content if chat else choice.text)
    text = ""
    async for chunk in answer:
        for choice in chunk.choices:
            text += (choice.delta.content if chat else choice.text) or ""
    return text


def test_64_at_once_equal_generate(server: Server, folder: Path, expected: dict[str, tuple[str, str]]) -> None:
    async def crowd() -> list[tuple[str, str, str]]:
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", timeout=300) as client:
            kinds = [(q, k % 2 == 0, k % 4 < 2) for k, q in enumerate(QUESTIONS * 2)]
            texts = await asyncio.gather(*(ask(client, str(folder), q, chat, stream) for q, chat, stream in kinds))
        return [(q, text, expected[q][0 if chat else 1]) for (q, chat, _), text in zip(kinds, texts, strict=True)]

    answers = asyncio.run(crowd())
    assert len(answers) == 64
    assert [(q, text) for q, text, _ in answers] == [(q, wanted) for q, _, wanted in answers]


def test_models_and_errors(server: Server, folder: Path) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == [str(folder)]
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(model=str(folder), temperature=9, messages=[{"role": "user", "content": "x"}])
