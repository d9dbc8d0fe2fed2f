"""Fused batch normalisation for CUDA: ``relu(bn(x) + shortcut)`` in one or two kernels, its gradient likewise.

Images lie channels last, so a batch is a matrix of ``n * H * W`` rows and ``C`` columns, and a part of the batch is a
range of rows. A small part fits into one program's registers for a block of columns, and one kernel does everything.
Of a large one, a first kernel sums over slices of rows, and a second goes over the rows again. Whichever program comes
last adds up what the others have left, in a fixed order, so results repeat bit for bit.
"""

# Triton's kernels are a language of their own, without types and with constants in capitals.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedqcl.kernels import launch

if TYPE_CHECKING:
    from fedqcl.models.norm import BatchNormReLU

# What changes from layer to layer and from task to task: kernels are compiled once for all of its values.
VARYING = ["first", "other", "slices", "parts", "relu", "joined", "twin_given"]
SMALL_ROWS = 2048
# Numbers that a program asks for before it waits, and programs of a kernel: half of the GPU's multiprocessors, as other
# clients' kernels run beside it.
TILE = 8192
PROGRAMS = 66


@triton.jit
def _columns(BLOCK_C: tl.constexpr):
    return tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)


@triton.jit
def _part(part, first, other):
    """The first row of a part, and its length."""
    return tl.where(part == 0, 0, first + (part - 1) * other), tl.where(part == 0, first, other)


@triton.jit
def _slice(length, slice_, slices, BLOCK_R: tl.constexpr):
    """The rows of one slice of a part."""
    step = tl.cdiv(tl.cdiv(length, slices), BLOCK_R) * BLOCK_R
    return slice_ * step, tl.minimum((slice_ + 1) * step, length)


@triton.jit
def _is_last(arrived, place, count):
    """Whether the other ``count - 1`` programs of a place have been here; then what they stored can be read."""
    tl.debug_barrier()
    mark = arrived + place * tl.num_programs(0) + tl.program_id(0)
    last = tl.atomic_add(mark, 1) == count - 1
    if last:
        tl.store(mark, 0)
        tl.debug_barrier()
    return last


@triton.jit
def _sum_slices(sums, part, slices, columns, channels, BLOCK_C: tl.constexpr):
    """A part's two sums over its slices."""
    one = tl.zeros((BLOCK_C,), tl.float32)
    two = tl.zeros((BLOCK_C,), tl.float32)
    for start in range(0, slices, 64):
        rows = start + tl.arange(0, 64)[:, None]
        at = sums + (part * slices + rows) * 2 * channels + columns[None, :]
        one += tl.sum(tl.load(at, mask=rows < slices, other=0.0, cache_modifier=".cg"), 0)
        two += tl.sum(tl.load(at + channels, mask=rows < slices, other=0.0, cache_modifier=".cg"), 0)
    return one, two


@triton.jit
def _move_running(
    mean_in, rstd_in, running_mean, running_var, momentum, eps, first, other, parts, columns, channels
):  # fmt: skip
    """Move the running statistics part by part, as separate forward passes would."""
    moving_mean = tl.load(running_mean + columns)
    moving_var = tl.load(running_var + columns)
    for part in range(parts):
        _, length = _part(part, first, other)
        rstd = tl.load(rstd_in + part * channels + columns, cache_modifier=".cg")
        unbiased = (1 / (rstd * rstd) - eps) * (length / tl.maximum(length - 1, 1))
        moving_mean += momentum * (tl.load(mean_in + part * channels + columns, cache_modifier=".cg") - moving_mean)
        moving_var += momentum * (unbiased - moving_var)
    tl.store(running_mean + columns, moving_mean)
    tl.store(running_var + columns, moving_var)


