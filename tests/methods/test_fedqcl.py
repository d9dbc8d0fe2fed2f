from __future__ import annotations

import math
from collections.abc import Callable
from math import log
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.data.module import ClientShard
from fedqcl.methods import FedAvg, FedQCL
from fedqcl.models import Net, SmallResNet
from fedqcl.parts import Spec
from tests.helpers.toy import Linear, Normed, Toy, odds_net, pixel_batch, toy_data, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(1, 1), classes=(2, 2, 2))
NET = odds_net(3, 1, 4, 1, 5, 1)
# The mean losses of classes {0, 1}, {2, 3} and {4, 5} under NET, two samples each.
FIRST, SECOND, THIRD = log(16 / 3) / 2, log(25 / 4) / 2, log(36 / 5) / 2


@pytest.mark.parametrize(
    ("V", "Q", "present", "expected"),
    [
        (10.0, [2.0, 3.0], [1, 1], 10 * THIRD + 2 * FIRST + 3 * SECOND),
        (0.5, [0.0, 0.25], [1, 1], 0.5 * THIRD + 0.25 * SECOND),
        (10.0, [2.0, 3.0], [1, 0], 10 * THIRD + 2 * FIRST),
        (10.0, [2.0, 3.0], [0, 0], 10 * THIRD),
    ],
)
def test_loss_by_hand(V: float, Q: list[float], present: list[float], expected: float) -> None:
    method = FedQCL(V=V, memory=9, replay_batch=2)
    state = method.client_state(SPEC)
    state.queue.value.copy_(torch.tensor([*Q, 0.0]))
    batch = pixel_batch(SPEC, [4, 5], [[0, 1], [2, 3]], present)
    assert method.loss(NET, batch, state, nn.Module()).item() == pytest.approx(expected)


def test_the_first_task_has_no_replay() -> None:
    method = FedQCL(V=3, memory=9, replay_batch=2)
    loss = method.loss(NET, pixel_batch(SPEC, [0, 1]), method.client_state(SPEC), nn.Module())
    assert loss.item() == pytest.approx(3 * FIRST)


def test_gradients_are_weighted_as_the_losses() -> None:
    method = FedQCL(V=10, memory=9, replay_batch=2)
    state = method.client_state(SPEC)
    state.queue.value.copy_(torch.tensor([2.0, 3.0, 0.0]))
    loss = method.loss(NET, pixel_batch(SPEC, [4, 5], [[0, 1], [2, 3]], [1, 0]), state, nn.Module())
    (gradient,) = torch.autograd.grad(loss, NET.parameters())
    # Of each pair the softmax less the labels' mean of 1/2: 3/4 - 1/2 and 5/6 - 1/2.
    expected = torch.tensor([2 / 4, -2 / 4, 0, 0, 10 / 3, -10 / 3])
    torch.testing.assert_close(gradient[:, 0], expected)


@pytest.mark.parametrize(("queue_loss", "scale"), [("mean", 1.0), ("batches", 3 / 2)])
def test_queues_measure_the_rise_of_the_stored_samples_loss(
    queue_loss: Literal["batches", "mean"], scale: float
) -> None:
    data = toy_data(Toy(per_class=6), num_clients=1, tasks=2)
    method = FedQCL(delta=-1.0, memory=3, replay_batch=2, queue_loss=queue_loss)
    state, server = method.client_state(data.spec), nn.Module()
    pool = data.train_pool(torch.device("cpu"))
    flat = Linear(1, 6)
    for p in flat.parameters():
        nn.init.zeros_(p)
    method.client_task(flat, ClientShard(0, 0, data.shards[0][0], pool, seed=0), state, server)
    # A net that knows nothing loses ln 3 on each of the three stored samples of a task of three classes.
    assert state.memory.count.tolist() == [3, 0]
    assert state.queue.reference.tolist() == pytest.approx([scale * log(3), 0])
    # Odds of 1 : 2 : 3 by the bias alone.
    with torch.no_grad():
        flat.head.bias[:3] = torch.tensor([1.0, 2.0, 3.0]).log()
    lost = np.log([6, 3, 2])[data.train.y[state.memory.of_task(0).numpy()]].mean()
    method.client_round(flat, ClientShard(0, 1, data.shards[1][0], pool, seed=0), state, server)
    assert state.queue.value.tolist() == pytest.approx([scale * (lost - log(3)) + 1, 0], abs=1e-5)


