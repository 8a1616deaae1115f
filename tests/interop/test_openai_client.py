"""The official client against the whole stack: every answer is what `generate` gives, alone and in a crowd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from tests.support.server import Server

TOKENS = 16
SUBJECTS = ("Paris", "the moon", "bread", "a cat", "rain", "gold", "Monday", "music")
SUBJECTS += ("trees", "zero", "salt", "time", "a bridge", "snow", "tea", "sand")
