"""The fused batch normalisation against plain PyTorch: ``python -m tests.helpers.fused`` prints how far they differ.

Where there is no GPU, with TRITON_INTERPRET=1 in the environment, which Triton reads when it is imported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from fedqcl.models.norm import BatchNormReLU, twin


@dataclass(frozen=True)
class Case:
    """A layer and its batch, whether a part of the batch counts as small, how many training steps are taken, and
    whether the output is used twice."""

    channels: int
    parts: tuple[int, ...]
    relu: bool
    shortcut: bool
    small: bool
    dtype: str = "float32"
    steps: int = 1
    twice: bool = False


# What is done behind the normalisation has little to do with the sizes: each gets two of the four ways in turn.
WAYS = [((False, False), (True, True)), ((True, False), (False, True))]
SIZES = list(product((16, 64, 128), ((3,), (3, 5, 5), (13, 13)), (False, True)))
CASES = {
    str(case): case
    for case in (
        *(
            Case(channels, parts, relu, shortcut, small)
            for number, (channels, parts, small) in enumerate(SIZES)
            for relu, shortcut in WAYS[(number + number // 2) % 2]
        ),
        *(Case(64, (3, 5, 5), True, True, small, dtype="bfloat16") for small in (False, True)),
        *(Case(64, (3, 5, 5), True, False, small, steps=2) for small in (False, True)),
        *(Case(64, (3, 5, 5), True, *way, twice=True) for way in product((False, True), repeat=2)),
    )
}


def differences(case: Case, device: str) -> dict[str, float]:
    """How far the kernels' training steps are from those of plain PyTorch in float64, by what is compared.

    Returns:
        The norm of each difference as a share of the reference's norm.
    """
    from fedqcl.models import norm_triton

    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def images(mean: float = 0.0, std: float = 1.0) -> Tensor:
        x = mean + std * normal(sum(case.parts), case.channels, 5, 5)
        return x.to(device, getattr(torch, case.dtype), memory_format=torch.channels_last)

    norm = BatchNormReLU(case.channels, case.relu)
    with torch.no_grad():
        for value in (norm.weight, norm.bias, norm.running_mean):
            value.copy_(normal(case.channels))
    norm.to(device)
    weight, bias = (p.detach().double().requires_grad_() for p in (norm.weight, norm.bias))
    running = {"running_mean": norm.running_mean.double(), "running_var": norm.running_var.double()}

    found = {}
    for step in range(1, case.steps + 1):
        # Far from zero, where sums of squares cancel.
        inputs = [images(mean=5, std=3).requires_grad_(), *([images().requires_grad_()] if case.shortcut else [])]
        exact = [value.detach().double().requires_grad_() for value in inputs]
        before_relu = torch.cat(
            [F.batch_norm(part, *running.values(), weight, bias, training=True) for part in exact[0].split(case.parts)]
        )
        before_relu = before_relu + exact[1] if case.shortcut else before_relu
        expected = F.relu(before_relu) if case.relu else before_relu
        # No gradient where rounding may carry a value across the ReLU's kink.
        upstream = images() * (before_relu.abs() > 0.02)

        with patch.object(norm_triton, "SMALL_ROWS", 512 if case.small else 0):
            y = norm_triton.fused_batch_norm(norm, inputs[0], inputs[1] if case.shortcut else None, case.parts)
        # Used twice, with gradients that add up to the same.
        uses, shares = ([y, twin(y)], [0.25 * upstream, 0.75 * upstream]) if case.twice else ([twin(y)], [upstream])
        gradients = torch.autograd.grad(uses, [*inputs, norm.weight, norm.bias], shares)
        exact_gradients = torch.autograd.grad(expected, [*exact, weight, bias], upstream.double())

        pairs = {"output": (y, expected)}
        for name, values in running.items():
            pairs[name] = (getattr(norm, name), values)
        names = ["images", *["shortcut"] * case.shortcut, "weight", "bias"]
        for name, pair in zip(names, zip(gradients, exact_gradients, strict=True), strict=True):
            pairs[f"gradient of {name}"] = pair
        for name, (a, b) in pairs.items():
            found[f"{name}, step {step}"] = ((a.detach() - b).norm() / b.norm()).item()
    return found


if __name__ == "__main__":
    print(json.dumps({name: differences(case, "cpu") for name, case in CASES.items()}))
