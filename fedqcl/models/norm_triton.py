"""Fused batch normalisation for CUDA: ``relu(bn(x) + shortcut)`` in two kernels, its gradient in two more.

Images lie channels last, so a batch is a matrix of ``n * H * W`` rows and ``C`` columns, and a part of the batch is a
range of rows. The first kernel of a pair sums over slices of each part's rows, and the last slice to arrive adds the
slices up; the second kernel goes over the rows again. Slices are added in a fixed order, whichever arrives last, so
results repeat bit for bit.
"""

# Triton's kernels are a language of their own, without types and with constants in capitals.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from fedqcl.models.norm import BatchNormReLU

TILE = 4096
WARPS = 8
PROGRAMS = 132
MAX_SLICES = 64


@triton.jit
def _rows(part, slice_, slices, first, other, BLOCK_R: tl.constexpr):
    """The first row of a part, its length, and the range of one of its slices."""
    start = tl.where(part == 0, 0, first + (part - 1) * other)
    length = tl.where(part == 0, first, other)
    step = tl.cdiv(tl.cdiv(length, slices), BLOCK_R) * BLOCK_R
    low = slice_ * step
    return start, length, low, tl.minimum(low + step, length)


@triton.jit
def _add_slices(sums, arrived, total, square, slice_, slices, place, columns, C, BLOCK_C: tl.constexpr):
    """Leave a slice's two sums; tell whether it came last, and then the sums over all slices."""
    mine = sums + (place * slices + slice_) * 2 * C + columns
    tl.store(mine, total)
    tl.store(mine + C, square)
    tl.debug_barrier()
    mark = arrived + place * tl.num_programs(2) + tl.program_id(2)
    last = tl.atomic_add(mark, 1) == slices - 1
    total = tl.zeros((BLOCK_C,), tl.float32)
    square = tl.zeros((BLOCK_C,), tl.float32)
    if last:
        tl.store(mark, 0)
        tl.debug_barrier()
        for s in range(0, slices, 64):
            slice_s = s + tl.arange(0, 64)[:, None]
            all_ = sums + (place * slices + slice_s) * 2 * C + columns[None, :]
            total += tl.sum(tl.load(all_, mask=slice_s < slices, other=0.0, cache_modifier=".cg"), 0)
            square += tl.sum(tl.load(all_ + C, mask=slice_s < slices, other=0.0, cache_modifier=".cg"), 0)
    return last, total, square


@triton.jit
def _sum_forward(
    x, sums, arrived, mean_out, rstd_out, eps, first, other, slices, C,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    slice_, part = tl.program_id(0), tl.program_id(1)
    start, length, low, high = _rows(part, slice_, slices, first, other, BLOCK_R)
    columns = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_R)
    # Deviations from the part's first row: their squares do not cancel when the mean is large.
    shift = tl.load(x + start.to(tl.int64) * C + columns).to(tl.float32)
    total = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    square = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    for row in range(low, high, BLOCK_R):
        inside = (row + rows < high)[:, None]
        at = (start + row + rows).to(tl.int64)[:, None] * C + columns[None, :]
        value = tl.where(inside, tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - shift[None, :], 0.0)
        total += value
        square += value * value
    last, total, square = _add_slices(
        sums, arrived, tl.sum(total, 0), tl.sum(square, 0), slice_, slices, part, columns, C, BLOCK_C
    )
    if last:
        mean = total / length
        variance = tl.maximum(square / length - mean * mean, 0.0)
        tl.store(mean_out + part * C + columns, shift + mean)
        tl.store(rstd_out + part * C + columns, 1 / tl.sqrt(variance + eps))