@triton.jit
def _sum_parts(total_in, moment_in, grad_weight, grad_bias, parts, columns, channels, BLOCK_C: tl.constexpr):
    """The gradients of scale and offset, over all parts."""
    total = tl.zeros((BLOCK_C,), tl.float32)
    moment = tl.zeros((BLOCK_C,), tl.float32)
    for part in range(parts):
        total += tl.load(total_in + part * channels + columns, cache_modifier=".cg")
        moment += tl.load(moment_in + part * channels + columns, cache_modifier=".cg")
    tl.store(grad_bias + columns, total)
    tl.store(grad_weight + columns, moment)


@triton.jit
def _write_output(value, shortcut, y, at, inside, relu, joined):
    value += tl.load(shortcut + at, mask=inside & (joined != 0), other=0.0).to(tl.float32)
    value = tl.where(relu != 0, tl.maximum(value, 0.0), value)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _behind_relu(grad, twin, y, at, inside, normal, gamma, beta, relu, joined, twin_given):
    """The sum of both gradients behind the ReLU, whose sign is worked out again where no shortcut was added."""
    value = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(twin + at, mask=inside & (twin_given != 0), other=0.0).to(tl.float32)
    output = tl.load(y + at, mask=inside & (joined != 0), other=0.0).to(tl.float32)
    output = tl.where(joined != 0, output, normal * gamma + beta)
    return tl.where((relu == 0) | (output > 0), value, 0.0)


