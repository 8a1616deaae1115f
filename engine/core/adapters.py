"""Which adapters the workers hold: loaded when a request needs them or `add_lora` names them, the one unused for longest goes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import msgspec

from engine.core.utilities import UtilityError
from engine.executor.plan import Executor
from engine.lora.errors import AdapterError
from engine.protocol import LoraRequest
from engine.scheduler.request import Adapter
from engine.scheduler.scheduler import Scheduler


class AdapterCache:
    """Up to `most` adapters, 0: none are served. Owned by the busy loop's thread, which loading holds up."""

    def __init__(self, executor: Executor, most: int) -> None:
        self._executor = executor
        self._most = most
        self._loaded: OrderedDict[int, None] = OrderedDict()

    def ready(self, adapter: Adapter, in_use: Collection[int]) -> str | None:
        """Have it loaded, in place of one that is not `in_use` if need be; what is wrong if that fails."""
        if adapter.number in self._loaded:
            self._loaded.move_to_end(adapter.number)
            return None
        try:
            self._load(adapter, in_use)
        except AdapterError as error:
            return str(error)
        return None

    def add(self, scheduler: Scheduler, *args: Any) -> bool:
        """`add_lora`: load it before somebody asks; False if it is there. UtilityError."""
        if not self._most:
            raise UtilityError("LoRA is not enabled (--enable-lora)")
        try:
            (lora,) = msgspec.convert(list(args), tuple[LoraRequest])
        except msgspec.ValidationError as error:
            raise UtilityError(f"no adapter: {error}") from error
        if lora.lora_int_id in self._loaded and not lora.load_inplace:
            return False
        try:
            self._load(Adapter(lora.lora_int_id, lora.lora_name, lora.lora_path), scheduler.adapters_in_use())
        except AdapterError as error:
            raise UtilityError(str(error)) from error
        return True

    def remove(self, scheduler: Scheduler, number: Any) -> bool:
        """`remove_lora`: False if it is not there. UtilityError while requests run with it."""
        if number not in self._loaded:
            return False
        if number in scheduler.adapters_in_use():
            raise UtilityError(f"adapter {number} is in use")
        self._drop(number)
        return True

    def numbers(self) -> list[int]:
        """Of all that are loaded."""
        return sorted(self._loaded)

    def _load(self, adapter: Adapter, in_use: Collection[int]) -> None:
        if adapter.number not in self._loaded and len(self._loaded) >= self._most:
            idle = next((number for number in self._loaded if number not in in_use), None)
            if idle is None:
                raise AdapterError(f"all {self._most} adapters in memory are in use (--max-cpu-loras)")
            self._drop(idle)
        try:
            self._executor.call("load_adapter", *adapter)
        except AdapterError:
            # Not what may be left of it, or was there before: the next request for it brings it back, or fails.
            if adapter.number in self._loaded:
                self._drop(adapter.number)
            raise
        self._loaded[adapter.number] = None
        self._loaded.move_to_end(adapter.number)

    def _drop(self, number: int) -> None:
        del self._loaded[number]
        self._executor.call("drop_adapter", number)