@triton.jit
def _forward(
    x, shortcut, y, weight, bias, mean_in, rstd_in, running_mean, running_var, momentum, eps,
    first, other, slices, parts, C,
    RELU: tl.constexpr, SHORTCUT: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    slice_, part = tl.program_id(0), tl.program_id(1)
    start, _, low, high = _rows(part, slice_, slices, first, other, BLOCK_R)
    columns = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_R)
    if (slice_ == 0) & (part == 0):
        # The running statistics move part by part, so one program takes all parts in order.
        moving_mean = tl.load(running_mean + columns)
        moving_var = tl.load(running_var + columns)
        for p in range(parts):
            length = tl.where(p == 0, first, other)
            rstd = tl.load(rstd_in + p * C + columns)
            unbiased = (1 / (rstd * rstd) - eps) * (length / tl.maximum(length - 1, 1))
            moving_mean += momentum * (tl.load(mean_in + p * C + columns) - moving_mean)
            moving_var += momentum * (unbiased - moving_var)
        tl.store(running_mean + columns, moving_mean)
        tl.store(running_var + columns, moving_var)
    scale = tl.load(rstd_in + part * C + columns) * tl.load(weight + columns)
    offset = tl.load(bias + columns) - tl.load(mean_in + part * C + columns) * scale
    for row in range(low, high, BLOCK_R):
        inside = (row + rows < high)[:, None]
        at = (start + row + rows).to(tl.int64)[:, None] * C + columns[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * scale[None, :] + offset[None, :]
        if SHORTCUT:
            value += tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            value = tl.maximum(value, 0.0)
        tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _incoming(grad, y, at, inside, normal, weight, bias, RELU: tl.constexpr, SHORTCUT: tl.constexpr):
    """The gradient behind the ReLU, whose sign is worked out again where no shortcut was added."""
    value = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    if RELU and SHORTCUT:
        value = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) > 0, value, 0.0)
    elif RELU:
        value = tl.where(normal * weight + bias > 0, value, 0.0)
    return value


@triton.jit
def _sum_backward(
    grad, x, y, weight, bias, mean, rstd, sums, arrived, total_out, moment_out, first, other, slices, C,
    RELU: tl.constexpr, SHORTCUT: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    slice_, part = tl.program_id(0), tl.program_id(1)
    start, _, low, high = _rows(part, slice_, slices, first, other, BLOCK_R)
    columns = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_R)
    centre = tl.load(mean + part * C + columns)[None, :]
    scale = tl.load(rstd + part * C + columns)[None, :]
    gamma = tl.load(weight + columns)[None, :]
    beta = tl.load(bias + columns)[None, :]
    total = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    moment = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    for row in range(low, high, BLOCK_R):
        inside = (row + rows < high)[:, None]
        at = (start + row + rows).to(tl.int64)[:, None] * C + columns[None, :]
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - centre) * scale
        value = _incoming(grad, y, at, inside, normal, gamma, beta, RELU, SHORTCUT)
        total += value
        moment += value * normal
    last, total, moment = _add_slices(
        sums, arrived, tl.sum(total, 0), tl.sum(moment, 0), slice_, slices, part, columns, C, BLOCK_C
    )
    if last:
        tl.store(total_out + part * C + columns, total)
        tl.store(moment_out + part * C + columns, moment)


@triton.jit
def _backward(
    grad, x, y, weight, bias, mean, rstd, total_in, moment_in, grad_x, grad_shortcut, grad_weight, grad_bias,
    first, other, slices, parts, C,
    RELU: tl.constexpr, SHORTCUT: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    slice_, part = tl.program_id(0), tl.program_id(1)
    start, length, low, high = _rows(part, slice_, slices, first, other, BLOCK_R)
    columns = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_R)
    if (slice_ == 0) & (part == 0):
        all_total = tl.zeros((BLOCK_C,), tl.float32)
        all_moment = tl.zeros((BLOCK_C,), tl.float32)
        for p in range(parts):
            all_total += tl.load(total_in + p * C + columns)
            all_moment += tl.load(moment_in + p * C + columns)
        tl.store(grad_bias + columns, all_total)
        tl.store(grad_weight + columns, all_moment)
    centre = tl.load(mean + part * C + columns)[None, :]
    scale = tl.load(rstd + part * C + columns)[None, :]
    gamma = tl.load(weight + columns)[None, :]
    beta = tl.load(bias + columns)[None, :]
    total = (tl.load(total_in + part * C + columns) / length)[None, :]
    moment = (tl.load(moment_in + part * C + columns) / length)[None, :]
    for row in range(low, high, BLOCK_R):
        inside = (row + rows < high)[:, None]
        at = (start + row + rows).to(tl.int64)[:, None] * C + columns[None, :]
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - centre) * scale
        value = _incoming(grad, y, at, inside, normal, gamma, beta, RELU, SHORTCUT)
        if SHORTCUT:
            tl.store(grad_shortcut + at, value.to(grad_shortcut.dtype.element_ty), mask=inside)
        value = scale * gamma * (value - total - normal * moment)
        tl.store(grad_x + at, value.to(grad_x.dtype.element_ty), mask=inside)


