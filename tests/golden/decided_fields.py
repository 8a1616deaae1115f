"""Which differences between answers to generated requests are decided on purpose, and why, as docs/api_coverage.md has it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.golden.compare import Json

Found = list[tuple[str, Any, Any]]
_ODD_TEXT = ("text_offset", "tokens", "decoded_token", "top_logprobs", "token_logprobs")
_DOCUMENTS = ("/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json")
_REMOVED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend")
_MOST_NESTED = 200
# Ends of references, bounds, lists and escapes that mean nothing, and that xgrammar and guidance pass over.
_WRONG_IN_ITSELF = re.compile(
    r'"min\w+": -1|"(any|one|all)Of": \[\]|"?\$ref\\?": \\?"(#"|http)|"\$defs": \d|::="'
    r'|"(regex|pattern)": "(\\{2}"|\[\^\]"|.*\\[A-Z])'
)
_POOLING = (
    "/v1/embeddings", "/v2/embed", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
    "/generative_scoring",
)  # fmt: skip


class Case(NamedTuple):
    """A request and what differs; statuses are None where they are the same."""

    request: Json
    found: Found
    vllm: int | None
    here: int | None

    @property
    def body(self) -> Json:
        body = self.request.get("json")
        return body if isinstance(body, dict) else {}

    @property
    def id(self) -> str:
        return str(self.request["id"])

    def error_here(self) -> Json:
        """The error of this project's answer, {} if vLLM's is one, too."""
        error = next((got for path, _, got in self.found if path == ".body.error"), {})
        return error if isinstance(error, dict) else {}


def _is_no_object(value: object) -> bool:
    return value is not None and not isinstance(value, dict)


def _all_paths(case: Case, *parts: str) -> bool:
    return all(any(part in path for part in parts) for path, _, _ in case.found)


def _is_stream(case: Case) -> bool:
    return bool(case.body.get("stream"))


def _wrong_structure(case: Case) -> bool:
    return case.vllm == 500 and case.here == 400 and _is_no_object(case.body.get("structured_outputs"))


def _logprobs_that_never_came(case: Case) -> bool:
    return bool(case.body.get("logprob_token_ids")) and (case.vllm == 500 or _all_paths(case, ".choices", ".rest"))


def _does_not_fit(case: Case) -> bool:
    return case.here == 400 and case.error_here().get("param") in ("input_tokens", "input_text")


def _truncated_for_the_answer(case: Case) -> bool:
    counts = any("completion_tokens" in path or "output_tokens" in path for path, _, _ in case.found)
    wanted = case.body.get("truncate_prompt_tokens") == -1 or case.body.get("truncation") == "auto"
    return wanted and case.vllm is None and counts


def _nothing_to_generate(case: Case) -> bool:
    empty = re.search(r'"type": \[\]|"choice": \[("[^"]*", )*""', json.dumps(case.body))
    return case.vllm == 200 and case.here == 400 and empty is not None


def _wrong_in_itself(case: Case) -> bool:
    return case.vllm == 200 and case.here == 400 and _WRONG_IN_ITSELF.search(json.dumps(case.body)) is not None


def _names_the_tag(case: Case) -> bool:
    wanted = case.body.get("structured_outputs")
    return isinstance(wanted, dict) and "structural_tag" in wanted and _all_paths(case, ".error.param")


def _counted_all_the_same(case: Case) -> bool:
    return case.request["path"].endswith("/count_tokens") and case.vllm == 400 and case.here == 200


def _text_for_a_boolean(case: Case) -> bool:
    """vLLM takes any text for true where it looks before the types are read."""
    return isinstance(case.body.get("background"), str) and case.vllm == 400 and case.here == 200


def _earlier_answer(case: Case) -> bool:
    """vLLM takes such an item for parts that it looks at later, and finds none."""
    given = case.body.get("input")
    answers = [item for item in (given if isinstance(given, list) else ()) if isinstance(item, dict) and "status" in item]
    read = any(item.get("content") == [] or isinstance(item.get("content"), str) for item in answers)
    return case.vllm in (400, 500) and case.here == 200 and read


def _forced_without_parser(case: Case) -> bool:
    forced = case.body.get("tool_choice") not in (None, "auto", "none")
    return case.request["path"] == "/v1/responses" and forced and case.vllm == 200 and case.here == 400


def _text_is_the_replacement(case: Case) -> bool:
    """A text that holds U+FFFD itself: vLLM takes it for the beginning of a character."""
    tokens = [(want, got) for path, want, got in case.found if path.endswith(".token")]
    return ("", "\ufffd") in tokens and _all_paths(case, ".token", ".bytes")


def _space_in_type(case: Case) -> bool:
    return " ;" in case.request.get("headers", {}).get("content-type", "")


def _without_shape(case: Case) -> bool:
    """vLLM's own body of an error is FastAPI's."""
    errors = _all_paths(case, ".body.error", ".body.detail")
    return case.vllm is None and errors and any(path == ".body.detail" for path, _, _ in case.found)


def _no_such_route(case: Case) -> bool:
    path = case.request["path"].partition("?")[0].rstrip("/")
    return path in ("/metrics", "/scale_elastic_ep", "/is_scaling_elastic_ep", "/v1/responses/render")


def _early(case: Case) -> bool:
    return case.vllm == 200 and case.here == 400 and _is_stream(case)


def _beams(case: Case) -> bool:
    return bool(case.body.get("use_beam_search")) and _all_paths(case, "finish_reason", "stop_reason", "token_ids")


def _parts_of_batches(case: Case) -> bool:
    has_parts = '"content": [' in json.dumps(case.body)
    return case.request["path"].endswith("/batch") and case.vllm == 200 and case.here == 400 and has_parts


def _calls_in_batches(case: Case) -> bool:
    """vLLM reads the arguments of calls that were made before into objects, then refuses those as it checks once more."""
    held = any("tool_calls" in message for one in case.body.get("messages") or () if isinstance(one, list) for message in one)
    return case.request["path"].endswith("/batch") and case.vllm == 400 and case.here == 200 and held


def _stop_in_special_token(case: Case) -> bool:
    """vLLM's parsers tell special tokens by their ids, and show or drop what a stop string left of one as the pieces fall."""
    stops, special = case.body.get("stop") or (), re.findall(r"<\|[^|]*\|>", json.dumps(case.body.get("messages")))
    cut = isinstance(stops, list) and any(stop in token for stop in stops for token in special)
    return cut and _is_stream(case) and _all_paths(case, "delta.content", "stop_reason")


