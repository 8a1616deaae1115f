class StreamTable:
    live: int
    prefill_tokens: int
    finished_engines: list[int]
    def take_aborts(self) -> list[tuple[int, bytes]]: ...