class _Layout:
    """How a batch is cut into programs: slices of rows, parts of the batch, blocks of channels."""

    def __init__(self, x: Tensor, parts: tuple[int, ...]) -> None:
        self.C, area = x.shape[1], x.shape[2] * x.shape[3]
        self.parts = len(parts)
        self.rows = {"first": parts[0] * area, "other": parts[-1] * area}
        block_c = min(64, self.C)
        self.blocks = {"BLOCK_R": TILE // block_c, "BLOCK_C": block_c, "num_warps": WARPS}
        tiles = triton.cdiv(max(parts) * area, self.blocks["BLOCK_R"])
        share = triton.cdiv(PROGRAMS, self.parts * self.C // block_c)
        self.slices = min(tiles, share, MAX_SLICES)
        self.grid = (self.slices, self.parts, self.C // block_c)

    def scratch(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Room for the slices' sums, and two results ``[parts, C]``."""
        sums = like.new_empty(self.parts, self.slices, 2, self.C, dtype=torch.float32)
        one, two = like.new_empty(2, self.parts, self.C, dtype=torch.float32).unbind()
        return sums, one, two


def _arrivals(norm: BatchNormReLU, layout: _Layout, device: torch.device) -> Tensor:
    """The layer's counters of slices that have arrived; zero between kernels, so they are made once."""
    marks = layout.parts * layout.grid[2]
    if norm.arrived is None or norm.arrived.device != device or len(norm.arrived) < marks:
        norm.arrived = torch.zeros(marks, dtype=torch.int32, device=device)
    return norm.arrived


class _FusedBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shortcut: Tensor | None, weight: Tensor, bias: Tensor,
                norm: BatchNormReLU, parts: tuple[int, ...]) -> Tensor:  # fmt: skip
        x = x.contiguous(memory_format=torch.channels_last)
        if shortcut is not None:
            shortcut = shortcut.contiguous(memory_format=torch.channels_last)
        layout = _Layout(x, parts)
        sums, mean, rstd = layout.scratch(x)
        arrived = _arrivals(norm, layout, x.device)
        y = torch.empty_like(x)
        _sum_forward[layout.grid](
            x, sums, arrived, mean, rstd, norm.eps, slices=layout.slices, C=layout.C, **layout.rows, **layout.blocks
        )
        _forward[layout.grid](
            x, x if shortcut is None else shortcut, y, weight, bias, mean, rstd,
            norm.running_mean, norm.running_var, norm.momentum, norm.eps,
            slices=layout.slices, parts=layout.parts, C=layout.C, RELU=norm.relu, SHORTCUT=shortcut is not None,
            **layout.rows, **layout.blocks,
        )  # fmt: skip
        ctx.save_for_backward(x, y if shortcut is not None else x, weight, bias, mean, rstd, arrived)
        ctx.layout, ctx.relu, ctx.shortcut = layout, norm.relu, shortcut is not None
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, weight, bias, mean, rstd, arrived = ctx.saved_tensors
        layout: _Layout = ctx.layout
        grad = grad.contiguous(memory_format=torch.channels_last)
        sums, total, moment = layout.scratch(x)
        grad_x = torch.empty_like(x)
        grad_shortcut = torch.empty_like(x) if ctx.shortcut else None
        grad_weight, grad_bias = torch.empty_like(weight), torch.empty_like(weight)
        _sum_backward[layout.grid](
            grad, x, y, weight, bias, mean, rstd, sums, arrived, total, moment,
            slices=layout.slices, C=layout.C, RELU=ctx.relu, SHORTCUT=ctx.shortcut, **layout.rows, **layout.blocks,
        )  # fmt: skip
        _backward[layout.grid](
            grad, x, y, weight, bias, mean, rstd, total, moment,
            grad_x, grad_x if grad_shortcut is None else grad_shortcut, grad_weight, grad_bias,
            slices=layout.slices, parts=layout.parts, C=layout.C, RELU=ctx.relu, SHORTCUT=ctx.shortcut,
            **layout.rows, **layout.blocks,
        )  # fmt: skip
        return grad_x, grad_shortcut, grad_weight, grad_bias, None, None


def fused_batch_norm(norm: BatchNormReLU, x: Tensor, shortcut: Tensor | None, parts: tuple[int, ...]) -> Tensor:
    """Training-mode ``relu(bn(x) + shortcut)`` with statistics by part; updates the running statistics.

    Args:
        norm: weights, running statistics and settings.
        x: ``[n, C, H, W]`` on a CUDA device, float32 or bfloat16; ``C`` a power of 2 or a multiple of 64.
        shortcut: added before the ReLU, the same shape; may be None.
        parts: sizes of the parts, adding up to ``n``, all but the first equal.
    """
    y: Tensor = _FusedBatchNorm.apply(x, shortcut, norm.weight, norm.bias, norm, parts)
    return y
