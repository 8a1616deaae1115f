"""Fixtures that tests of every part share."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.paths import CACHE

# Timing never decides a test: a slow machine must not turn a slow example into a failure.
settings.register_profile("fastfront", deadline=None)
settings.load_profile("fastfront")

# Shells have programs in the background ignore it, and what these start too. Programs under test are to hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cache_folder() -> Path:
    """The cache that set-up fills: models and tokenizers are under it."""
    return CACHE
