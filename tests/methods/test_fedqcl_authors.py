from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.data.module import ClientShard
from fedqcl.methods import FedQCL, FedQCLAuthors
from fedqcl.methods.fedqcl import QueueState
from tests.helpers.toy import Given, Linear, Normed, Toy, copied, odds_net, same, toy_data, toy_fit, toy_learner

SMALL = {"V": 4, "delta": -0.5, "memory": 9, "replay_batch": 2}
SOUND = {"batch_means": False, "train_mode": False, "pollute": False, "trim_before_queue": False}
CPU = torch.device("cpu")


def runs(*options: dict[str, Any]) -> list[Any]:
    return [toy_fit(toy_learner(FedQCLAuthors(**SMALL, **o), net=Normed), toy_data())[0] for o in options]


@pytest.mark.parametrize("normalise", ["none", "V"])
def test_with_all_of_it_taken_back_it_is_fedqcl(normalise: str) -> None:
    (authors,) = runs({**SOUND, "normalise": normalise})
    plain, _ = toy_fit(toy_learner(FedQCL(**SMALL, normalise=normalise), net=Normed), toy_data())
    for a, b in zip(authors, plain, strict=True):
        assert same(a.weights, b.weights)
        for client, state in b.clients.items():
            assert all(torch.equal(a.clients[client][name], value) for name, value in state.items())


@pytest.mark.parametrize("option", ["batch_means", "train_mode", "pollute", "trim_before_queue", "skip_first_task"])
def test_each_peculiarity_makes_a_difference_by_itself(option: str) -> None:
    base = {**SOUND, "train_mode": option == "pollute"}
    without, with_it = runs(base, {**base, option: True})
    assert any(
        not torch.equal(a.clients[0]["queue.value"], b.clients[0]["queue.value"])
        for a, b in zip(without, with_it, strict=True)
    )


def scene(method: FedQCL, net: type[Linear] | type[Normed]) -> tuple[ClientShard, nn.Module, QueueState]:
    """A lone client in the second task; a net that knows nothing is what the first task ended with."""
    data = toy_data(Toy(per_class=6), num_clients=1, tasks=2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        pool, flat = data.train_pool(CPU), net(1, 6).train()
    for p in flat.head.parameters():
        nn.init.zeros_(p)
    shards = [ClientShard(0, t, data.shards[t][0], pool, seed=0) for t in (0, 1)]
    state = method.client_state(data.spec)
    method.client_task(flat, shards[0], state, nn.Module())
    return shards[1], flat, state


def test_a_last_smaller_batch_counts_as_much_as_a_full_one() -> None:
    shard, net, state = scene(FedQCLAuthors(memory=5, replay_batch=2, delta=0, train_mode=False), Linear)
    assert state.queue.reference.tolist() == pytest.approx([3 * log(3), 0])
    (of_task,) = [state.memory.of_task(0)]
    with torch.no_grad():
        net.head.bias[:3] = torch.tensor([1.0, 2.0, 3.0]).log()
    lost = np.log([6, 3, 2])[shard.pool.y[of_task].numpy()]
    expected = lost[:2].mean() + lost[2:4].mean() + lost[4]
    method = FedQCLAuthors(memory=5, replay_batch=2, delta=0, train_mode=False, trim_before_queue=False)
    assert method.replay_loss(net.eval(), state.memory, shard, 0)[0].item() == pytest.approx(expected, rel=1e-5)


def test_in_training_mode_each_batch_is_normalised_by_itself() -> None:
    method = FedQCLAuthors(memory=5, replay_batch=3, delta=-5, trim_before_queue=False)
    shard, net, state = scene(method, Normed)
    with torch.no_grad():
        net.head.weight.copy_(torch.linspace(-1, 1, 30).view(6, 5))
    before = copied(net)
    expected, norm = 0.0, net.backbone[0]
    for part in state.memory.of_task(0).split(3):
        x, y, _ = shard.samples(part)
        x = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), correction=0, keepdim=True) + norm.eps).sqrt()
        logits = net.head(net.backbone[1:](x))[:, :3]
        expected += nn.functional.cross_entropy(logits, y).item()
    with torch.no_grad():
        method.client_round(net, shard, state, nn.Module())
    assert state.queue.value[0].item() == pytest.approx(expected - 2 * log(3) + 5, rel=1e-4)
    assert not same(copied(net), before)  # its running statistics have moved
    assert net.training


