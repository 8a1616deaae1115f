"""LoRA adapters: which ones requests can name, and what is told to engines about them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from fastfront._speedups.msgpack import packb
from fastfront.errors import ApiError, EngineError

log = logging.getLogger("fastfront")
LoraRequest = list[Any]                            # name, number, path, base model, load_inplace, is_3d_lora_weight


class Adapter(NamedTuple):
    """One adapter as requests use it; `wire` is the encoded lora_request of their ADD messages."""

    name: str
    number: int
    path: str
    parent: str | None                             # the served name that it was said to belong to
    wire: bytes


class Adapters:
    """The adapters of one server.

    Any thread reads `known`, by name, which is replaced as a whole, never changed; `load` and `unload` hold up each other only.
    """

    def __init__(self, served_names: Collection[str]) -> None:
        self.known: Mapping[str, Adapter] = {}
        self._served_names = served_names
        self._changing = threading.Lock()
        self._last = 0

    def load(
        self,
        name: str,
        path: str,
        add: Callable[[LoraRequest], object],
        *,
        in_place: bool = False,
        parent: str | None = None,
        stacked: bool = False,
    ) -> str:
        """Has engines load an adapter, then lets requests name it; what to tell whoever asked.

        `add` calls all engines and raises EngineError with the words of one that refuses; `stacked`: weights of experts come as
        one tensor per layer. Raises ApiError as the API words it; nothing has changed then.
        """
        if not name or not path:
            raise _wrong("Both 'lora_name' and 'lora_path' must be provided.")
        if name in self._served_names:
            raise _wrong(f"The lora adapter '{name}' conflicts with a served base model.")
        with self._changing:
            before = self.known[name] if name in self.known else None  # noqa: SIM401 - docs/structures.md, rules between threads
            if before is not None and not in_place:
                raise _wrong(
                    f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set "
                    "'load_inplace' to True."
                )
            if before is None:
                self._last += 1
            number = self._last if before is None else before.number
            base = parent if parent in self._served_names else None
            try:
                add([name, number, path, base, in_place, stacked])
            except EngineError as error:
                raise _refused(name, path, str(error)) from None
            # Requests never ask for loading anew: each of them would.
            wire = packb([name, number, path, base, False, stacked])
            self.known = {**self.known, name: Adapter(name, number, path, base, wire)}
        log.info("LoRA adapter %r: loaded from %s", name, path)
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, name: str) -> str:
        """Requests cannot name it any more; those that run go on. Raises ApiError."""
        if not name:
            raise _wrong("'lora_name' needs to be provided to unload a LoRA adapter.")
        with self._changing:
            if name not in self.known:
                raise ApiError(f"The lora adapter '{name}' cannot be found.", status=404, kind="NotFoundError")
            self.known = {other: adapter for other, adapter in self.known.items() if other != name}
        log.info("LoRA adapter %r: unloaded", name)
        return f"Success: LoRA adapter '{name}' removed successfully."


def _wrong(message: str) -> ApiError:
    return ApiError(message, kind="InvalidUserInput")


def _refused(name: str, path: str, said: str) -> ApiError:
    """What an engine said, as an answer."""
    missing = f"Loading lora {name} failed: No adapter found for {path}"
    if missing in said:
        return ApiError(missing, status=404, kind="NotFoundError")
    return ApiError(said, status=500, kind="InternalServerError")
