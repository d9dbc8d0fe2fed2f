from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedqcl.errors import InputError
from fedqcl.models import SmallResNet
from fedqcl.models.norm import BatchNormReLU, set_parts

C = 3


def images(n: int, seed: int = 0) -> Tensor:
    """Images whose mean and deviation differ from sample to sample, so that parts have statistics of their own."""
    generator = torch.Generator().manual_seed(seed)
    scale = 1 + torch.arange(n)[:, None, None, None]
    return scale * (1 + torch.randn(n, C, 4, 4, generator=generator))


def made(relu: bool = True, parts: tuple[int, ...] = ()) -> BatchNormReLU:
    """A norm that is not the identity, with statistics that are not those it starts with."""
    norm = BatchNormReLU(C, relu)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, -1.0, 2.0]))
        norm.bias.copy_(torch.tensor([0.25, 0.5, -1.0]))
        norm.running_mean.copy_(torch.tensor([1.0, 0.0, -1.0]))
        norm.running_var.copy_(torch.tensor([4.0, 0.5, 1.0]))
    norm.parts = parts
    return norm


def reference(
    norm: BatchNormReLU, x: Tensor, sizes: tuple[int, ...], shortcut: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Separate calls of PyTorch's batch normalisation: the output, and the running mean and variance they leave."""
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    y = torch.cat(
        [F.batch_norm(part, mean, var, norm.weight, norm.bias, norm.training, 0.1, 1e-5) for part in x.split(sizes)]
    )
    y = y if shortcut is None else y + shortcut
    return (F.relu(y) if norm.relu else y), mean, var


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("parts", [(), (5,), (3, 2), (2, 1, 1, 1), (1, 4)])
def test_parts_are_as_separate_calls(parts: tuple[int, ...], with_shortcut: bool, relu: bool) -> None:
    norm, x = made(relu, parts), images(5).requires_grad_()
    shortcut = images(5, seed=1).requires_grad_() if with_shortcut else None
    inputs = [x, norm.weight, norm.bias, *([shortcut] if shortcut is not None else [])]
    upstream = images(5, seed=2)
    expected, mean, var = reference(norm, x, parts or (5,), shortcut)
    expected_gradients = torch.autograd.grad(expected, inputs, upstream)

    y = norm(x, shortcut)

    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, var)
    for gradient, right in zip(torch.autograd.grad(y, inputs, upstream), expected_gradients, strict=True):
        torch.testing.assert_close(gradient, right)


def test_parts_matter() -> None:
    whole, apart = made(), made(parts=(3, 2))
    assert (whole(images(5)) - apart(images(5))).abs().max() > 0.1
    assert (whole.running_mean - apart.running_mean).abs().max() > 0.1


def test_running_statistics_by_hand() -> None:
    norm = BatchNormReLU(1)
    norm.parts = (1, 1)
    norm(torch.tensor([0.0, 2.0, 4.0, 8.0]).reshape(2, 1, 1, 2))
    # From 0 a tenth of the way to 1, then of the way to 6; from 1 to the unbiased variances 2 and 8.
    assert norm.running_mean.item() == pytest.approx(0.1 + 0.1 * (6 - 0.1))
    assert norm.running_var.item() == pytest.approx(1.1 + 0.1 * (8 - 1.1))


def test_evaluation_ignores_parts() -> None:
    norm = made(parts=(3, 2)).eval()
    before = copy.deepcopy(norm.state_dict())
    x, shortcut = images(5), images(5, seed=1)
    y = norm(x, shortcut)
    torch.testing.assert_close(y, reference(norm, x, (5,), shortcut)[0])
    torch.testing.assert_close(norm(x[:2], shortcut[:2]), y[:2])  # each sample by itself
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("n", [4, 6, 10])
def test_a_batch_of_another_size_is_one_whole(n: int) -> None:
    norm, x = made(parts=(3, 2)), images(n)
    expected, mean, var = reference(norm, x, (n,))
    torch.testing.assert_close(norm(x), expected)
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, var)


def test_set_parts_reaches_every_norm() -> None:
    net = SmallResNet(1, 2, width=2)
    for parts in ((3, 1), ()):
        set_parts(net, parts)
        norms = [module.parts for module in net.modules() if isinstance(module, BatchNormReLU)]
        assert norms == [parts] * 6


@pytest.mark.parametrize("parts", [(), (3, 1)])
def test_a_single_value_a_channel_has_no_variance(parts: tuple[int, ...]) -> None:
    norm = BatchNormReLU(2)
    norm.parts = parts
    x = torch.ones(4 if parts else 1, 2, 1, 1)
    with pytest.raises(InputError, match=r"^data\.batch_size: BatchNorm cannot normalise a single image"):
        norm(x)
    assert norm.eval()(x).shape == x.shape
    assert norm.train()(torch.ones(1, 2, 2, 1)).shape == (1, 2, 2, 1)
