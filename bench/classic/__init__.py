"""The classic layout, as a control for benchmarks: API-server processes on ordinary Python, one event loop each.

What a frontend usually looks like when it is cut down to its bones: no web framework, no pydantic, a dozen fields. Every process
has its own tokenizer and its own client index at the engine; they share one listening socket, and a connection stays
with the process that accepted it. Per token, in Python on the loop: msgspec decodes the step, `tokenizers` decodes the
stream, stop strings are looked for, the request's coroutine wakes up, and `json` makes the event.
"""
