from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.data.module import ClientShard
from fedqcl.errors import InputError
from fedqcl.methods import FedAvg, FedQCL
from fedqcl.models import Net, SmallResNet
from fedqcl.parts import Memory, Spec
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


@pytest.mark.parametrize(("present", "matched"), [([1, 1], (5 / 2 + 9) / 2), ([1, 0], 5 / 4), ([0, 0], 0)])
def test_class_incremental_loss_by_hand(present: list[float], matched: float) -> None:
    """The logits lie beside the current loss, so V counts for both; of each task the mean, and of these the mean."""
    spec = replace(SPEC, scenario="class")
    method = FedQCL(V=10, memory=9, replay_batch=2, logit_matching=0.25)
    state = method.client_state(spec)
    state.queue.value.copy_(torch.tensor([2.0, 3.0, 0.0]))
    # The replayed samples of the batch are those at 2, 3 and at 4, 5.
    state.memory.index[:4] = torch.arange(2, 6)
    own = torch.tensor([3.0, 1, 4, 1, 5, 1]).log()
    # Off by 1 and 2 in both columns that there were, then by 3 in all four; later columns are not compared.
    state.memory.logits[:4] = own + torch.tensor(
        [[1.0, 1, 70, 70, 70, 70], [2, 2, 70, 70, 70, 70]] + 2 * [4 * [3.0] + [70] * 2]
    )
    batch = pixel_batch(spec, [4, 5], [[0, 1], [2, 3]], present)
    batch = replace(batch, columns=spec.seen()[2].expand(6, -1))
    # Odds among all, which sum to 15.
    current, first, second = log(15 / 5 * 15) / 2, log(15 / 3 * 15) / 2, log(15 / 4 * 15) / 2
    expected = 10 * (current + 0.25 * matched) + 2 * present[0] * first + 3 * present[1] * second
    assert method.loss(NET, batch, state, nn.Module()).item() == pytest.approx(expected)


def test_logits_are_for_the_class_incremental_scenario() -> None:
    spec = replace(SPEC, scenario="class")
    assert FedQCL().client_state(spec).memory.logits.shape == (500, 6)
    assert type(FedQCL(logit_matching=0).client_state(spec).memory) is Memory
    assert type(FedQCL(logit_matching=3).client_state(SPEC).memory) is Memory
    method = FedQCL(V=3, memory=9, replay_batch=2)
    first = replace(pixel_batch(spec, [0, 1]), columns=spec.seen()[0].expand(2, -1))
    assert method.loss(NET, first, method.client_state(spec), nn.Module()).item() == pytest.approx(3 * FIRST)


@pytest.mark.parametrize(("queue_loss", "unit"), [("mean", [1.0, 1.0]), ("batches", [2.0, 1.5])])
def test_quadratic_drift_by_hand(queue_loss: Literal["batches", "mean"], unit: list[float]) -> None:
    method = FedQCL(V=10, delta=0.25, memory=9, replay_batch=2, queue_loss=queue_loss, quadratic_drift=True)
    state = method.client_state(SPEC)
    state.queue.value.copy_(torch.tensor([2.0, 3.0, 0.0]))
    state.queue.reference.copy_(torch.tensor([0.5, 1.5, 0.0]))
    state.memory.count.copy_(torch.tensor([4, 3, 0]))
    loss = method.loss(NET, pixel_batch(SPEC, [4, 5], [[0, 1], [2, 3]], [1, 1]), state, nn.Module())
    rises = [unit[0] * FIRST - 0.5 - 0.25, unit[1] * SECOND - 1.5 - 0.25]
    quadratic = [0.5 * rise**2 / u for rise, u in zip(rises, unit, strict=True)]
    assert loss.item() == pytest.approx(10 * THIRD + 2 * FIRST + 3 * SECOND + sum(quadratic))
    (gradient,) = torch.autograd.grad(loss, NET.parameters())
    # In effect it adds to each queue what the queue would grow by.
    slopes = torch.tensor([1 / 4, -1 / 4, 3 / 10, -3 / 10])
    weights = torch.tensor([2 + rises[0]] * 2 + [3 + rises[1]] * 2)
    torch.testing.assert_close(gradient[:4, 0], weights * slopes)


