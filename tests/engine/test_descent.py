from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from fedqcl.engine.descent import Descent, PlainDescent, is_plain
from fedqcl.models.cast import _CastTogether


class Cast(nn.Module):
    """Two matrices, one frozen if asked, cast together as on a GPU, and an offset that is not."""

    def __init__(self, frozen: bool = False) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))
        self.two = nn.Parameter(torch.tensor([[0.25, 1.0]]), requires_grad=not frozen)
        self.offset = nn.Parameter(torch.tensor([0.1]))

    def forward(self, x: Tensor) -> Tensor:
        one, two = _CastTogether.apply(self.one, self.two)
        return (x @ one.T.float()) @ two.T.float() + self.offset


X = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [3.0, 1.0]])


def once(net: Cast) -> Tensor:
    return net(X).square().mean()


def twice(net: Cast) -> Tensor:
    return once(net) + net(2 * X).abs().mean()


def penalised(net: Cast) -> Tensor:
    return once(net) + sum(weight.square().sum() for weight in net.parameters())


def with_a_gradient_inside(net: Cast) -> Tensor:
    inner = torch.autograd.grad(net(X).sum(), [net.one, net.two])
    assert [grad.dtype for grad in inner] == [torch.float32] * 2
    assert all(grad.abs().sum() > 0 for grad in inner)
    return once(net) * inner[0].norm() / 100


def at_other_weights(net: Cast) -> Tensor:
    """As of a method that looks ahead: the loss where a step of its own leads."""
    ahead = {name: weight - 0.1 * weight.square() for name, weight in net.named_parameters()}
    return torch.func.functional_call(net, ahead, (X,)).square().mean()


def trained(make: Callable[[optim.Optimizer], Descent], loss: Callable[[Cast], Tensor], frozen: bool) -> Cast:
    net = Cast(frozen)
    weights = [{"params": [net.one, net.offset]}, {"params": [net.two], "lr": 0.02}]
    descend = make(optim.SGD(weights, lr=0.01))
    for _ in range(3):
        descend(loss(net))
    return net


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("loss", [once, twice, penalised, with_a_gradient_inside, at_other_weights])
def test_narrow_gradients_take_the_same_step(loss: Callable[[Cast], Tensor], frozen: bool) -> None:
    if frozen and loss is with_a_gradient_inside:
        pytest.skip("there is no gradient of frozen weights to look at")
    start, plain, narrow = Cast(), trained(Descent, loss, frozen), trained(PlainDescent, loss, frozen)
    for (name, a), b, before in zip(narrow.named_parameters(), plain.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
        assert torch.equal(a, before) == (frozen and name == "two")


def test_what_is_left_narrow_is_never_written_in_float32() -> None:
    net = Cast()
    PlainDescent(optim.SGD(net.parameters(), lr=0.01))(once(net))
    assert net.one.grad is None
    assert net.two.grad is None
    assert net.offset.grad is not None


def test_a_backward_pass_afterwards_is_none_of_its_business() -> None:
    net = Cast()
    PlainDescent(optim.SGD(net.parameters(), lr=0.01))(once(net))
    once(net).backward()
    assert net.one.grad is not None


class Own(optim.SGD):
    """An optimizer of a user's own."""


def with_hook(parameters: Any) -> optim.Optimizer:
    optimizer = optim.SGD(parameters, lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


@pytest.mark.parametrize(
    ("make", "plain"),
    [
        (partial(optim.SGD, lr=0.1), True),
        (partial(optim.SGD, lr=1), True),
        (partial(optim.SGD, lr=torch.tensor(0.1)), False),
        (partial(optim.SGD, lr=0.1, momentum=0.9), False),
        (partial(optim.SGD, lr=0.1, weight_decay=1e-4), False),
        (partial(optim.SGD, lr=0.1, maximize=True), False),
        (partial(optim.SGD, lr=0.1, differentiable=True), False),
        (partial(Own, lr=0.1), False),
        (with_hook, False),
        (partial(optim.Adam, lr=0.1), False),
    ],
)
def test_only_plain_sgd_is_plain(make: Callable[[Any], optim.Optimizer], plain: bool) -> None:
    assert is_plain(make(Cast().parameters())) == plain
