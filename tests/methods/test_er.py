from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.methods import ER
from fedqcl.parts import Spec
from tests.helpers.toy import odds_net, pixel_batch, toy_data, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(1, 1), classes=(2, 2))
CURRENT, REPLAYED = log(5 / 4) + log(5) + log(5), log(4 / 3) + log(4)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(1.0, (CURRENT + REPLAYED) / 5), (0.5, (CURRENT + REPLAYED / 2) / 4), (0.0, CURRENT / 3)],
)
def test_loss_by_hand(weight: float, expected: float) -> None:
    method = ER(memory=10, replay_batch=2, weight=weight)
    batch = pixel_batch(SPEC, current=[2, 3, 3], replayed=[[0, 1]], present=[1])
    loss = method.loss(odds_net(3, 1, 4, 1), batch, method.client_state(SPEC), nn.Module())
    assert loss.item() == pytest.approx(expected)


def test_stand_ins_for_an_empty_memory_get_no_weight() -> None:
    method = ER(memory=10, replay_batch=2)
    net = odds_net(3, 1, 4, 1)
    state = method.client_state(SPEC)
    alone = method.loss(net, pixel_batch(SPEC, [2, 3, 3]), state, nn.Module())
    stood_in = method.loss(net, pixel_batch(SPEC, [2, 3, 3], [[2, 2]], [0]), state, nn.Module())
    assert alone.item() == stood_in.item() == pytest.approx(CURRENT / 3)
    (gradient,) = torch.autograd.grad(stood_in, net.parameters())
    assert (gradient[:2] == 0).all()


def test_it_replays_from_all_past_tasks_together() -> None:
    state = ER(memory=6, replay_batch=2).client_state(SPEC)
    assert state.replay(0) == []
    assert [group.tolist() for group in state.replay(1)] == [[]]
    state.memory.store(0, np.arange(9), np.random.default_rng(0))
    state.memory.store(1, 100 + np.arange(9), np.random.default_rng(0))
    (group,) = state.replay(2)
    assert sorted(group // 100) == [0, 0, 0, 1, 1, 1]


def test_a_run_fills_every_clients_memory_from_its_own_shards() -> None:
    data = toy_data(num_clients=2, alpha="iid")
    moments, engine = toy_fit(toy_learner(ER(memory=7, replay_batch=2)), data, rounds=1)
    assert all((m.clients[0]["memory.index"] == -1).all() for m in moments[:1])
    for client, state in engine.clients.items():
        assert state.memory.count.tolist() == [2, 2, 3]
        for task in range(3):
            assert set(state.memory.of_task(task).tolist()) <= set(data.shards[task][client].tolist())
