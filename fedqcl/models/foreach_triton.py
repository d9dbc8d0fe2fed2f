"""What is done to every number of many tensors, by one kernel, whatever the types of the numbers."""

# Triton's kernels are a language of their own, without types and with constants in capitals.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fedqcl.kernels import launch

# Numbers that a program looks at: few, so that the last programs of a kernel do not leave the GPU to themselves.
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


@triton.jit
def _add(targets, sources, factor, FIRST: tl.constexpr, SIZES: tl.constexpr, BLOCK: tl.constexpr):
    """As :func:`_copy`."""
    program = tl.program_id(0)
    for i in tl.static_range(len(SIZES)):
        if (program >= FIRST[i]) & (program < FIRST[i + 1]):
            at = (program - FIRST[i]) * BLOCK + tl.arange(0, BLOCK)
            inside = at < SIZES[i]
            value = tl.load(sources[i] + at, mask=inside).to(targets[i].dtype.element_ty)
            tl.store(targets[i] + at, tl.load(targets[i] + at, mask=inside) + factor * value, mask=inside)


def copy_together(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Copy tensors, converting their numbers.

    Args:
        sources: on a CUDA device, without gaps in memory.
        targets: on the same device, each with its source's layout.
    """
    grid, sizes = _deal(sources)
    launch(_copy, grid, tuple(sources), tuple(targets), **sizes)


def add_together(targets: Sequence[Tensor], sources: Sequence[Tensor], factor: float) -> None:
    """Add ``factor`` times the sources to the targets, in the targets' type.

    Args:
        targets: float32 on a CUDA device, without gaps in memory.
        sources: on the same device, each with its target's layout.
        factor: what they are multiplied by.
    """
    grid, sizes = _deal(targets)
    launch(_add, grid, tuple(targets), tuple(sources), factor, **sizes)


def _deal(tensors: Sequence[Tensor]) -> tuple[tuple[int], dict[str, Any]]:
    """The grid of programs for tensors, and the constants that tell a program which numbers are its own."""
    sizes = tuple(tensor.numel() for tensor in tensors)
    first = (0, *accumulate(triton.cdiv(size, BLOCK) for size in sizes))
    return (first[-1],), {"FIRST": first, "SIZES": sizes, "BLOCK": BLOCK}
