from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch

from fedqcl.methods import FedAvg, FedProx
from fedqcl.methods.base import ClientState
from fedqcl.models import SmallResNet
from fedqcl.parts import Spec
from tests.helpers.toy import copied, odds_net, pixel_batch, same, toy_data, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(1, 1), classes=(2, 2))
# Of classes 2, 3, 3 with odds 4 : 1, in nats.
CURRENT = log(5**3 / 4) / 3


@pytest.mark.parametrize("mu", [0.0, 0.5, 3.0])
def test_loss_by_hand(mu: float) -> None:
    method = FedProx(mu=mu)
    server = method.server_state(SPEC, odds_net(1, 1, 4, 2))
    loss = method.loss(odds_net(3, 1, 4, 1), pixel_batch(SPEC, [2, 3, 3]), ClientState(), server)
    # The weights are logs of odds: ln 3 and -ln 2 apart in two places.
    assert loss.item() == pytest.approx(CURRENT + mu / 2 * (log(3) ** 2 + log(2) ** 2))


def test_gradient_by_hand() -> None:
    method, net = FedProx(mu=0.5), odds_net(3, 1, 4, 1)
    server = method.server_state(SPEC, odds_net(1, 1, 4, 2))
    (gradient,) = torch.autograd.grad(
        method.loss(net, pixel_batch(SPEC, [2, 3, 3]), ClientState(), server), net.parameters()
    )
    # mu times the distance; and the softmax less the labels' share: 4/5 - 1/3, 1/5 - 2/3.
    expected = torch.tensor([0.5 * log(3), 0, 7 / 15, -7 / 15 - 0.5 * log(2)])
    torch.testing.assert_close(gradient[:, 0], expected)


@pytest.mark.parametrize(("ce_scope", "rivals"), [("current", 5), ("seen", 9)])
def test_which_classes_compete_in_the_class_incremental_scenario(ce_scope: str, rivals: int) -> None:
    method, net = FedProx(ce_scope=ce_scope), odds_net(3, 1, 4, 1)
    batch = replace(pixel_batch(SPEC, [2]), columns=torch.ones(1, 4, dtype=torch.bool))
    loss = method.loss(net, batch, ClientState(), method.server_state(SPEC, net))
    assert loss.item() == pytest.approx(log(rivals / 4))


def test_without_the_term_it_is_fedavg() -> None:
    data = toy_data()
    for a, b in zip(*(toy_fit(toy_learner(m), data)[0] for m in (FedProx(mu=0.0), FedAvg())), strict=True):
        assert same(a.weights, b.weights)


def test_the_term_keeps_clients_near_the_global_model() -> None:
    data, start = toy_data(), copied(toy_learner(FedAvg()).make_net(toy_data().spec, 0))
    distances = []
    for mu in (0.0, 4.0, 12.0):
        moments, _ = toy_fit(toy_learner(FedProx(mu=mu)), data, rounds=1, epochs=3)
        distances.append(sum((moments[0].weights[name] - start[name]).square().sum() for name in start))
    assert distances[0] > 2 * distances[1] > 4 * distances[2] > 0


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_the_server_holds_what_clients_start_from(scenario: str) -> None:
    """Bit for bit: a weight that no client moves gets no gradient, and other tasks' heads stay as they are."""
    learner, data = toy_learner(FedProx(mu=0.5), net=SmallResNet), toy_data(scenario=scenario)
    moments, engine = toy_fit(learner, data, rounds=1)
    held, weights = engine.server.state.by_name(), dict(engine.server.net.named_parameters())
    assert all(torch.equal(held[name], weights[name]) for name in weights)
    states = [copied(learner.make_net(data.spec, data.seed)), *(m.weights for m in moments)]
    for task in range(3):
        before, after = states[task]["head.weight"], states[task + 1]["head.weight"]
        assert (before != after).any(1).tolist() == [c // 2 == task for c in range(6)]
