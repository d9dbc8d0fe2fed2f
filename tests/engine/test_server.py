from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import nn

from fedqcl.engine.server import Server, copy_entries, federated_entries, num_values, personal_entries
from fedqcl.models import SmallResNet


def test_parameters_and_running_statistics_are_federated_and_counters_are_not() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    assert federated_entries(net).keys() == {
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
    }  # fmt: skip
    assert all(not value.requires_grad for value in federated_entries(net).values())


def test_loading_changes_the_net_in_place() -> None:
    server = Server(SmallResNet(1, 2, width=2), nn.Module())
    bias = server.net.head.bias
    server.load({name: torch.full_like(value, 0.25).double() for name, value in server.weights().items()})
    assert server.net.head.bias is bias
    assert bias.tolist() == [0.25, 0.25]
    assert bias.dtype == torch.float32
    assert all((value == 0.25).all() for value in server.weights().values())


@pytest.mark.parametrize("weights", [None, {}, {"head.weight": torch.zeros(2, 2)}])
def test_what_is_no_model_is_refused(weights: Any) -> None:
    with pytest.raises(TypeError, match=r"^server_round must return all entries of the model by name"):
        Server(SmallResNet(1, 2, width=2), nn.Module()).load(weights)


def test_weights_are_views() -> None:
    server = Server(SmallResNet(1, 2, width=2), nn.Module())
    server.weights()["head.bias"].fill_(7.0)
    assert server.net.head.bias.tolist() == [7.0, 7.0]


def test_what_is_exchanged_are_the_averaged_entries() -> None:
    # 2 weights and 2 biases, 2 of a norm and its two statistics; the norm's counter stays at home.
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    assert num_values(Server(net, nn.Module()).weights()) == 2 + 2 + 4 * 2


def test_copy_entries() -> None:
    target = {"a": torch.zeros(2)}
    copy_entries(target, {"a": torch.ones(2), "unused": torch.ones(1)})
    assert target["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("personal", "expected"),
    [("nothing", set()), ("statistics", {"1.running_mean", "1.running_var"}), ("model", None)],
)
def test_personal_entries(personal: Literal["nothing", "statistics", "model"], expected: set[str] | None) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    assert personal_entries(net, personal).keys() == (federated_entries(net).keys() if expected is None else expected)
