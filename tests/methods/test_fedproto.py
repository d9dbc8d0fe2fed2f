from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.data import Augment
from fedqcl.data.module import ClientShard
from fedqcl.methods import FedAvg, FedProto
from fedqcl.methods.fedproto import Prototypes
from fedqcl.models import Net, SmallResNet
from fedqcl.parts import Batch, Spec
from tests.helpers.toy import copied, pixel_batch, same, toy_data, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(1, 2), classes=(2, 2))


def pixels_net() -> Net:
    """Two pixels are the two features, and no class is preferred."""
    net = Net(nn.Flatten(), 2, 4)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


def second_task(scenario: Literal["task", "class"] = "task") -> Batch:
    """Two samples of class 2 with features (1, 0) and (3, 0), one of class 3 with (2, 0)."""
    batch = pixel_batch(SPEC, current=[2, 2, 3])
    x = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0]]).view(3, 1, 1, 2)
    columns = batch.own if scenario == "task" else torch.ones_like(batch.own)
    return replace(batch, x=x, columns=columns, task=1)


def prototypes(method: FedProto, known: list[int]) -> Prototypes:
    """(1, 0) for class 2 and (5, 0) for class 3; for the others, and those not known, what is not to be looked at."""
    state = method.server_state(SPEC, pixels_net())
    state.value.fill_(1e6)
    for c, first in ((2, 1.0), (3, 5.0)):
        if c in known:
            state.value[c] = torch.tensor([first, 0.0])
    state.known[known] = True
    return state


def loss(method: FedProto, batch: Batch, known: list[int]) -> torch.Tensor:
    return method.loss(pixels_net(), batch, method.client_state(SPEC), prototypes(method, known))


@pytest.mark.parametrize(
    ("distance", "known", "expected"),
    [
        # The mean (2, 0) is 1 from (1, 0) and (2, 0) is 3 from (5, 0); squares over two features.
        ("class_means", [2, 3], (1 + 9) / 2),
        ("class_means", [2], 1 / 2),
        ("class_means", [], 0),
        # 0, 2 and 3 away, over three samples and two features.
        ("samples", [2, 3], (0 + 4 + 9) / 6),
        ("samples", [2], 4 / 6),
        ("samples", [], 0),
    ],
)
@pytest.mark.parametrize("weight", [0.1, 2.0])
def test_loss_by_hand(
    distance: Literal["class_means", "samples"], known: list[int], expected: float, weight: float
) -> None:
    method = FedProto(weight=weight, distance=distance)
    assert loss(method, second_task(), known).item() == pytest.approx(log(2) + weight * expected)


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        # d/df of |mean - p|^2 / 2 is (mean - p) / n for each of a class's n samples.
        ("class_means", [1 / 2, 1 / 2, -3]),
        ("samples", [0 / 3, 2 / 3, -3 / 3]),
    ],
)
def test_features_are_drawn_to_their_prototypes(
    distance: Literal["class_means", "samples"], expected: list[float]
) -> None:
    batch = second_task()
    batch.x.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(FedProto(1.0, distance), batch, [2, 3]), batch.x)
    # The output layer is zero, so that the cross-entropy has no say.
    torch.testing.assert_close(gradient.view(3, 2), torch.tensor([[g, 0.0] for g in expected]))


@pytest.mark.parametrize(("ce_scope", "classes"), [("current", 2), ("seen", 4)])
def test_classes_that_compete_class_incrementally(ce_scope: Literal["seen", "current"], classes: int) -> None:
    method = FedProto(ce_scope=ce_scope)
    assert loss(method, second_task("class"), []).item() == pytest.approx(log(classes))
    assert loss(method, second_task("task"), []).item() == pytest.approx(log(2))


def test_global_prototypes_are_weighted_by_samples() -> None:
    method = FedProto()
    state = prototypes(method, known=[0, 2])
    places = {name: value.data_ptr() for name, value in state.named_buffers()}
    # Of class 1 one client has a sample (0, 6), another two of sum (3, 3); of class 3 one has four.
    stats = {
        "count": torch.tensor([0, 1 + 2, 0, 4], dtype=torch.float64),
        "sum": torch.tensor([[0, 0], [0 + 3, 6 + 3], [0, 0], [2, 4]], dtype=torch.float64),
    }
    average = {"w": torch.ones(1)}
    assert method.server_round({}, average, stats, state) is average
    assert state.known.tolist() == [False, True, False, True]
    assert state.value[[1, 3]].tolist() == [[1, 3], [0.5, 1]]
    method.server_task(pixels_net(), {}, state, 1, np.random.default_rng(0))
    assert not state.known.any()
    assert {name: value.data_ptr() for name, value in state.named_buffers()} == places


def test_clients_measure_in_eval_mode_without_augmentation() -> None:
    data = toy_data(num_clients=1, augment=Augment(crop=1, flip=True))
    pool, method, net = data.train_pool(torch.device("cpu")), FedProto(), SmallResNet(1, 6, width=4).train()
    shard = ClientShard(0, 1, data.shards[1][0], pool, seed=0)
    before = copied(net)
    stats = method.client_round(net, shard, method.client_state(data.spec), method.server_state(data.spec, net))
    assert net.training
    assert same(before, copied(net))
    x, y, _ = pool.gather(torch.from_numpy(shard.index))
    features = net.eval().features(x).detach()
    assert stats["count"].tolist() == [0, 0, 12, 12, 0, 0]
    for c in (2, 3):
        torch.testing.assert_close(stats["sum"][c], features[y == c].double().sum(0), rtol=1e-5, atol=1e-5)


def test_weight_zero_is_fedavg() -> None:
    runs = [toy_fit(toy_learner(method), toy_data())[0] for method in (FedProto(weight=0.0), FedAvg())]
    assert all(same(a.weights, b.weights) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_prototypes_count_from_the_second_round_on(scenario: Literal["task", "class"]) -> None:
    data = toy_data(scenario=scenario)
    (first, second, *_), engine = toy_fit(toy_learner(FedProto(weight=1.0)), data)
    (plain_first, plain_second, *_), _ = toy_fit(toy_learner(FedProto(weight=0.0)), data)
    assert same(first.weights, plain_first.weights)
    moved = (second.weights["backbone.1.weight"] - plain_second.weights["backbone.1.weight"]).abs().max()
    assert moved > 1e-3
    state: Any = engine.server.state
    assert not state.known.any()
    assert (state.value[4:] != 0).any()


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_heads_of_other_tasks_are_left_alone(scenario: Literal["task", "class"]) -> None:
    """Class-incrementally as well, as the current classes alone compete."""
    moments, _ = toy_fit(toy_learner(FedProto(weight=1.0)), toy_data(scenario=scenario))
    for before, after in pairwise(moments):
        changed = (after.weights["head.weight"] != before.weights["head.weight"]).any(1)
        assert changed.nonzero().view(-1).tolist() == [2 * after.task, 2 * after.task + 1]
