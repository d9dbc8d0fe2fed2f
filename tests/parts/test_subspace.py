from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedqcl.models import SmallResNet
from fedqcl.parts.subspace import Subspace, inner_layers, input_grams


def diagonal(*energies: float) -> Tensor:
    return torch.tensor(energies, dtype=torch.float64).diag()


def axes(space: Subspace) -> list[float]:
    """The diagonal of a projection that is otherwise zero."""
    P = space.projection
    torch.testing.assert_close(P, P.diagonal().diag())
    return P.diagonal().tolist()


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [(0.1, [0, 1, 0]), (0.75, [0, 1, 0]), (0.85, [1, 1, 0]), (0.95, [1, 1, 1]), (1.0, [1, 1, 1])],
)
def test_an_empty_subspace_takes_the_fewest_directions_that_hold_epsilon(epsilon: float, expected: list[float]) -> None:
    space = Subspace(3)
    space.extend(diagonal(1.2, 8, 0.8), epsilon, "norm")
    assert axes(space) == pytest.approx(expected)


@pytest.mark.parametrize(("residual", "expected"), [("norm", [1, 1, 1]), ("energy", [1, 1, 0])])
def test_of_new_vectors_the_part_outside_counts(residual: Literal["norm", "energy"], expected: list[float]) -> None:
    """A quarter of the energy is outside: rho is 1/2 or 1/4, and of the rest 0.9 or 0.8 must be held."""
    space = Subspace(3)
    space.extend(diagonal(1, 0, 0), 1.0, residual)
    space.extend(diagonal(75, 0.85 * 25, 0.15 * 25), 0.95, residual)
    assert axes(space) == pytest.approx(expected)


@pytest.mark.parametrize("residual", ["norm", "energy"])
def test_nothing_is_taken_of_what_is_held_well_enough(residual: Literal["norm", "energy"]) -> None:
    space = Subspace(2)
    space.extend(diagonal(1, 0), 1.0, residual)
    space.extend(diagonal(999, 1), 0.9, residual)
    assert axes(space) == [1, 0]


def test_what_is_not_there_is_no_direction() -> None:
    space = Subspace(3)
    space.extend(torch.zeros(3, 3, dtype=torch.float64), 1.0, "norm")
    assert axes(space) == [0, 0, 0]
    space.extend(diagonal(5, 1e-9, 0), 1.0, "norm")
    assert axes(space) == [1, 0, 0]
    space.extend(diagonal(5, 0, 0), 1.0, "norm")
    assert axes(space) == [1, 0, 0]


def test_it_stays_a_projection_onto_all_it_has_taken() -> None:
    generator = torch.Generator().manual_seed(0)
    space = Subspace(12)
    taken = []
    for rank in (3, 4, 2):
        taken.append(torch.randn(12, rank, generator=generator, dtype=torch.float64))
        space.extend(taken[-1] @ taken[-1].T, 1.0, "energy")
        P = space.projection
        torch.testing.assert_close(P @ P, P)
        torch.testing.assert_close(P, P.T)
        rows = torch.cat(taken, 1).T
        assert P.trace().item() == pytest.approx(len(rows))
        torch.testing.assert_close(space.part_inside(rows), rows)


def test_part_inside() -> None:
    space = Subspace(2)
    # The line of (3, 4).
    space.extend(torch.tensor([[9.0, 12.0], [12.0, 16.0]], dtype=torch.float64), 1.0, "norm")
    torch.testing.assert_close(space.part_inside(torch.tensor([[5.0, 10.0]])), torch.tensor([[6.6, 8.8]]))


def test_inner_layers_are_all_but_the_head() -> None:
    net = SmallResNet(1, 6, width=4)
    shapes = {name: layer.weight[0].numel() for name, layer in inner_layers(net).items()}
    convolutions = [name for name, module in net.named_modules() if isinstance(module, nn.Conv2d)]
    assert list(shapes) == convolutions
    assert list(shapes.values()) == [9, 36, 36, 36, 72, 4]


def test_grams_of_linear_layers_by_hand() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1))
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([[2.0, -1.0]]))
        net[1].bias.zero_()
    grams = input_grams(net, [torch.tensor([[[[1.0, 0.0]]], [[[2.0, 1.0]]]])])
    # Hidden units are 2 and 3.
    assert {name: gram.tolist() for name, gram in grams.items()} == {"1": [[5, 2], [2, 1]], "3": [[13]]}


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 5, 3, padding=1, bias=False),
        nn.Conv2d(3, 5, (1, 3), stride=2, bias=False),
        nn.Conv2d(3, 5, 3, dilation=2, padding=(2, 1), bias=False),
        nn.Conv2d(3, 5, 1, stride=2, bias=False),
    ],
)
def test_a_convolutions_gram_gives_the_energy_of_its_output(layer: nn.Conv2d) -> None:
    """``|W A|^2 = tr(W A A^T W^T)``, and so for every other ``W``."""
    x = torch.randn(4, 3, 7, 6, generator=torch.Generator().manual_seed(0))
    (gram,) = input_grams(nn.Sequential(layer), [x[:3], x[3:]]).values()
    other = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(1))
    for weight in (layer.weight.detach(), other):
        W = weight.flatten(1)
        y = F.conv2d(x, weight, None, layer.stride, layer.padding, layer.dilation)
        torch.testing.assert_close((W @ gram @ W.T).trace(), y.square().sum())


def test_grams_add_up_over_images_and_leave_no_hooks() -> None:
    net = SmallResNet(1, 6, width=4).eval()
    x = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    whole, first, rest, none = (input_grams(net, batches) for batches in ([x], [x[:2]], [x[2:4], x[4:]], []))
    assert whole.keys() == none.keys()
    for name, gram in whole.items():
        torch.testing.assert_close(gram, first[name] + rest[name])
        assert gram.shape == none[name].shape
        assert not none[name].any()
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_an_error_leaves_no_hooks() -> None:
    net = nn.Sequential(nn.Linear(2, 1))
    with pytest.raises(RuntimeError):
        input_grams(net, [torch.zeros(1, 3)])
    assert not net[0]._forward_pre_hooks


def test_a_sketch_of_many_columns_spans_what_the_gram_matrix_does() -> None:
    """The original sends ``A`` times a random matrix; of its left singular vectors the leading ones are nearly ours."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(12, 300, generator=generator, dtype=torch.float64)
    A *= torch.logspace(1, -1, 12, dtype=torch.float64)[:, None]
    space = Subspace(12)
    space.extend(A @ A.T, 0.95, "norm")
    rank = round(space.projection.trace().item())
    apart = []
    for columns in (60, 6000):
        sketch = A @ torch.randn(300, columns, generator=generator, dtype=torch.float64)
        basis = torch.linalg.svd(sketch).U[:, :rank]
        apart.append((basis @ basis.T - space.projection).norm().item())
    assert 0 < rank < 12
    assert apart[1] < 0.1
    assert apart[1] < apart[0]
