"""Memory that was freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import re
from pathlib import Path
from tokenizers import Tokenizer
from fastfront._speedups.memory import trim

def resident() -> int:
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

Tokenizer.from_str('{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,'
    ' "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": {"type": "WordLevel", "unk_token": "0", "vocab": {'
    + ", ".join(f'"{k}": {k}' for k in range(300_000)) + "}}}")
before = resident()
assert trim()
print(before - resident())
"""


def test_what_a_tokenizer_left_is_given_back() -> None:
    """In a process of its own: in this one others hold memory. The tokenizer is gone; its pages are still there before."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5, "MB"
