"""The load generator: a small native program (epoll, a few threads), started by `run`.

    from bench.load import Load, run
    result = run(Load(port=8000, streams=256, seconds=20, warmup_s=3, max_tokens=256, return_token_ids=True))

A clock starts before anything is sent: when a stream takes up its request (before `connect` where there is no open
connection), in an open loop when the request was due. Requests that began while the measuring phase ran count for latencies and
outcomes; tokens, events and completed requests count for throughput by when they came. The result:

| key | |
|---|---|
| `elapsed_s` | length of the measuring phase: `seconds`, or until the last of `requests` ended |
| `tokens`, `completed` | tokens that came and requests that were completed in it |
| `tokens_per_s`, `requests_per_s`, `events_per_s` | the same per second; null if nothing was measured |
| `bytes` | read in the phase, headers included |
| `requests` | of those that began in the phase: `started`, `ok`, `failed`, `disconnected` (on purpose), `unfinished` \
(running or not sent yet when draining ended), `slow` (ok, read slowly), `short` (ok with fewer tokens than asked for) |
| `failures` | count by kind: `connect_refused`, `connect_timeout`, `connect_no_port`, `connect_other`, `reset`, \
`closed_early`, `bad_response`, `error_event`, `no_done`, `timeout`, `http_STATUS` |
| `connect_failures`, `first_failure` | those of `connect_...` together; the beginning of the first error body |
| `reconnects` | requests sent again because the server had closed the idle connection (not a failure) |
| `backlog_max` | open loop: most requests that waited for one of `streams` connections |
| `ttft_ms` | to the first token: of `count` requests `mean`, `p50`, `p90`, `p99`, `p999`, `max`, in ms; none: only `count` |
| `first_event_ms` | to the first event of any kind, such as a role chunk without text |
| `itl_ms` | gaps between events with tokens, for each choice of a request |
| `tpot_ms` | first to last token of a request, divided by its tokens but one |
| `e2e_ms` | to the end of the answer |
| `connect_ms`, `lag_ms` | establishing connections; how late the generator itself was to take requests up |
| `tokens_per_event` | `mean`, `max`, `counts` {tokens: events}: more than one is clumping (`max` and `counts` with ids only) |
| `events_per_read` | above 1: several events came in one piece |
| `tokens_counted_by` | what told the number of tokens: `ids`, `usage`, `events` |
| `prompt_tokens_mean` | of the usage: with template; null if no usage came |
| `tokens_by_second` | tokens in each second of the phase |
| `cpu` | the generator's own in the phase: `user_s`, `system_s`, `us_per_token`, `cores` |
| `threads`, `load` | what was run |

Percentiles are within 0.4%, maxima exact.
"""

from bench.load.options import Load, LoadError
from bench.load.run import Phase, run

__all__ = ["Load", "LoadError", "Phase", "run"]
