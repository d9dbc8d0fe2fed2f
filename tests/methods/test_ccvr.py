from __future__ import annotations

from math import log
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.data.module import ClientShard, FederatedData
from fedqcl.engine.averaging import sum_stats
from fedqcl.methods import CCVR, FedAvg
from fedqcl.models import Net, SmallResNet
from fedqcl.parts import Spec
from fedqcl.parts.moments import class_sums
from tests.helpers.toy import Toy, copied, odds_net, pixel_batch, same, toy_data, toy_fit, toy_learner

TASKS = Spec(channels=1, size=(1, 2), classes=(2, 3), scenario="task")
CLASSES = Spec(channels=1, size=(1, 2), classes=(2, 3), scenario="class")
CPU = torch.device("cpu")
FULL = pytest.mark.parametrize("covariance", ["full", "diagonal"])
BOTH = pytest.mark.parametrize("spec", [TASKS, CLASSES], ids=["task", "class"])


def flat_net() -> Net:
    """Two pixels are the two features, and no class is preferred."""
    net = Net(nn.Flatten(), 2, 5)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


def points(covariance: Literal["full", "diagonal"], *features: tuple[float, float]) -> dict[str, torch.Tensor]:
    """The sums of a task whose classes have three samples each, all at one point of feature space."""
    x = torch.tensor(features).repeat_interleave(3, 0)
    return class_sums(x, torch.arange(len(features)).repeat_interleave(3), len(features), covariance)


def test_loss_by_hand() -> None:
    method = CCVR()
    batch = pixel_batch(TASKS, current=[0, 1, 1])
    # 3 of 4, 1 of 4, 1 of 4.
    loss = method.loss(odds_net(3, 1, 4, 1, 1), batch, method.client_state(TASKS), nn.Module())
    assert loss.item() == pytest.approx(log(4**3 / 3) / 3)


def test_until_the_task_ends_it_is_fedavg() -> None:
    runs = [toy_fit(toy_learner(method), toy_data(tasks=1))[0] for method in (CCVR(), FedAvg())]
    assert all(same(a.weights, b.weights) for a, b in zip(*runs, strict=True))


@FULL
def test_calibration_by_hand(covariance: Literal["full", "diagonal"]) -> None:
    """One step of SGD on features that have next to no variance: of class 0 at (1, 0), of class 1 at (0, 2)."""
    method, net = CCVR(epochs=1, lr=0.5, batch_size=1000, covariance=covariance), flat_net()
    state = method.server_state(TASKS, net)
    method.server_task(net, points(covariance, (1.0, 0.0), (0.0, 2.0)), state, 0, np.random.default_rng(0))
    # Half the samples are at each point; the softmax of 1/2 less the label is -1/2 at the own point, 1/2 at the other.
    expected = torch.tensor([[0.5 / 4, -0.5 / 2], [-0.5 / 4, 0.5 / 2]])
    torch.testing.assert_close(net.head.weight[:2].detach(), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(net.head.bias[:2].detach(), torch.zeros(2), rtol=0, atol=1e-4)


def test_momentum_carries_over_steps() -> None:
    """Two steps on class 0 at (1, 0) and class 1 at (-1, 0)."""
    net, method = flat_net(), CCVR(epochs=2, lr=0.5, momentum=0.5, batch_size=1000)
    state = method.server_state(TASKS, net)
    method.server_task(net, points("full", (1.0, 0.0), (-1.0, 0.0)), state, 0, np.random.default_rng(0))
    # First step: gradient -1/2, to weights 1/4 and -1/4. Second: odds of e^(1/2), gradient p - 1, and the momentum.
    p = 1 / (1 + np.exp(-0.5))
    expected = 0.25 + 0.5 * (0.5 * 0.5 + (1 - p))
    assert net.head.weight[0, 0].item() == pytest.approx(expected, abs=1e-3)


@BOTH
def test_which_classes_are_calibrated(spec: Spec) -> None:
    net, method = flat_net(), CCVR()
    state, before = method.server_state(spec, net), copied(net)
    method.server_task(net, points("full", (1.0, 0.0), (0.0, 1.0)), state, 0, np.random.default_rng(0))
    first = copied(net)
    assert (first["head.weight"] != before["head.weight"]).any(1).tolist() == [True, True, False, False, False]
    method.server_task(net, points("full", (2.0, 0.0), (0.0, 2.0), (2.0, 2.0)), state, 1, np.random.default_rng(0))
    changed = (net.head.weight != first["head.weight"]).any(1).tolist()
    assert changed == [spec.scenario == "class"] * 2 + [True] * 3
    changed = (net.head.bias != first["head.bias"]).tolist()
    assert changed == [spec.scenario == "class"] * 2 + [True] * 3
    assert all(parameter.grad is None for parameter in net.parameters())


def test_class_incrementally_old_classes_are_told_from_new_ones_by_their_stored_moments() -> None:
    net, method = flat_net(), CCVR(lr=0.1)
    state = method.server_state(CLASSES, net)
    spots = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0), (0.0, 0.0)]
    method.server_task(net, points("full", *spots[:2]), state, 0, np.random.default_rng(0))
    stored = {name: value[:2].clone() for name, value in state.gaussians.named_buffers()}
    places = {name: value.data_ptr() for name, value in state.named_buffers()}
    nn.init.zeros_(net.head.weight)  # as if the second task had wiped out the first
    method.server_task(net, points("full", *spots[2:]), state, 1, np.random.default_rng(1))
    assert net(torch.tensor(spots).view(5, 1, 1, 2)).argmax(1).tolist() == [0, 1, 2, 3, 4]
    assert all(torch.equal(value[:2], stored[name]) for name, value in state.gaussians.named_buffers())
    assert {name: value.data_ptr() for name, value in state.named_buffers()} == places


