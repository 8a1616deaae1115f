"""GET /v1/models and GET /version."""

from __future__ import annotations

import os
import time

from fastfront.openai.events import compact
from fastfront.openai.serving import Serving

API_VERSION = "0.32.0"  # of the API that is served, which is what clients look for


def models_body(serving: Serving) -> bytes:
    """The list of served names, all of one model."""
    created = int(time.time())
    return compact({"object": "list", "data": [_card(name, created, serving) for name in serving.served_names]})


def version_body() -> bytes:
    """The version of the API."""
    return compact({"version": API_VERSION})


def _card(name: str, created: int, serving: Serving) -> dict[str, object]:
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
        "root": serving.model_root,
        "parent": None,
        "max_model_len": serving.max_model_len,
        "permission": [permission],
    }
