"""Triton's kernel on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch

from tests.helpers.copied import differences
from tests.helpers.process import run_python

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def test_tensors_are_copied_whole_and_converted() -> None:
    if torch.cuda.is_available():
        rounded, exact = differences("cuda")
    else:
        result = run_python("-m", "tests.helpers.copied", TRITON_INTERPRET="1")
        assert result.returncode == 0, result.stderr
        rounded, exact = json.loads(result.stdout)
    # The interpreter cuts bits off, where a GPU rounds.
    assert 0 < rounded < 2**-7
    assert exact == 0
