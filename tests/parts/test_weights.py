from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedqcl.models import SmallResNet
from fedqcl.parts.weights import Entries, WeightBuffers, squared_distance, trained_weights
from tests.helpers.toy import same


def line(*weights: float) -> nn.Module:
    """A net of one row of weights."""
    net = nn.Sequential(nn.Linear(len(weights), 1, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([weights]))
    return net


def small_net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SmallResNet(1, 6, width=4)


def moved(net: nn.Module) -> nn.Module:
    net = copy.deepcopy(net)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.linspace(-1, 2, p.numel()).view_as(p))
    return net


def test_buffers_are_a_copy_under_the_parameters_names() -> None:
    net = small_net()
    buffers = WeightBuffers(net)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    assert same(buffers.by_name(), before)
    assert not list(buffers.parameters())
    assert len(buffers.state_dict()) == len(before)


def test_buffers_keep_the_memory_layout() -> None:
    net = small_net().to(memory_format=torch.channels_last)
    for name, value in copy.deepcopy(WeightBuffers(net)).by_name().items():
        assert value.stride() == net.get_parameter(name).stride()


def test_load_writes_in_place_and_passes_other_entries_over() -> None:
    net = moved(small_net())
    buffers = WeightBuffers(small_net())
    addresses = [value.data_ptr() for value in buffers.buffers()]
    buffers.load({**{k: v.double() for k, v in net.named_parameters()}, "running_mean": torch.ones(1)})
    assert same(buffers.by_name(), trained_weights(net))
    assert [value.data_ptr() for value in buffers.buffers()] == addresses
    assert not any(value.requires_grad for value in buffers.buffers())


def test_frozen_parameters_are_left_out() -> None:
    net = small_net()
    for p in net.head.parameters():
        p.requires_grad_(False)
    buffers = WeightBuffers(net)
    assert {name.split(".")[0] for name in buffers.by_name()} == {"backbone"}
    assert squared_distance(moved(net), buffers) > 0


@pytest.mark.parametrize(
    ("importance", "expected", "gradient"),
    [(None, 1 + 4 + 9, [2.0, -4.0, 6.0]), ((0.0, 2.0, 10.0), 2 * 4 + 10 * 9, [0.0, -8.0, 60.0])],
)
def test_squared_distance_by_hand(importance: tuple[float, ...] | None, expected: float, gradient: list[float]) -> None:
    net, anchor = line(2, -1, 5), WeightBuffers(line(1, 1, 2))
    distance = squared_distance(net, anchor, None if importance is None else WeightBuffers(line(*importance)))
    assert distance.item() == expected
    # Three times the loss, three times the gradient.
    (found,) = torch.autograd.grad(3 * distance, net.parameters())
    assert found.tolist() == [[3 * g for g in gradient]]


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_that_of_autograd(weighted: bool) -> None:
    start = small_net()
    net, anchor = moved(start), WeightBuffers(start)
    importance = WeightBuffers(moved(moved(start)))
    for value in importance.buffers():
        value.abs_()
    told = anchor.by_name()
    plain = sum(
        ((importance.by_name()[name] if weighted else 1) * (p - told[name]).square()).sum()
        for name, p in net.named_parameters()
    )
    distance = squared_distance(net, anchor, importance if weighted else None)
    assert distance.item() == pytest.approx(plain.item(), rel=1e-5)
    parameters = list(net.parameters())
    pairs = zip(torch.autograd.grad(distance, parameters), torch.autograd.grad(plain, parameters), strict=True)
    for found, expected in pairs:
        torch.testing.assert_close(found, expected)


def test_at_the_anchor_distance_and_gradient_are_zero() -> None:
    net = small_net()
    distance = squared_distance(net, WeightBuffers(net))
    assert distance == 0
    assert not any(g.any() for g in torch.autograd.grad(distance, list(net.parameters())))


def test_entries_of_any_kind() -> None:
    net = small_net()
    statistics = {name: value for name, value in net.named_buffers() if value.is_floating_point()}
    entries = Entries(statistics)
    assert list(entries.by_name()) == list(statistics)
    next(iter(statistics.values())).add_(1.0)
    assert not same(entries.by_name(), statistics)
    entries.load(statistics)
    assert same(entries.by_name(), statistics)
    assert Entries({}).state_dict() == {}
