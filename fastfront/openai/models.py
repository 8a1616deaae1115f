"""GET /v1/models and GET /version."""

from __future__ import annotations

import os
import time

from fastfront.openai.events import compact
from fastfront.openai.serving import Serving

API_VERSION = "0.32.0"  # of the API that is served, which is what clients look for


def models_body(serving: Serving) -> bytes:
    """The list of served names, all of one model, and of its adapters."""
    created = int(time.time())
    cards = [_card(name, created, serving.model_root, None, serving.max_model_len) for name in serving.served_names]
    if serving.adapters is not None:
        for adapter in serving.adapters.known.values():
            cards.append(_card(adapter.name, created, adapter.path, adapter.parent or serving.model, None))
    return compact({"object": "list", "data": cards})


def version_body() -> bytes:
    """The version of the API."""
    return compact({"version": API_VERSION})


def _card(name: str, created: int, root: str, parent: str | None, max_model_len: int | None) -> dict[str, object]:
    permission = {
        "id": f"modelperm-{os.urandom(8).hex()}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
