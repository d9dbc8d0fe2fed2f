from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import log
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.data.module import ClientShard
from fedqcl.data.stream import Sampler
from fedqcl.methods import DER, DERpp, FedAvg, FedQCL, Method
from fedqcl.models import SmallResNet
from fedqcl.parts import Batch, Spec
from tests.helpers.toy import Normed, copied, odds_net, pixel_batch, same, toy_data, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(1, 1), classes=(2, 2, 2))
NET = odds_net(3, 1, 4, 1, 5, 1)
SMALL: dict[str, Any] = {"memory": 8, "replay_batch": 2}


def second_task(scenario: Literal["task", "class"] = "task", draws: int = 2) -> Batch:
    """Classes 2 and 3 now; class 0 twice for its logits, then 0 and 1 for their labels."""
    batch = pixel_batch(SPEC, [2, 3], [[0, 0], [0, 1]][:draws], [1, 1][:draws])
    return batch if scenario == "task" else replace(batch, columns=SPEC.seen()[1].expand(len(batch.y), -1))


def stored(method: DERpp) -> Any:
    """The samples at 2 and 3, which are the first draw of :func:`second_task`."""
    state = method.client_state(SPEC)
    state.memory.index[:2] = torch.tensor([3, 2])
    state.memory.count[0] = 2
    # Off NET's by 0 and 2 in their own columns, then by 1 and 1 in the second task's, and far off in the third's.
    own = torch.tensor([3.0, 1, 4, 1, 5, 1]).log()
    state.memory.logits[0] = own + torch.tensor([0.0, 2, 1, 1, 90, 90])
    # Off by 1 and -1, then by 3 and 0.
    state.memory.logits[1] = own + torch.tensor([1.0, -1, 3, 0, 90, 90])
    return state


# Own columns: means 4/2 and 2/2. With the second task's: 6/4 and 11/4.
MSE_OWN, MSE_SEEN = 3 / 2, 17 / 8
CE_OWN = log(5 / 4 * 5) / 2  # 4 of 5 and 1 of 5
CE_SEEN = log(9 / 4 * 9) / 2  # of 9
LABELS_OWN = log(4 / 3 * 4) / 2
LABELS_SEEN = log(9 / 3 * 9) / 2


@pytest.mark.parametrize(
    ("scenario", "options", "expected"),
    [
        ("task", {}, CE_OWN + 0.25 * MSE_OWN + 3 * LABELS_OWN),
        ("task", {"ce_scope": "seen", "logit_scope": "seen_at_storage"}, CE_OWN + 0.25 * MSE_OWN + 3 * LABELS_OWN),
        ("class", {}, CE_OWN + 0.25 * MSE_SEEN + 3 * LABELS_SEEN),
        ("class", {"ce_scope": "seen"}, CE_SEEN + 0.25 * MSE_SEEN + 3 * LABELS_SEEN),
        ("class", {"logit_scope": "seen_at_storage"}, CE_OWN + 0.25 * MSE_OWN + 3 * LABELS_SEEN),
    ],
)
def test_loss_of_derpp_by_hand(scenario: Literal["task", "class"], options: dict[str, Any], expected: float) -> None:
    method = DERpp(alpha=0.25, beta=3, **SMALL, **options)
    loss = method.loss(NET, second_task(scenario), stored(method), nn.Module())
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("scenario", "expected"), [("task", CE_OWN + 0.25 * MSE_OWN), ("class", CE_OWN + 0.25 * MSE_SEEN)]
)
@pytest.mark.parametrize("method", [DER(alpha=0.25, **SMALL), DERpp(alpha=0.25, beta=0, **SMALL)])
def test_der_is_derpp_without_labels(method: DERpp, scenario: Literal["task", "class"], expected: float) -> None:
    assert len(method.client_state(SPEC).replay(1)) == 1
    loss = method.loss(NET, second_task(scenario, draws=1), stored(method), nn.Module())
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("method", [DER(**SMALL), DERpp(**SMALL)])
def test_the_first_task_has_no_replay(method: DERpp) -> None:
    state = method.client_state(SPEC)
    assert state.replay(0) == []
    assert method.loss(NET, pixel_batch(SPEC, [2, 3]), state, nn.Module()).item() == pytest.approx(CE_OWN)


def test_stand_ins_for_an_empty_memory_get_no_weight() -> None:
    method = DERpp(**SMALL)
    batch = pixel_batch(SPEC, [2, 3], [[2, 2], [3, 2]], [0, 0])
    loss = method.loss(NET, batch, method.client_state(SPEC), nn.Module())
    assert loss.item() == pytest.approx(CE_OWN)
    alone = method.loss(NET, pixel_batch(SPEC, [2, 3]), method.client_state(SPEC), nn.Module())
    gradients = (torch.autograd.grad(value, NET.parameters())[0] for value in (loss, alone))
    torch.testing.assert_close(*gradients)


