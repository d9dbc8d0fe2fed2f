from __future__ import annotations

from math import log
from typing import Literal

import pytest
import torch
from torch import nn

from fedqcl.methods import ConstantReplay, FedAvg
from fedqcl.parts import Spec
from tests.helpers.toy import odds_net, pixel_batch, toy_data, toy_fit, toy_learner


def test_loss_by_hand() -> None:
    spec = Spec(channels=1, size=(1, 1), classes=(2, 2, 2))
    method = ConstantReplay(weight=0.25, memory=9, replay_batch=2)
    state = method.client_state(spec)
    state.queue.value[:2] = 0.25
    loss = method.loss(
        odds_net(3, 1, 4, 1, 5, 1), pixel_batch(spec, [4, 5], [[0, 1], [2, 3]], [1, 1]), state, nn.Module()
    )
    first, second, third = log(16 / 3) / 2, log(25 / 4) / 2, log(36 / 5) / 2
    assert loss.item() == pytest.approx(third + 0.25 * (first + second))


def test_every_past_task_weighs_the_same_for_good() -> None:
    moments, _ = toy_fit(toy_learner(ConstantReplay(weight=0.25, memory=9, replay_batch=2)), toy_data(alpha="iid"))
    queues = [m.clients[1]["queue.value"].tolist() for m in moments]
    assert queues == 2 * [[0, 0, 0]] + 2 * [[0.25, 0, 0]] + 2 * [[0.25, 0.25, 0]]


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_without_any_weight_it_is_fedavg(scenario: Literal["task", "class"]) -> None:
    methods = ConstantReplay(0.0, 9, 2, logit_matching=0.0), FedAvg(ce_scope="seen")
    for a, b in zip(*(toy_fit(toy_learner(m), toy_data(scenario=scenario))[0] for m in methods), strict=True):
        for name, value in b.weights.items():
            torch.testing.assert_close(a.weights[name], value, rtol=0, atol=1e-6)