@BOTH
def test_classes_that_nobody_has_neither_compete_nor_move(spec: Spec) -> None:
    stats = points("full", (1.0, 0.0), (0.0, 1.0))
    for value in stats.values():
        value[1] = 0
    net, method = flat_net(), CCVR()
    before = copied(net)
    method.server_task(net, stats, method.server_state(spec, net), 0, np.random.default_rng(0))
    # One class alone has no cross-entropy.
    assert same(before, copied(net))
    for value in stats.values():
        value[0] = 0
    method.server_task(net, stats, method.server_state(spec, net), 0, np.random.default_rng(0))
    assert same(before, copied(net))


def test_the_generator_decides_what_is_drawn() -> None:
    data = toy_data(num_clients=1)

    def calibrated(seed: int) -> dict[str, torch.Tensor]:
        method, net = CCVR(), toy_learner(CCVR()).make_net(data.spec, 0)
        state = method.server_state(data.spec, net)
        shard = ClientShard(0, 0, data.shards[0][0], data.train_pool(CPU), seed=0)
        stats = method.client_task(net, shard, method.client_state(data.spec), state)
        torch.rand(1)  # of no account
        method.server_task(net, stats, state, 0, np.random.default_rng(seed))
        return copied(net)

    assert same(calibrated(1), calibrated(1))
    assert not same(calibrated(1), calibrated(2))


@FULL
def test_clients_sums_add_up_to_those_of_the_pooled_samples(covariance: Literal["full", "diagonal"]) -> None:
    """In eval mode, so that a sample's features do not depend on whose it is."""
    lone, many = toy_data(num_clients=1), toy_data(num_clients=4, alpha=0.1)
    net, method = SmallResNet(1, 6, width=4).train(), CCVR(covariance=covariance)
    state, before = method.server_state(lone.spec, net), copied(net)

    def sums(data: FederatedData) -> dict[str, torch.Tensor]:
        pool = data.train_pool(CPU)
        shards = [ClientShard(i, 1, index, pool, seed=0) for i, index in enumerate(data.shards[1])]
        return sum_stats([method.client_task(net, s, method.client_state(data.spec), state) for s in shards], CPU)

    pooled, added = sums(lone), sums(many)
    assert pooled["count"].tolist() == [12, 12]
    for name, value in pooled.items():
        torch.testing.assert_close(added[name], value, rtol=1e-5, atol=1e-5)
    assert net.training
    assert same(before, copied(net))


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_calibration_mends_a_spoilt_output_layer(scenario: Literal["task", "class"]) -> None:
    data = toy_data(Toy(noise=10), scenario=scenario, alpha="iid")
    _, engine = toy_fit(toy_learner(CCVR(lr=0.05)), data, rounds=1)
    net: Any = engine.server.net
    x, y, columns = engine.pool.gather(torch.arange(len(engine.pool.y)))
    last = slice(-len(data.train.y) // 3, None)

    def accuracy() -> float:
        right = net(x).masked_fill(~columns, float("-inf")).argmax(1) == y
        return (right[last] if scenario == "task" else right).float().mean().item()

    assert engine.server.state.gaussians.known.all()
    with torch.no_grad():
        net.head.weight.neg_()
    spoilt = accuracy()
    stats = engine.sum(
        [
            engine.call(engine.learner.method.client_task, local)
            for locals in engine.broadcast([0, 1, 2], 2, idle_too=True)
            for local in locals
        ]
    )
    engine.learner.method.server_task(net, stats, engine.server.state, 2, np.random.default_rng(0))
    assert spoilt < 0.4
    assert accuracy() > 0.8
