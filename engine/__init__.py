"""Engine side: engine core, scheduler, paged KV cache, model runner, sampler and the mock engine.

Runs on ordinary (GIL) CPython. Shares no code with the frontend: both speak the engine-core wire protocol.
"""
