"""From a request for beams to its answer, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastfront.errors import bad_value
from fastfront.openai.beams.logprobs import chat_entries, completion_lists, token_text
from fastfront.openai.beams.search import Beam, BeamSearch, NextTokens, Rules
from fastfront.openai.beams.steps import StepSink
from fastfront.openai.chat_sink import ChatSink
from fastfront.openai.events import compact
from fastfront.openai.reading import Reading
from fastfront.openai.sampling import NEUTRAL_DEFAULTS, sampling_map, verify_n
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedCall, PreparedPrompt

Body = Mapping[str, Any]


def beam_sampling(fields: Body, n: int, serving: Serving) -> dict[str, object]:
    """The sampling map of every step of `n` beams: only the temperature of a request counts. Raises ApiError."""
    verify_n(n, serving.limits.max_n, "beam_width")
    temperature = fields.get("temperature")
    temperature = serving.defaults.temperature if temperature is None else temperature
    out = sampling_map({"temperature": temperature}, NEUTRAL_DEFAULTS, serving.stops, 1, 1, 1, serving.vocab_size)
    asked = 2 * n
    if serving.max_logprobs != -1 and asked > serving.max_logprobs:
        message = f"Requested sample logprobs of {asked}, which is greater than max allowed: {serving.max_logprobs}"
        raise bad_value(message, "logprobs", asked)
    out["logprobs"] = asked
    return out


class Beams:
    """The searches behind the prompts of one call, and the answer in the end: a `fastfront.streams.prepared.Steps`.

    Belongs to one thread at a time.
    """

    def __init__(self, prepared: PreparedCall, fields: Body, serving: Serving) -> None:
        end_token = serving.stops.eos_token_id
        self._call = prepared
        self._fields = fields
        self._serving = serving
        self._searches = [
            BeamSearch(
                prompt.token_ids,
                Rules(
                    width=prepared.n,
                    max_tokens=prompt.max_tokens,
                    end_token=end_token,
                    length_penalty=fields.get("length_penalty", 1.0),
                    ignore_end=fields.get("ignore_eos", False),
                    keeps_end=prepared.include_stop_str_in_output,
                ),
            )
            for prompt in prepared.prompts
        ]

    @property
    def stream(self) -> bool:
        return self._call.stream

    def next_call(self, done: Callable[[], None], failed: Callable[[int, bytes], None]) -> PreparedCall | None:
        """What must be asked of an engine before `next_call` is called again: after `done`. None: there is an answer."""
        running = [search for search in self._searches if not search.over]
        prompts = [prompt for search in running for prompt in search.prompts()]
        if not prompts:
            return None

        def gathered(found: list[NextTokens] | None) -> None:
            for search in running:
                if found is None:
                    search.abort()
                else:
                    count = len(search.beams)
                    search.grow(found[:count])
                    del found[:count]
            done()

        return PreparedCall(
            kind="chat",
            external_id=self._call.external_id,
            created=self._call.created,
            model=self._call.model,
            prompts=[PreparedPrompt(prompt, 1) for prompt in prompts],
            sampling=self._call.sampling,
            logprobs=-1,
            tokens_as_ids=True,
            sink=StepSink(len(prompts), gathered, failed),
            cache_salt=self._call.cache_salt,
            lora_request=self._call.lora_request,
        )

    def answer(self) -> bytes:
        """The body, or all events of a stream."""
        raise NotImplementedError

    def _best(self, search: BeamSearch) -> list[tuple[Beam, str]]:
        skips = self._call.skip_special_tokens
        return [(beam, self._serving.tokenizer.decode(search.shown(beam), skips)) for beam in search.best()]

    @property
    def _prompt_tokens(self) -> int:
        return sum(prompt.length for prompt in self._call.prompts)


class ChatBeams(Beams):
    """A chat's answer, whole or in one event for each choice."""

    def __init__(self, prepared: PreparedCall, reading: Reading | None, fields: Body, serving: Serving) -> None:
        super().__init__(prepared, fields, serving)
        self._reading = reading

    def answer(self) -> bytes:
        get = self._fields.get
        best = self._best(self._searches[0])
        call = self._call if self._call.stream else self._call.replace(n=len(best))
        hides = get("include_reasoning") is False and self._reading is not None
        shows_ids = bool(get("return_token_ids"))
        echoes = bool(get("echo"))
        sink = ChatSink(call, [self._reading], self._serving.fingerprint, shows_ids=shows_ids, hides_details=hides, echoes=echoes)
        text_of = token_text(self._serving.tokenizer, self._call.tokens_as_ids)
        out, total = b"", 0
        for index, (beam, text) in enumerate(best):
            entries = chat_entries(beam, get("top_logprobs") or 0, text_of) if get("logprobs") else []
            logprobs = b",".join(compact(entry) for entry in entries)
            out += sink.add(index, text, digits(beam.tokens), logprobs, beam.finish, beam.stop_reason, len(beam.tokens))
            total += len(beam.tokens)
        return out + sink.end(self._prompt_tokens, total)


class CompletionBeams(Beams):
    """A completion's body: streams of beams there are none."""

    def answer(self) -> bytes:
        get, call = self._fields.get, self._call
        shows_ids = call.return_token_ids
        text_of = token_text(self._serving.tokenizer, call.tokens_as_ids)
        most = get("logprobs")
        choices: list[dict[str, Any]] = []
        total = 0
        for search, prompt in zip(self._searches, call.prompts, strict=True):
            for beam, text in self._best(search):
                choices.append(
                    {
                        "index": len(choices),
                        "text": prompt.echo_text + text,
                        "logprobs": None if most is None else completion_lists(beam, most, text_of),
                        "finish_reason": beam.finish,
                        "stop_reason": beam.stop_reason,
                        "token_ids": list(beam.tokens) if shows_ids else None,
                        "prompt_logprobs": None,
                        "prompt_token_ids": prompt.token_ids if shows_ids else None,
                        "routed_experts": None,
                    }
                )
                total += len(beam.tokens)
        usage = {
            "prompt_tokens": self._prompt_tokens,
            "total_tokens": self._prompt_tokens + total,
            "completion_tokens": total,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        }
        return compact(
            {
                "id": call.external_id,
                "object": "text_completion",
                "created": call.created,
                "model": call.model,
                "choices": choices,
                "service_tier": None,
                "system_fingerprint": self._serving.fingerprint or None,
                "usage": usage,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )


def digits(tokens: Sequence[int]) -> bytes:
    """Token ids as JSON has them, without brackets."""
    return b",".join(b"%d" % token for token in tokens)
