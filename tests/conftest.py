"""Settings for all tests: one thread, reproducible examples, and no trace of one test in the next."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.helpers.process import contained

# Before torch is imported, and for the processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"

settings.register_profile("suite", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _contained() -> Iterator[None]:
    with contained():
        yield