def test_gradient_of_the_logits_by_hand() -> None:
    method = DER(alpha=0.25, **SMALL)
    batch = second_task(draws=1)
    with_logits = method.loss(NET, batch, stored(method), nn.Module())
    without = DER(alpha=0, **SMALL).loss(NET, batch, stored(method), nn.Module())
    (gradient,) = torch.autograd.grad(with_logits - without, NET.parameters())
    # alpha / (b columns) * 2 (logit - stored), summed over the two samples: off by 1 + 0 and -1 + 2.
    torch.testing.assert_close(gradient[:, 0], torch.tensor([-1.0, -1, 0, 0, 0, 0]) * 0.25 * 2 / 4)


def test_labels_come_of_a_draw_of_their_own_from_all_past_tasks() -> None:
    data = toy_data(num_clients=1)
    state = DERpp(memory=12, replay_batch=6).client_state(data.spec)
    for task in range(2):
        state.memory.store(task, data.shards[task][0], np.random.default_rng(0))
    first, second = state.replay(2)
    assert first.tolist() == second.tolist() == state.memory.index.tolist()
    drawn = Sampler(0, 5, 6, 1, None).draw(0, 2, 0, data.shards[2][0], [first, second]).index[:, 5:]
    assert not torch.equal(drawn[:, :6], drawn[:, 6:])
    # A pass takes two steps of six, so each draw has shown everything by then.
    for draw in (drawn[:2, :6], drawn[:2, 6:]):
        assert sorted(draw.flatten().tolist()) == sorted(first.tolist())


def test_client_task_leaves_the_net_as_it_is() -> None:
    data, method = toy_data(num_clients=1), DER(**SMALL)
    net = SmallResNet(1, 6, width=4).train()
    before = copied(net)
    shard = ClientShard(0, 0, data.shards[0][0], data.train_pool(torch.device("cpu")), seed=0)
    method.client_task(net, shard, method.client_state(data.spec), nn.Module())
    assert net.training
    assert same(before, copied(net))


@pytest.mark.parametrize(
    "method", [DER(**SMALL), DERpp(**SMALL), FedQCL(V=2, delta=-0.5, **SMALL)], ids=lambda m: type(m).__name__
)
def test_a_run_stores_the_logits_of_the_global_model_at_each_tasks_end(method: Method) -> None:
    data, learner = toy_data(scenario="class", alpha=0.1), toy_learner(method, net=Normed)
    moments, engine = toy_fit(learner, data, rounds=2)
    pool = data.train_pool(torch.device("cpu"))
    for task in range(3):
        net = learner.make_net(data.spec, data.seed).eval()
        net.load_state_dict(moments[2 * task + 1].weights)
        for state in engine.clients.values():
            memory = state.memory
            kept = memory.of_task(task)
            expected = net(pool.gather(kept)[0])
            torch.testing.assert_close(memory.logits[memory.task_of_place() == task], expected, rtol=0, atol=1e-5)
    counts = torch.stack([state.memory.count for state in engine.clients.values()])
    assert (counts.sum(0) > 0).all()
    assert (counts == 0).any()  # some client has nothing of some task


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_without_weights_it_is_fedavg_and_with_them_it_is_not(scenario: Literal["task", "class"]) -> None:
    def weights(method: Method) -> dict[str, torch.Tensor]:
        return toy_fit(toy_learner(method), toy_data(scenario=scenario))[0][-1].weights

    runs = {ab: weights(DERpp(*ab, **SMALL, ce_scope="current")) for ab in product((0.0, 0.5), repeat=2)}
    if scenario == "task":
        for name, value in weights(FedAvg()).items():
            torch.testing.assert_close(runs[0.0, 0.0][name], value, rtol=0, atol=1e-6)
    heads = [run["head.weight"] for run in runs.values()]
    assert all((a - b).abs().max() > 1e-3 for i, a in enumerate(heads) for b in heads[:i])


def test_matching_logits_keeps_them() -> None:
    def drift(alpha: float) -> float:
        """How far the final model's logits of the first task's samples are from the stored ones, on average."""
        data, learner = toy_data(alpha="iid"), toy_learner(DER(alpha=alpha, memory=24, replay_batch=4), lr=0.125)
        moments, engine = toy_fit(learner, data, rounds=4, epochs=3)
        net = learner.make_net(data.spec, data.seed)
        net.load_state_dict(moments[-1].weights)
        pool, distances = data.train_pool(torch.device("cpu")), []
        for state in engine.clients.values():
            first = state.memory.task_of_place() == 0
            now = net(pool.gather(state.memory.index[first])[0])
            distances.append((now - state.memory.logits[first])[:, :2].square().mean().item())
        return sum(distances) / 3

    assert drift(1.0) < drift(0.0) / 4