@pytest.mark.parametrize("options", [{"pollute": False}, {"train_mode": False}])
def test_measuring_need_not_move_the_statistics(options: dict[str, bool]) -> None:
    method = FedQCLAuthors(memory=5, replay_batch=3, delta=-1.0, **options)
    shard, net, state = scene(method, Normed)
    before = copied(net)
    with torch.no_grad():
        method.client_round(net, shard, state, nn.Module())
    assert same(copied(net), before)
    assert net.training
    assert state.queue.value[0] > 0


def test_in_a_task_s_last_round_the_memory_is_trimmed_first() -> None:
    """Five places: five samples of the first task, of which two are left when the second ends."""
    data = toy_data(Given(np.zeros((12, 1, 1, 1), np.uint8), [0, 1, 2, 3] * 3), num_clients=1, tasks=2)
    method = FedQCLAuthors(memory=5, replay_batch=1, delta=-0.25, train_mode=False)
    net, pool = odds_net(1, 1, 1, 1), data.train_pool(CPU)  # which loses ln 2 on every sample, always
    state = method.client_state(data.spec)
    first, second = (ClientShard(0, t, data.shards[t][0], pool, 0, last_round=t == 0) for t in (0, 1))
    with torch.no_grad():
        method.client_task(net, first, state, nn.Module())
        method.client_round(net, second, state, nn.Module())
        assert state.memory.count.tolist() == [5, 0]
        assert state.queue.value[0] == 0.25
        method.client_round(net, ClientShard(0, 1, second.index, pool, 0), state, nn.Module())
        assert state.memory.count.tolist() == [2, 0]
        # Measured from what two samples lost before, not five.
        assert state.queue.value[0] == 0.5
        method.client_task(net, second, state, nn.Module())
    assert state.memory.count.tolist() == [2, 3]


def test_in_a_last_round_a_model_that_has_not_changed_has_forgotten_nothing() -> None:
    """With all classes seen competing too: those of the task itself count on both sides."""
    images = Given(np.zeros((12, 1, 1, 1), np.uint8), [0, 1, 2, 3] * 3)
    data = toy_data(images, num_clients=1, tasks=2, scenario="class")
    method = FedQCLAuthors(memory=5, replay_batch=1, delta=0, train_mode=False)
    net, pool = odds_net(1, 1, 1, 1), data.train_pool(CPU)
    state = method.client_state(data.spec)
    first, second = (ClientShard(0, t, data.shards[t][0], pool, 0) for t in (0, 1))
    with torch.no_grad():
        method.client_task(net, first, state, nn.Module())
        method.client_round(net, second, state, nn.Module())
    assert state.memory.count.tolist() == [2, 0]
    assert state.queue.reference[0].item() == pytest.approx(2 * log(4))
    assert state.queue.value.tolist() == [0, 0]


def test_nothing_of_the_first_task_is_stored_if_so_asked() -> None:
    moments, engine = toy_fit(
        toy_learner(FedQCLAuthors(**SMALL, skip_first_task=True)), toy_data(alpha="iid"), rounds=1
    )
    assert engine.clients[0].memory.count.tolist() == [0, 4, 5]
    assert all(m.clients[0]["queue.value"][0] == 0 for m in moments)
    assert moments[-1].clients[0]["queue.value"][1] > 0


@pytest.mark.parametrize(("method", "exact"), [(FedQCL, True), (FedQCLAuthors, False)])
def test_measured_in_two_modes_a_model_seems_to_forget_that_has_not_changed(method: type[FedQCL], exact: bool) -> None:
    shard, net, state = scene(method(memory=5, replay_batch=3, delta=-5), Normed)
    with torch.no_grad():
        net.head.weight.copy_(torch.linspace(-9, 9, 30).view(6, 5))
        reference = method(memory=5, replay_batch=3).replay_loss(net.eval(), state.memory, shard, 0)
        state.queue.reference.copy_(reference)
        method(memory=5, replay_batch=3, delta=-5).client_round(
            net.train(), replace(shard, last_round=False), state, net
        )
    moved = state.queue.value[0].item()
    assert moved == pytest.approx(5, abs=1e-5) if exact else abs(moved - 5) > 0.01