@pytest.mark.parametrize("net", [Linear, Normed, SmallResNet])
@pytest.mark.parametrize(("delta", "expected"), [(0.25, 4.5), (-0.5, 6.0), (3.0, 0.0)])
def test_a_model_that_does_not_change_moves_queues_by_delta_exactly(
    net: Callable[[int, int], Net], delta: float, expected: float
) -> None:
    data = toy_data(num_clients=1)
    method = FedQCL(delta=delta, memory=9, replay_batch=2)
    state, model = method.client_state(data.spec), net(1, 6).train()
    pool = data.train_pool(torch.device("cpu"))
    shards = [ClientShard(0, t, data.shards[t][0], pool, seed=0) for t in range(3)]
    for shard in shards[:2]:
        method.client_task(model, shard, state, nn.Module())
    state.queue.value[:2] = 5.0
    for _ in range(2):
        method.client_round(model, shards[2], state, nn.Module())
    assert state.queue.value.tolist() == [expected, expected, 0]


def test_a_run_whose_model_stands_still_fills_queues_by_a_negative_delta() -> None:
    method = FedQCL(delta=-0.5, memory=9, replay_batch=2)
    moments, _ = toy_fit(toy_learner(method, lr=0.0), toy_data(alpha="iid"), rounds=2)
    queues = [m.clients[1]["queue.value"].tolist() for m in moments]
    assert queues == [
        pytest.approx(q, abs=1e-6) for q in ([0, 0, 0], [0, 0, 0], [0.5, 0, 0], [1, 0, 0], [1.5, 0.5, 0], [2, 1, 0])
    ]


def test_an_infinite_delta_makes_it_fedavg_with_V_times_the_learning_rate() -> None:
    options = {"alpha": 1.0, "seed": 3}
    queued, _ = toy_fit(
        toy_learner(FedQCL(V=4, delta=math.inf, memory=9, replay_batch=2), lr=1 / 64), toy_data(**options)
    )
    plain, _ = toy_fit(toy_learner(FedAvg(), lr=4 / 64), toy_data(**options))
    assert len(queued) == len(plain) == 6
    for a, b in zip(queued, plain, strict=True):
        for name in a.weights:
            torch.testing.assert_close(a.weights[name], b.weights[name], rtol=0, atol=1e-6)
    start = toy_learner(FedAvg()).make_net(toy_data(**options).spec, 3).state_dict()
    assert (plain[-1].weights["head.weight"] - start["head.weight"]).abs().max() > 0.01


def test_queues_make_a_difference() -> None:
    """The runs above would also agree if queues never did anything."""
    never, _ = toy_fit(toy_learner(FedQCL(V=4, delta=math.inf, memory=9, replay_batch=2)), toy_data())
    always, _ = toy_fit(toy_learner(FedQCL(V=4, delta=-1.0, memory=9, replay_batch=2)), toy_data())
    assert (never[-1].weights["head.weight"] - always[-1].weights["head.weight"]).abs().max() > 0.05


def test_diagnostics_show_past_tasks_only() -> None:
    method = FedQCL(memory=9, replay_batch=2)
    state = method.client_state(SPEC)
    state.memory.store(0, np.arange(4), np.random.default_rng(0))
    state.queue.value[0] = 3.0
    shown = state.diagnostics()
    assert shown["queue"][0] == 3
    assert shown["queue"][1:].isnan().all()
    assert shown["lyapunov"] == 4.5


def test_sitting_out_keeps_the_queues_and_is_no_drift() -> None:
    state = FedQCL(memory=9, replay_batch=2).client_state(SPEC)
    for name, value in state.queue.named_buffers():
        value.fill_({"value": 3.0, "reference": 2.0, "drift": 1.5, "drift_bound": 1.75}[name])
    state.sit_out()
    assert {name: value.tolist() for name, value in state.queue.named_buffers()} == {
        "value": [3, 3, 3],
        "reference": [2, 2, 2],
        "drift": 0,
        "drift_bound": 0,
    }


def test_lemma_1_holds_in_a_run() -> None:
    method = FedQCL(V=8, delta=0.05, memory=9, replay_batch=2)
    moments, _ = toy_fit(toy_learner(method), toy_data(), rounds=3)
    states = [state for m in moments for state in m.clients.values()]
    assert any(s["queue.drift"] > 0 for s in states)
    for s in states:
        assert s["queue.drift"] <= s["queue.drift_bound"] + 1e-5 * (1 + s["queue.drift"].abs())
