"""Mock engine core on the engine-core wire protocol: no model, one token per running request per step.

    python -m engine.mock --handshake tcp://127.0.0.1:PORT --headless [--index N] [--step-ms 10]
    python -m engine.mock --data-parallel-rpc-port PORT --headless           the same, with an engine's own flags
    python -m engine.mock --handshake ipc:///tmp/x --local                   started by a frontend, dies with it

--step-ms X      step clock; 0 steps as fast as it can. The first token of an idle engine comes at once.
--tokens random  a fixed pseudo-random sequence until max_tokens; stop ids are not looked at (for benchmarks).
--tokens echo    the request's own prompt ids, then EOS (or round again without one); stop rules as a real engine:
                 EOS, stop_token_ids, max_tokens; before min_tokens a stop token is replaced by id 100.
Logprobs, where asked for: the sampled token -0.25 (rank 1), the k alternatives are the next ids at -0.25, -1.25, ...;
prompt logprobs the same from -0.5. A malformed ADD fails alone (finish 3), if its id can be read.

--stats          send scheduler_stats (all 18 keys) with every step
--bare           leave out events (queued, scheduled) and prefill_stats, which otherwise come with each first output
--startup silent never answers after HELLO; --startup exit leaves with status 3 instead; --load-ms X loads that long;
                 --load-until FILE: until there is such a file
--ignore-sigterm otherwise: everything in flight finishes with abort, exit 0
--linger-s X     headless: leave when the frontend has been gone that long (0: stay)
--print-rate     tokens/s and CPU time on stderr every 2 s

`{index}` in the values of --report, --control, --script and --load-until is the engine index.

--report FILE appends one JSON line per event: {"event": E, ...}, on disk before the mock goes on. E is one of
    ready | add (n, id, client, prompt, params, fields: all elements of the ADD) | abort (ids, known: the live ones)
    | finish (id, reason, made) | utility (method, args) | bad (message, id) | die (how) | exit (why);
    add, abort, finish, die and exit also carry running, waiting, adds, aborts, steps, tokens as of then.

--control ADDRESS binds a REP socket that takes JSON: {"cmd": "counts"} | {"cmd": "script", "script": {}} (later ADDs)
    | {"cmd": "pause"} (no steps) | {"cmd": "step", "count": n} (by hand, meant for a paused mock) | {"cmd": "resume"}
    | {"cmd": "raw", "client": 0, "frames": [hex]} | {"cmd": "die", "how": "exit|dead|kill|hang", "code": 1}
    | {"cmd": "clock", "step_ms": x} (as --step-ms, from now on)
    | {"cmd": "open", "gate": name} (steps with that `gate` may go on, for good).
    The answer is {"ok": true, running, waiting, adds, aborts, steps, tokens, cpu_s} or {"ok": false, "error": ...}.

--script FILE is JSON (NaN, Infinity allowed). The first rule whose conditions all hold serves a request:

    {"rules": [{"when": {"prompt_has": [5, 6]}, "steps": [[1], [2, 3], {"tokens": [4], "finish": "stop"}]},
               {"when": {"order": 0}, "tokens": [1, 2, 3], "finish": "length"},
               {"when": {"name": "slow", "child": 1}, "steps": [{"delay_ms": 50, "tokens": [7]}], "then": "loop"}],
     "default": {"tokens": [9], "then": "silence"},
     "ready": {"max_model_len": 2048},
     "utilities": {"is_sleeping": {"fail": "why"}, "reset_mm_cache": {"result": null}, "get_supported_tasks": {}}}

    when       all of: order (n-th ADD, from 0) | name (extra_args.script of the request) | child (index among the ADDs
               of one parent: same external id and arrival time, else the `i_` of the id) | prompt (exactly these ids)
               | prompt_has (contains this run of ids) | prompt_len | client. No `when`: always.
    A request may bring its own rule instead: extra_args {"script": {...rule...}} or the same as a JSON string.
    No rule and no default: the --tokens mode.
    rule       steps, or tokens (short for one step per token); finish, stop_reason, error (short for the last step's);
               then: what follows the last step if nothing has finished the request: silence (default) | loop (the steps
               again) | random | echo | stop | length (finish without a token);
               obey (default true): EOS, stop_token_ids and max_tokens apply to steps without a finish of their own.
    step       [ids] or {...} with
      tokens       several ids in one step are sent together, none: nothing is sent unless finish is given
      finish       stop | length | abort | error | repetition, or any integer; stop_reason: integer, string or null
      error        {"code", "message", "retryable"}: the error map (19th element), with finish error
      logprobs     one per token: {"logprob": x, "rank": r, "top": [[id, x], ...]}; x may be NaN or -Infinity
      wait_steps   let that many steps pass first; delay_ms: wait that long first
      gate         a name: wait first until the control socket has opened it
      stall_ms     the whole engine stands still that long
      raw          hex, or a list of hex frames, sent as a message of its own on the request's output
      as_id        send this step's output under another request id
      die          exit (status exit_code) | dead (ENGINE_CORE_DEAD, then exit) | kill (SIGKILL) | hang (neither reads
                   nor steps), after this step's output is on its way
    ready      overrides keys of the ready payload.
    utilities  answers by method: {"result": x}, {"fail": message} or {} for none.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import msgspec
import zmq

from engine.lifecycle import die_with_parent, set_title
from engine.mocking.loop import MockLoop
from engine.mocking.options import MockOptions, parse
from engine.mocking.report import Report
from engine.mocking.script import Script, ScriptError
from engine.protocol import ReadyPayload
from engine.transport import FrontendLink, HandshakeError

LOOK_S = 0.01
"""How often a loading mock looks for the file that ends it."""


def ready_payload(options: MockOptions, script: Script, stats_address: str | None) -> dict[str, Any]:
    """The ready payload with the script's overrides."""
    payload = ReadyPayload(
        max_model_len=options.max_model_len,
        num_gpu_blocks=100000,
        block_size=16,
        dtype=options.dtype,
        max_num_seqs=options.max_seqs,
        max_num_batched_tokens=8192,
        instance_id="mock",
        dp_stats_address=stats_address,
        vllm_version=options.version,
        data_parallel_rank=options.index,
        kv_cache_size_tokens=1_600_000,
        kv_cache_max_concurrency=1_600_000 / options.max_model_len,
        effective_attention_block_size=16,
        supports_lora=options.max_loras > 0,
        max_loras=options.max_loras,
    )
    return {**msgspec.structs.asdict(payload), **script.ready}


