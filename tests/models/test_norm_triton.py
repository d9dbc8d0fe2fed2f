"""Triton's kernels on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch

from tests.helpers.fused import CASES, differences
from tests.helpers.process import run_python

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, float]]:
    """For every case how far the kernels are from plain PyTorch."""
    if torch.cuda.is_available():
        return {name: differences(case, "cuda") for name, case in CASES.items()}
    result = run_python("-m", "tests.helpers.fused", TRITON_INTERPRET="1")
    if "only 0-dimensional arrays can be converted" in result.stderr:
        pytest.skip("the interpreter of Triton 3.6 and before needs a NumPy before 2.4")
    assert result.returncode == 0, result.stderr
    interpreted: dict[str, dict[str, float]] = json.loads(result.stdout)
    return interpreted


@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_plain_pytorch(case: str, found: dict[str, dict[str, float]]) -> None:
    """Outputs, gradients and running statistics; what is stored in bfloat16 to its 8 bits, all else to float32's."""
    compared = 3 + 3 + CASES[case].shortcut
    assert len(found[case]) == compared * CASES[case].steps
    for name, difference in found[case].items():
        stored = name.startswith(("output", "gradient of images", "gradient of shortcut"))
        assert difference < (2**-8 if stored and CASES[case].dtype == "bfloat16" else 1e-5), name
