"""From what a step brought to what goes on the wire."""

from __future__ import annotations

from engine.executor.plan import Logprobs, StepResult
from engine.protocol import EngineCoreOutput, Event, FailedOutput, FinishReason, OutputError, PrefillStats, array
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Outcome


def output_of(outcome: Outcome, result: StepResult, log_stats: bool) -> EngineCoreOutput:
    """The output of one request in one step; what is sent once only (events, stats of the prompt) is taken off the request."""
    request, tokens, stop = outcome
    if stop is not None and stop.finish is FinishReason.ERROR:
        error = OutputError("validation_error", "the constraints on the output leave no token that its grammar allows")
        return failure(request.request_id, error)
    output = EngineCoreOutput(request.request_id, tokens, trace_headers=request.trace_headers)
    if stop is not None:
        output.finish_reason, output.stop_reason = stop.finish, stop.reason
        if request.draft_counts is not None:
            output.spec_decode_metrics = request.draft_counts.of_request()
    if result.logprobs and request.request_id in result.logprobs:
        rows = result.logprobs[request.request_id]
        output.new_logprobs = _wire_logprobs(Logprobs(*(part[: len(tokens)] for part in rows)))
    if request.events and log_stats:
        output.events = [Event(kind, when) for kind, when in request.events]
        request.events = []
    if request.answered:
        return output
    request.answered = True
    prompt = len(request.prompt)
    cached = request.cached or 0
    output.prefill_stats = PrefillStats(prompt, prompt - cached, cached, cached, 0, _created(request, cached))
    if request.request_id in result.prompt_logprobs:
        output.new_prompt_logprobs_tensors = _wire_prompt_logprobs(result.prompt_logprobs[request.request_id])
    return output


def _created(request: Request, cached: int) -> int:
    """How many tokens of the prompt are in blocks that others can read now and could not before."""
    if request.prefix is None:
        return 0
    size = request.prefix.block_size
    return max(0, len(request.prompt) // size * size - cached)


def failure(request_id: str, error: OutputError) -> FailedOutput:
    """The only output of a request that cannot be served."""
    return FailedOutput(request_id, [], finish_reason=FinishReason.ERROR, error=error)


def aborted(request: Request) -> EngineCoreOutput:
    """The last output of a request that this engine ends by itself."""
    return EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ABORT)


def _wire_logprobs(logprobs: Logprobs) -> list[object]:
    return [*_arrays(logprobs, ("<i4", "<f4", "<i8")), None]


def _wire_prompt_logprobs(logprobs: Logprobs) -> list[object]:
    # These go as tensors, which have other names of types and 4-byte ranks.
    narrow = logprobs._replace(ranks=logprobs.ranks.astype("<i4"))
    return [*_arrays(narrow, ("int32", "float32", "int32")), None, None]


def _arrays(logprobs: Logprobs, types: tuple[str, str, str]) -> list[object]:
    return [array(kind, list(part.shape), part.tobytes()) for kind, part in zip(types, logprobs, strict=True)]
