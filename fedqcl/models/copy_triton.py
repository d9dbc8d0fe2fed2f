"""Many tensors copied into others of another type by one kernel."""

# Triton's kernels are a language of their own, without types and with constants in capitals.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import triton
import triton.language as tl
from torch import Tensor

from fedqcl.kernels import launch

# Numbers that a program copies: small, so that the last programs of a kernel do not leave the GPU to themselves.
BLOCK = 4096


@triton.jit
def _copy(sources, targets, FIRST: tl.constexpr, SIZES: tl.constexpr, BLOCK: tl.constexpr):
    """Program ``FIRST[i]`` is the first of tensor ``i``, which has ``SIZES[i]`` numbers."""
    program = tl.program_id(0)
    for i in tl.static_range(len(SIZES)):
        if (program >= FIRST[i]) & (program < FIRST[i + 1]):
            at = (program - FIRST[i]) * BLOCK + tl.arange(0, BLOCK)
            inside = at < SIZES[i]
            value = tl.load(sources[i] + at, mask=inside)
            tl.store(targets[i] + at, value.to(targets[i].dtype.element_ty), mask=inside)


def copy_together(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Copy tensors, converting their numbers.

    Args:
        sources: on a CUDA device, without gaps in memory.
        targets: on the same device, each with its source's strides.
    """
    sizes = tuple(source.numel() for source in sources)
    first = (0, *accumulate(triton.cdiv(size, BLOCK) for size in sizes))
    launch(_copy, (first[-1],), tuple(sources), tuple(targets), FIRST=first, SIZES=sizes, BLOCK=BLOCK)