def test_a_client_without_a_past_task_has_no_quadratic_drift() -> None:
    method = FedQCL(V=10, delta=0.25, memory=9, replay_batch=2, quadratic_drift=True)
    batch = pixel_batch(SPEC, [4, 5], [[4, 5], [5, 4]], [0, 0])
    assert method.loss(NET, batch, method.client_state(SPEC), nn.Module()).item() == pytest.approx(10 * THIRD)


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


def test_queues_may_be_measured_among_the_past_tasks_classes() -> None:
    data = toy_data(Toy(per_class=6), num_clients=1, tasks=3, scenario="class")
    method = FedQCL(delta=-1.0, memory=4, replay_batch=2, queue_loss="mean", queue_scope="past")
    state, server = method.client_state(data.spec), nn.Module()
    pool = data.train_pool(torch.device("cpu"))
    shards = [ClientShard(0, t, data.shards[t][0], pool, seed=0) for t in range(3)]
    flat = Linear(1, 6)
    for p in flat.parameters():
        nn.init.zeros_(p)

    method.client_task(flat, shards[0], state, server)
    assert state.queue.reference.tolist() == pytest.approx([log(2), 0, 0])
    # The new classes push themselves to the front; among those that the reference model knew nothing has changed.
    with torch.no_grad():
        flat.head.bias[2:] = torch.tensor([5.0, 6.0, 7.0, 8.0])
    method.client_round(flat, shards[1], state, server)
    assert state.queue.value.tolist() == pytest.approx([1, 0, 0])

    # The second task's end: odds of 1 : 1 : 2 : 4, an eighth for each class of the first.
    with torch.no_grad():
        flat.head.bias[2:4] = torch.tensor([2.0, 4.0]).log()
    method.client_task(flat, shards[1], state, server)
    second = np.log([8 / 2, 8 / 4])[data.train.y[state.memory.of_task(1).numpy()] - 2].mean()
    assert state.queue.reference.tolist() == pytest.approx([log(8), second, 0])
    # In the third the classes of the first two compete: odds of 1 : 1 : 1 : 1.
    with torch.no_grad():
        flat.head.bias[2:4] = 0.0
    method.client_round(flat, shards[2], state, server)
    expected = [1 + log(4) - log(8) + 1, log(4) - second + 1, 0]
    assert state.queue.value.tolist() == pytest.approx(expected, abs=1e-6)


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


@pytest.mark.parametrize("option", [{"logit_matching": 0.0}, {"quadratic_drift": True}])
def test_options_make_a_difference_in_a_run(option: dict[str, Any]) -> None:
    common = {"V": 4, "delta": -0.5, "memory": 9, "replay_batch": 2}
    runs = [toy_fit(toy_learner(FedQCL(**common, **o)), toy_data(scenario="class"))[0] for o in ({}, option)]
    first, second = ([m.weights["head.weight"] for m in run] for run in runs)
    # The first task has no replay, and two rounds.
    assert all(torch.equal(a, b) for a, b in zip(first[:2], second[:2], strict=True))
    assert (first[-1] - second[-1]).abs().max() > 1e-3


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


def test_every_client_may_have_a_V_of_its_own() -> None:
    method = FedQCL(V=[3.0, 0.5], memory=9, replay_batch=2)
    for client, V in enumerate((3.0, 0.5)):
        state = method.client_state(SPEC)
        state.start(client, NET)
        loss = method.loss(NET, pixel_batch(SPEC, [0, 1]), state, nn.Module())
        assert loss.item() == pytest.approx(V * FIRST)


@pytest.mark.parametrize("V", [[], [1.0], [1.0, 2.0, 3.0]])
def test_a_V_for_each_is_one_for_every_client(V: list[float]) -> None:
    FedQCL(V=[1.0, 2.0]).check(SPEC, num_clients=2)
    FedQCL(V=1.0).check(SPEC, num_clients=2)
    with pytest.raises(InputError, match=rf"^model\.method\.V: lists {len(V)} values and data\.num_clients is 2; give"):
        FedQCL(V=V).check(SPEC, num_clients=2)


def test_a_V_for_each_is_the_same_as_one_for_all() -> None:
    options = {"delta": -0.5, "memory": 9, "replay_batch": 2}
    runs = [toy_fit(toy_learner(FedQCL(V, **options)), toy_data())[0] for V in (4.0, [4.0] * 3, [4.0, 1.0, 4.0])]
    one, same_for_each, other = (run[-1].weights["head.weight"] for run in runs)
    assert torch.equal(one, same_for_each)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("normalise", "divisor"), [("none", 1), ("V", 10), ("V+sumQ", 10 + 2)])