def main(argv: list[str] | None = None) -> int:
    """Run the mock; returns its exit status."""
    options = parse(sys.argv[1:] if argv is None else argv, __doc__ or "")
    set_title(f"fastfront::mock-engine-{options.index}")
    if not options.headless:
        die_with_parent()
    try:
        script = Script.load(options.script) if options.script else Script({})
    except (ScriptError, OSError, ValueError) as error:
        print(f"engine.mock: --script {options.script}: {error}", file=sys.stderr)
        return 2
    report = Report(options.report)
    try:
        link = FrontendLink(
            zmq.Context.instance(),
            options.handshake,
            options.index,
            local=not options.headless,
            headless=options.headless,
        )
    except HandshakeError as error:
        print(f"engine.mock: {error}", file=sys.stderr)
        return 1
    if options.startup == "exit":
        return 3
    while options.startup == "silent":
        time.sleep(3600)
    time.sleep(options.load_ms / 1e3)
    while options.load_until is not None and not os.path.exists(options.load_until):
        time.sleep(LOOK_S)
    watch = link.connect()
    loop = MockLoop(options, link, watch, script, report)
    link.announce(ready_payload(options, script, link.addresses.frontend_stats_publish_address))
    report.write("ready", index=options.index)
    return loop.run()


if __name__ == "__main__":
    sys.exit(main())
