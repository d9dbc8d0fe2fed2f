"""What is done to every number of many tensors, by one kernel, from one type of numbers to another."""

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
def _share(ones, others, FIRST: tl.constexpr, SIZES: tl.constexpr, BLOCK: tl.constexpr):
    """The two tensors that a program works on, its places in them, and which of these there are.

    Program ``FIRST[i]`` is the first of tensors ``i``, which have ``SIZES[i]`` numbers.
    """
    program = tl.program_id(0)
    one, other, first, size = ones[0], others[0], 0, SIZES[0]
    for i in tl.static_range(1, len(SIZES)):
        if program >= FIRST[i]:
            one, other, first, size = ones[i], others[i], FIRST[i], SIZES[i]
    at = (program - first) * BLOCK + tl.arange(0, BLOCK)
    return one, other, at, at < size


@triton.jit
def _copy(sources, targets, FIRST: tl.constexpr, SIZES: tl.constexpr, BLOCK: tl.constexpr):
    source, target, at, inside = _share(sources, targets, FIRST, SIZES, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=inside).to(target.dtype.element_ty), mask=inside)


@triton.jit
def _add(targets, sources, factor, FIRST: tl.constexpr, SIZES: tl.constexpr, BLOCK: tl.constexpr):
    target, source, at, inside = _share(targets, sources, FIRST, SIZES, BLOCK)
    value = tl.load(source + at, mask=inside).to(target.dtype.element_ty)
    tl.store(target + at, tl.load(target + at, mask=inside) + factor * value, mask=inside)


def copy_together(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Copy tensors, converting their numbers.

    Args:
        sources: of one type, on a CUDA device, without gaps in memory.
        targets: of one type, on the same device, each with its source's layout.
    """
    grid, sizes = _deal(sources)
    launch(_copy, grid, tuple(sources), tuple(targets), **sizes)


def add_together(targets: Sequence[Tensor], sources: Sequence[Tensor], factor: float) -> None:
    """Add ``factor`` times the sources to the targets, in the targets' type.

    Args:
        targets: float32 on a CUDA device, without gaps in memory.
        sources: of one type, on the same device, each with its target's layout.
        factor: what they are multiplied by.
    """
    grid, sizes = _deal(targets)
    launch(_add, grid, tuple(targets), tuple(sources), factor, **sizes)


def _deal(tensors: Sequence[Tensor]) -> tuple[tuple[int], dict[str, Any]]:
    """The grid of programs for tensors, and the constants that tell a program which numbers are its own."""
    sizes = tuple(tensor.numel() for tensor in tensors)
    first = (0, *accumulate(triton.cdiv(size, BLOCK) for size in sizes))
    return (first[-1],), {"FIRST": first, "SIZES": sizes, "BLOCK": BLOCK}