def test_normalised_loss_by_hand(normalise: Literal["none", "V", "V+sumQ"], divisor: float) -> None:
    method = FedQCL(V=10, memory=9, replay_batch=2, normalise=normalise)
    state = method.client_state(SPEC)
    state.queue.value.copy_(torch.tensor([2.0, 3.0, 7.0]))
    # Nothing of the second task is there, and the third is the current one: their queues weigh nothing.
    loss = method.loss(NET, pixel_batch(SPEC, [4, 5], [[0, 1], [2, 3]], [1, 0]), state, nn.Module())
    assert loss.item() == pytest.approx((10 * THIRD + 2 * FIRST) / divisor)


def test_divided_by_V_it_is_the_same_at_V_times_the_learning_rate() -> None:
    options = {"V": 4, "delta": -0.5, "memory": 9, "replay_batch": 2}
    plain, _ = toy_fit(toy_learner(FedQCL(**options), lr=1 / 64), toy_data())
    divided, _ = toy_fit(toy_learner(FedQCL(**options, normalise="V"), lr=4 / 64), toy_data())
    for name, value in plain[-1].weights.items():
        torch.testing.assert_close(divided[-1].weights[name], value, rtol=0, atol=1e-6)


def test_a_queue_may_start_full() -> None:
    moments, _ = toy_fit(
        toy_learner(FedQCL(delta=-0.5, memory=9, replay_batch=2, initial_queue=3.0), lr=0.0), toy_data(alpha="iid")
    )
    assert [m.clients[1]["queue.value"].tolist() for m in moments[::2]] == [
        [0, 0, 0],
        pytest.approx([3.5, 0, 0], abs=1e-6),
        pytest.approx([4.5, 3.5, 0], abs=1e-6),
    ]


def test_queues_may_count_what_the_current_classes_take() -> None:
    """Class-incrementally; a net that knows nothing loses ln 2 among the first task's two classes, ln 4 among four."""
    data = toy_data(Toy(per_class=6), num_clients=1, tasks=3, scenario="class")
    pool, flat = data.train_pool(torch.device("cpu")), Linear(1, 6)
    for p in flat.parameters():
        nn.init.zeros_(p)
    first, second = (ClientShard(0, t, data.shards[t][0], pool, seed=0) for t in (0, 1))
    grown = {}
    for scope in ("past", "seen"):
        method = FedQCL(delta=0, memory=4, replay_batch=4, queue_scope=scope)
        state = method.client_state(data.spec)
        method.client_task(flat, first, state, nn.Module())
        reference = state.queue.reference[0].item()
        with torch.no_grad():
            flat.head.bias[2:4] = log(5)  # odds of 1 : 1 : 5 : 5
        method.client_round(flat, second, state, nn.Module())
        nn.init.zeros_(flat.head.bias)
        grown[scope] = (reference, state.queue.value[0].item())
    assert grown["past"] == (pytest.approx(log(2)), pytest.approx(0, abs=1e-6))
    assert grown["seen"] == (pytest.approx(log(4)), pytest.approx(log(12) - log(4)))


def test_the_last_task_has_no_next_one_to_measure_among() -> None:
    toy_fit(toy_learner(FedQCL(V=4, memory=9, replay_batch=2)), toy_data(scenario="class"), rounds=1)


def test_the_replay_batch_only_scales_the_queue() -> None:
    """By the number of batches: half as large ones count twice, whatever the number of samples."""
    data = toy_data(Toy(per_class=6), num_clients=1, tasks=2)
    pool, grown = data.train_pool(torch.device("cpu")), []
    shards = [ClientShard(0, t, data.shards[t][0], pool, seed=0) for t in (0, 1)]
    for replay_batch in (2, 4, 5):
        net = toy_learner(FedAvg()).make_net(data.spec, 0)
        method = FedQCL(delta=0, memory=7, replay_batch=replay_batch)
        state = method.client_state(data.spec)
        method.client_task(net, shards[0], state, nn.Module())
        with torch.no_grad():
            net.head.bias[0] += 3.0
        method.client_round(net, shards[1], state, nn.Module())
        grown.append(replay_batch * state.queue.value[0].item())
    assert grown[0] > 1
    assert grown == pytest.approx([grown[0]] * 3, rel=1e-5)