def _reasoning_in_streams(case: Case) -> bool:
    return _is_stream(case) and _all_paths(case, "reasoning_tokens")


def _no_call(case: Case) -> bool:
    forced = case.body.get("tool_choice") not in (None, "none", "auto")
    return forced and all(want in ("tool_calls", "tool_use") for _, want, _ in case.found)


def _strict_json(case: Case) -> bool:
    raw = case.request.get("raw", "")
    return re.search(r"\\u[dD][89abAB]\w\w(?!\\u[dD][c-fC-F])", raw) is not None or raw.count("[") + raw.count("{") > _MOST_NESTED


def _odd_text(case: Case) -> bool:
    return _all_paths(case, *_ODD_TEXT) and _all_paths(case, "logprobs")


def _several_errors(case: Case) -> bool:
    several = re.search(r"^raw-type|(^|-)(both|mixx?)-", case.id) is not None
    errors = _all_paths(case, ".status", ".body.error", ".body.detail")
    return several and errors and case.vllm in (None, 400, 500) and case.here in (None, 400, 404)


RULES: list[tuple[str, Callable[[Case], bool]]] = [
    ("removed fields are refused, not ignored", lambda case: any(name in case.body for name in _REMOVED)),
    ("best_of above n is refused", lambda case: case.body.get("best_of") not in (None, 1)),
    ("bytes of logprobs are the token's own", lambda case: _all_paths(case, "bytes")),
    ("a request's fault is a 400", _wrong_structure),
    ("logprob_token_ids without logprobs from the engine", _logprobs_that_never_came),
    ("what does not fit behind the prompt is refused", _does_not_fit),
    ("calls that nobody could read are not forced, in Responses as in chats", _forced_without_parser),
    ("a token that is U+FFFD is shown", _text_is_the_replacement),
    ("truncation leaves room for the answer", _truncated_for_the_answer),
    ("there would be nothing to generate", _nothing_to_generate),
    ("constraints that are wrong in themselves are refused", _wrong_in_itself),
    ("errors of a structural tag name its field", _names_the_tag),
    ("tokens of a prompt that is too long are counted", _counted_all_the_same),
    ("texts that stand for booleans mean what they say", _text_for_a_boolean),
    ("an earlier answer may be one text, or empty", _earlier_answer),
    ("white space before a content type's parameters is none of its name", _space_in_type),
    ("errors come before a stream", _early),
    ("parts of content without a shape are refused in batches too", _parts_of_batches),
    ("batches may hold conversations with calls", _calls_in_batches),
    ("a stop string in a special token stops there too", _stop_in_special_token),
    ("every choice of a streamed beam search ends", _beams),
    ("reasoning that was not ended counts in streams too", _reasoning_in_streams),
    ("a forced call that did not come", _no_call),
    ("unknown paths, wrong methods and bodies that are none have the one shape", _without_shape),
    ("there is nothing to post", _no_such_route),
    ("pooling is not implemented", lambda case: case.request["path"].partition("?")[0].rstrip("/") in _POOLING),
    ("documents are this project's", lambda case: case.request["path"].rstrip("/") in _DOCUMENTS),
    ("what is no UTF-8 is no body", lambda case: "raw_hex" in case.request),
    ("lone surrogates and deep nesting are refused at once", _strict_json),
    ("a header beyond 64 bits is not taken", lambda case: case.vllm == 500 and case.id.startswith("head-")),
    ("engines are chosen in Responses too", lambda case: case.id.startswith("head-/v1/responses")),
    ("tokens of an echoed prompt join to its text", _odd_text),
    ("a prompt that ends inside a character is not repeated", lambda case: case.id.startswith("ids-")),
    ("of several errors any one is told", _several_errors),
]


def reason_of(request: Json, found: Found) -> str | None:
    """Why this difference is decided; None if it is not."""
    vllm, here = next(((want, got) for path, want, got in found if path == ".status"), (None, None))
    case = Case(request, found, vllm, here)
    return next((reason for reason, holds in RULES if holds(case)), None)
