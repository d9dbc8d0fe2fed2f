"""Tensors copied together against their own conversion: ``python -m tests.helpers.copied`` prints how far they differ.

Where there is no GPU, with TRITON_INTERPRET=1 in the environment, which Triton reads when it is imported.
"""

from __future__ import annotations

import json

import torch

# Shorter than a block, exactly one, more than one, and none at all.
SIZES = (5, 4096, 9000, 0, 1, 12289)


def differences(device: str) -> list[float]:
    """The largest difference of each way, to bfloat16 and back to float32, as a share of the number copied."""
    from fedqcl.models.copy_triton import copy_together

    generator = torch.Generator().manual_seed(0)
    wide = [torch.randn(size, generator=generator).to(device) for size in SIZES]
    narrow = [torch.zeros_like(value, dtype=torch.bfloat16) for value in wide]
    copy_together(wide, narrow)
    back = [torch.zeros_like(value) for value in wide]
    copy_together(narrow, back)
    pairs = [*zip(narrow, wide, strict=True), *zip(back, narrow, strict=True)]
    ratios = [((a.float() - b.float()).abs() / b.float().abs()) for a, b in pairs if len(a)]
    count = len(ratios) // 2
    return [max(ratio.max().item() for ratio in half) for half in (ratios[:count], ratios[count:])]


if __name__ == "__main__":
    print(json.dumps(differences("cpu")))