@triton.jit(do_not_specialize=VARYING)
def _small_forward(
    x, shortcut, y, weight, bias, mean_out, rstd_out, arrived, running_mean, running_var, momentum, eps,
    first, other, parts, channels,
    relu, joined, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    part, columns = tl.program_id(1), _columns(BLOCK_C)
    start, length = _part(part, first, other)
    rows = tl.arange(0, BLOCK_R)[:, None]
    inside = rows < length
    at = (start + rows) * channels + columns[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / length
    centred = tl.where(inside, value - mean[None, :], 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, 0) / length + eps)
    scale = (rstd * tl.load(weight + columns))[None, :]
    _write_output(centred * scale + tl.load(bias + columns)[None, :], shortcut, y, at, inside, relu, joined)
    tl.store(mean_out + part * channels + columns, mean)
    tl.store(rstd_out + part * channels + columns, rstd)
    if _is_last(arrived, 0, parts):
        _move_running(
            mean_out, rstd_out, running_mean, running_var, momentum, eps, first, other, parts, columns, channels
        )


@triton.jit(do_not_specialize=VARYING)
def _small_backward(
    grad, twin, x, y, weight, bias, mean, rstd, total_out, moment_out, arrived, grad_x, grad_shortcut,
    grad_weight, grad_bias, first, other, parts, channels,
    relu, joined, twin_given, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    part, columns = tl.program_id(1), _columns(BLOCK_C)
    start, length = _part(part, first, other)
    rows = tl.arange(0, BLOCK_R)[:, None]
    inside = rows < length
    at = (start + rows) * channels + columns[None, :]
    scale = tl.load(rstd + part * channels + columns)[None, :]
    gamma = tl.load(weight + columns)[None, :]
    centre = tl.load(mean + part * channels + columns)[None, :]
    normal = tl.where(inside, (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - centre) * scale, 0.0)
    beta = tl.load(bias + columns)[None, :]
    value = _behind_relu(grad, twin, y, at, inside, normal, gamma, beta, relu, joined, twin_given)
    tl.store(grad_shortcut + at, value.to(grad_shortcut.dtype.element_ty), mask=inside & (joined != 0))
    total = tl.sum(value, 0)
    moment = tl.sum(value * normal, 0)
    value = scale * gamma * (value - (total / length)[None, :] - normal * (moment / length)[None, :])
    tl.store(grad_x + at, value.to(grad_x.dtype.element_ty), mask=inside)
    tl.store(total_out + part * channels + columns, total)
    tl.store(moment_out + part * channels + columns, moment)
    if _is_last(arrived, 0, parts):
        _sum_parts(total_out, moment_out, grad_weight, grad_bias, parts, columns, channels, BLOCK_C)


@triton.jit(do_not_specialize=VARYING)
def _sum_forward(
    x, sums, arrived, mean_out, rstd_out, eps, first, other, slices, channels,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    part, slice_, columns = tl.program_id(1), tl.program_id(2), _columns(BLOCK_C)
    start, length = _part(part, first, other)
    low, high = _slice(length, slice_, slices, BLOCK_R)
    rows = tl.arange(0, BLOCK_R)
    # Deviations from the part's first row: their squares do not cancel when the mean is large.
    shift = tl.load(x + start * channels + columns).to(tl.float32)
    total = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    square = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    for row in range(low, high, BLOCK_R):
        inside = (row + rows < high)[:, None]
        at = (start + row + rows)[:, None] * channels + columns[None, :]
        value = tl.where(inside, tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - shift[None, :], 0.0)
        total += value
        square += value * value
    out = sums + (part * slices + slice_) * 2 * channels + columns
    tl.store(out, tl.sum(total, 0))
    tl.store(out + channels, tl.sum(square, 0))
    if _is_last(arrived, part, slices):
        one, two = _sum_slices(sums, part, slices, columns, channels, BLOCK_C)
        mean = one / length
        tl.store(mean_out + part * channels + columns, shift + mean)
        tl.store(rstd_out + part * channels + columns, 1 / tl.sqrt(tl.maximum(two / length - mean * mean, 0.0) + eps))


@triton.jit(do_not_specialize=VARYING)
def _forward(
    x, shortcut, y, weight, bias, mean_in, rstd_in, running_mean, running_var, momentum, eps,
    first, other, slices, parts, channels,
    relu, joined, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    part, slice_, columns = tl.program_id(1), tl.program_id(2), _columns(BLOCK_C)
    start, length = _part(part, first, other)
    low, high = _slice(length, slice_, slices, BLOCK_R)
    rows = tl.arange(0, BLOCK_R)
    if (slice_ == 0) & (part == 0):
        _move_running(
            mean_in, rstd_in, running_mean, running_var, momentum, eps, first, other, parts, columns, channels
        )
    scale = tl.load(rstd_in + part * channels + columns) * tl.load(weight + columns)
    offset = tl.load(bias + columns) - tl.load(mean_in + part * channels + columns) * scale
    for row in range(low, high, BLOCK_R):
        inside = (row + rows < high)[:, None]
        at = (start + row + rows)[:, None] * channels + columns[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * scale[None, :] + offset[None, :]
        _write_output(value, shortcut, y, at, inside, relu, joined)


@triton.jit(do_not_specialize=VARYING)
def _sum_backward(
    grad, twin, x, y, weight, bias, mean, rstd, sums, arrived, total_out, moment_out, grad_shortcut,
    first, other, slices, channels,
    relu, joined, twin_given, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    part, slice_, columns = tl.program_id(1), tl.program_id(2), _columns(BLOCK_C)
    start, length = _part(part, first, other)
    low, high = _slice(length, slice_, slices, BLOCK_R)
    rows = tl.arange(0, BLOCK_R)
    centre = tl.load(mean + part * channels + columns)[None, :]
    scale = tl.load(rstd + part * channels + columns)[None, :]
    gamma = tl.load(weight + columns)[None, :]
    beta = tl.load(bias + columns)[None, :]
    total = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    moment = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    for row in range(low, high, BLOCK_R):
        inside = (row + rows < high)[:, None]
        at = (start + row + rows)[:, None] * channels + columns[None, :]
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - centre) * scale
        value = _behind_relu(grad, twin, y, at, inside, normal, gamma, beta, relu, joined, twin_given)
        tl.store(grad_shortcut + at, value.to(grad_shortcut.dtype.element_ty), mask=inside & (joined != 0))
        total += value
        moment += value * normal
    out = sums + (part * slices + slice_) * 2 * channels + columns
    tl.store(out, tl.sum(total, 0))
    tl.store(out + channels, tl.sum(moment, 0))
    if _is_last(arrived, part, slices):
        one, two = _sum_slices(sums, part, slices, columns, channels, BLOCK_C)
        tl.store(total_out + part * channels + columns, one)
        tl.store(moment_out + part * channels + columns, two)


@triton.jit(do_not_specialize=VARYING)
def _backward(
    grad, twin, x, weight, bias, mean, rstd, total_in, moment_in, grad_x, grad_weight, grad_bias,
    first, other, slices, parts, channels,
    relu, joined, twin_given, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    part, slice_, columns = tl.program_id(1), tl.program_id(2), _columns(BLOCK_C)
    start, length = _part(part, first, other)
    low, high = _slice(length, slice_, slices, BLOCK_R)
    rows = tl.arange(0, BLOCK_R)
    if (slice_ == 0) & (part == 0):
        _sum_parts(total_in, moment_in, grad_weight, grad_bias, parts, columns, channels, BLOCK_C)
    centre = tl.load(mean + part * channels + columns)[None, :]
    scale = tl.load(rstd + part * channels + columns)[None, :]
    gamma = tl.load(weight + columns)[None, :]
    beta = tl.load(bias + columns)[None, :]
    total = (tl.load(total_in + part * channels + columns) / length)[None, :]
    moment = (tl.load(moment_in + part * channels + columns) / length)[None, :]
    for row in range(low, high, BLOCK_R):
        inside = (row + rows < high)[:, None]
        at = (start + row + rows)[:, None] * channels + columns[None, :]
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - centre) * scale
        value = _behind_relu(grad, twin, x, at, inside, normal, gamma, beta, relu, joined, twin_given)
        value = scale * gamma * (value - total - normal * moment)
        tl.store(grad_x + at, value.to(grad_x.dtype.element_ty), mask=inside)


class _Layout:
    """How a batch is cut into programs: blocks of channels, parts of the batch and, unless small, slices of rows."""

    def __init__(self, x: Tensor, parts: tuple[int, ...]) -> None:
        self.C, area = x.shape[1], x.shape[2] * x.shape[3]
        self.parts, longest = len(parts), max(parts) * area
        self.small = longest <= SMALL_ROWS
        whole = triton.next_power_of_2(longest)
        block_c = min(max(16, TILE // whole) if self.small else 64, 64, self.C)
        block_r = whole if self.small else TILE // block_c
        share = -(-PROGRAMS // (self.parts * self.C // block_c))
        self.slices = 1 if self.small else min(-(-longest // block_r), share)
        self.grid = (self.C // block_c, self.parts, self.slices)
        self.rows = {"first": parts[0] * area, "other": parts[-1] * area, "channels": self.C}
        self.blocks = {"BLOCK_R": block_r, "BLOCK_C": block_c, "num_warps": 16 if self.small and block_r > 1024 else 8}

    def results(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Room for two results of every part, ``[parts, C]`` float32."""
        one, two = like.new_empty(2, self.parts, self.C, dtype=torch.float32).unbind()
        return one, two

    def sums(self, like: Tensor) -> Tensor:
        """Room for two sums of every slice."""
        return like.new_empty(self.parts, self.slices, 2, self.C, dtype=torch.float32)

    def arrivals(self, norm: BatchNormReLU, device: torch.device) -> Tensor:
        """The layer's counters of programs that have come by; zero between kernels, so they are made once."""
        marks = self.parts * self.grid[0]
        if norm.arrived is None or norm.arrived.device != device or len(norm.arrived) < marks:
            norm.arrived = torch.zeros(marks, dtype=torch.int32, device=device)
        return norm.arrived


class _FusedBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shortcut: Tensor | None, weight: Tensor, bias: Tensor,
                norm: BatchNormReLU, parts: tuple[int, ...]) -> tuple[Tensor, Tensor]:  # fmt: skip
        x = x.contiguous(memory_format=torch.channels_last)
        if shortcut is not None:
            shortcut = shortcut.contiguous(memory_format=torch.channels_last)
        layout = _Layout(x, parts)
        mean, rstd = layout.results(x)
        arrived = layout.arrivals(norm, x.device)
        y = torch.empty_like(x)
        ctx.layout, ctx.relu, ctx.joined = layout, int(norm.relu), int(shortcut is not None)
        inputs = (x, x if shortcut is None else shortcut, y, weight, bias, mean, rstd)
        running = (norm.running_mean, norm.running_var, norm.momentum, norm.eps)
        sizes = {**layout.rows, **layout.blocks}
        flags = {"parts": layout.parts, "relu": ctx.relu, "joined": ctx.joined}
        if layout.small:
            launch(_small_forward, layout.grid, *inputs, arrived, *running, **flags, **sizes)
        else:
            sizes |= {"slices": layout.slices}
            launch(_sum_forward, layout.grid, x, layout.sums(x), arrived, mean, rstd, norm.eps, **sizes)
            launch(_forward, layout.grid, *inputs, *running, **flags, **sizes)
        ctx.save_for_backward(x, y if ctx.joined else x, weight, bias, mean, rstd, arrived)
        ctx.set_materialize_grads(False)
        return y, y.detach()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, weight, bias, mean, rstd, arrived = ctx.saved_tensors
        layout: _Layout = ctx.layout
        given = [grad.contiguous(memory_format=torch.channels_last) for grad in upstream if grad is not None]
        grad, twin = given[0], given[-1]
        total, moment = layout.results(x)
        grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        grad_shortcut = torch.empty_like(x) if ctx.joined else grad_x
        known, grads = (weight, bias, mean, rstd), (grad_weight, grad_bias)
        sizes = {**layout.rows, **layout.blocks}
        flags = {"relu": ctx.relu, "joined": ctx.joined, "twin_given": len(given) - 1}
        if layout.small:
            results: tuple[Tensor, ...] = (total, moment, arrived, grad_x, grad_shortcut, *grads)
            flags["parts"] = layout.parts
            launch(_small_backward, layout.grid, grad, twin, x, y, *known, *results, **flags, **sizes)
        else:
            sizes |= {"slices": layout.slices}
            results = (layout.sums(x), arrived, total, moment, grad_shortcut)
            launch(_sum_backward, layout.grid, grad, twin, x, y, *known, *results, **flags, **sizes)
            if ctx.joined:
                # What goes to the shortcut is the gradient behind the ReLU: no need to look at its sign again.
                grad, flags = grad_shortcut, dict.fromkeys(flags, 0)
            flags["parts"] = layout.parts
            results = (total, moment, grad_x, *grads)
            launch(_backward, layout.grid, grad, twin, x, *known, *results, **flags, **sizes)
        return grad_x, grad_shortcut if ctx.joined else None, grad_weight, grad_bias, None, None


def fused_batch_norm(norm: BatchNormReLU, x: Tensor, shortcut: Tensor | None, parts: tuple[int, ...]) -> Tensor:
    """Training-mode ``relu(bn(x) + shortcut)`` with statistics by part; updates the running statistics.

    Args:
        norm: weights, running statistics and settings.
        x: ``[n, C, H, W]`` on a CUDA device, float32 or bfloat16; ``C`` a power of 2 or a multiple of 64; fewer than
            2^31 elements.
        shortcut: added before the ReLU, the same shape; may be None.
        parts: sizes of the parts, adding up to ``n``, all but the first equal.

    Returns:
        The result, whose attribute ``twin`` is itself once more, for a second use: the gradients of the two are added
        up by the kernels.
    """
    y, twin = _FusedBatchNorm.apply(x, shortcut, norm.weight, norm.bias, norm, parts)
    y.twin = twin
    fused: Tensor = y
    return fused
