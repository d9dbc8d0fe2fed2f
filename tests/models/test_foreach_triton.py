"""Triton's kernel on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch

from tests.helpers.foreach import differences
from tests.helpers.process import run_python

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def test_tensors_are_copied_and_added_whole_whatever_their_types() -> None:
    if torch.cuda.is_available():
        found = differences("cuda")
    else:
        result = run_python("-m", "tests.helpers.foreach", TRITON_INTERPRET="1")
        assert result.returncode == 0, result.stderr
        found = json.loads(result.stdout)
    # The interpreter cuts bits off, where a GPU rounds.
    assert 0 < found["rounded"] < 2**-7
    assert found["back"] == 0
    # A GPU rounds once where PyTorch rounds twice.
    assert found["added"] < 1e-6
