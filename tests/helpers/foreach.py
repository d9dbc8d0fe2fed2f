"""Kernels for many tensors against plain PyTorch: ``python -m tests.helpers.foreach`` prints how far they differ.

Where there is no GPU, with TRITON_INTERPRET=1 in the environment, which Triton reads when it is imported.
"""

from __future__ import annotations

import json

import torch
from torch import Tensor

# Shorter than a block, exactly one, more than one, and none at all.
SIZES = (5, 4096, 9000, 0, 1, 12289)


def differences(device: str) -> dict[str, float]:
    """The largest difference of each way, as a share of the number expected.

    The ways: copies rounded to bfloat16, copies back to float32, and a bfloat16 multiple added to float32.
    """
    from fedqcl.models.foreach_triton import add_together, copy_together

    generator = torch.Generator().manual_seed(0)
    wide = [torch.randn(size, generator=generator).to(device) for size in SIZES]
    narrow = [torch.zeros_like(value, dtype=torch.bfloat16) for value in wide]
    copy_together(wide, narrow)
    back = [torch.zeros_like(value) for value in wide]
    copy_together(narrow, back)
    moved = [value.clone() for value in wide]
    add_together(moved, narrow, -0.75)
    expected = [value - 0.75 * step.float() for value, step in zip(wide, narrow, strict=True)]
    return {
        "rounded": _difference(narrow, wide),
        "back": _difference(back, narrow),
        "added": _difference(moved, expected),
    }


def _difference(results: list[Tensor], expected: list[Tensor]) -> float:
    pairs = [(a.float(), b.float()) for a, b in zip(results, expected, strict=True) if len(a)]
    return max(((a - b).abs() / b.abs()).max().item() for a, b in pairs)


if __name__ == "__main__":
    print(json.dumps(differences("cpu")))
