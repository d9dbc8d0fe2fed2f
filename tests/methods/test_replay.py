from __future__ import annotations

from math import log
from typing import Literal

import numpy as np
import pytest
import torch

from fedqcl.data.module import ClientShard
from fedqcl.methods.replay import ReplayState, evaluating, sample_losses, task_losses
from fedqcl.models import SmallResNet
from fedqcl.parts import Memory, Spec
from tests.helpers.toy import Given, copied, odds_net, pixel_batch, same, toy_data

SPEC = Spec(channels=1, size=(1, 1), classes=(2, 2))


def test_sample_losses_go_to_each_samples_own_head() -> None:
    batch = pixel_batch(SPEC, current=[2, 3], replayed=[[0, 1]], present=[1])
    current, replayed = sample_losses(odds_net(3, 1, 4, 1), batch)
    torch.testing.assert_close(current, torch.tensor([log(5 / 4), log(5)]))
    torch.testing.assert_close(replayed, torch.tensor([[log(4 / 3), log(4)]]))


def test_replay_groups_are_the_past_tasks() -> None:
    state = ReplayState(Memory(4, num_tasks=3))
    state.memory.store(1, np.array([7, 8]), np.random.default_rng(0))
    assert [sorted(group.tolist()) for group in state.replay(2)] == [[], [7, 8]]


@pytest.mark.parametrize(
    ("scenario", "newest", "first", "second"),
    [
        # Class 0 at -1: 1/3 of 1/3 + 1, so ln 4. Class 1 at 1: 1 of 3 + 1, ln 4 too. Class 3 at 1: 1 of 4 + 1.
        ("task", 0, log(4), log(5)),
        ("task", 1, log(4), log(5)),
        ("class", 0, log(4), None),
        # All four compete: 1/3 of 1/3 + 1 + 1/4 + 1 at -1, 1 of 3 + 1 + 4 + 1 at 1.
        ("class", 1, (log(31 / 4) + log(9)) / 2, log(9)),
    ],
)
def test_task_losses_by_hand(
    scenario: Literal["task", "class"], newest: int, first: float, second: float | None
) -> None:
    # Two images, black and white, make a channel of mean and deviation 1/2: pixel values -1 and 1 for the net.
    images = np.array([0, 255, 0, 255], np.uint8).reshape(4, 1, 1, 1)
    data = toy_data(Given(images, [0, 1, 2, 3]), tasks=2, scenario=scenario)
    shard = ClientShard(0, 1, np.array([2, 3]), data.train_pool(torch.device("cpu")), seed=0)
    net, memory = odds_net(3, 1, 4, 1), Memory(5, num_tasks=2)
    memory.store(0, np.array([0, 1]), np.random.default_rng(0))
    # Nothing is stored of task 1 yet.
    for stored in (None, 2):
        torch.testing.assert_close(task_losses(net, memory, shard, newest, stored), torch.tensor([first, 0.0]))
    if second is not None:
        memory.store(1, np.array([3]), np.random.default_rng(0))
        torch.testing.assert_close(task_losses(net, memory, shard, newest), torch.tensor([first, second]))


def test_only_what_is_stored_is_looked_at() -> None:
    data = toy_data()
    shard = ClientShard(0, 2, data.shards[2][0], data.train_pool(torch.device("cpu")), seed=0)
    net, memory = SmallResNet(1, 6, width=4), Memory(900, num_tasks=3)
    seen: list[int] = []
    net.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    assert task_losses(net, memory, shard, newest=1, stored=0).tolist() == [0, 0, 0]
    memory.store(0, np.arange(4), np.random.default_rng(0))
    known, unknown = (task_losses(net, memory, shard, newest=1, stored=stored) for stored in (4, None))
    assert seen == [4, 500, 400]
    torch.testing.assert_close(known, unknown)


def test_task_losses_leave_the_net_as_it_is() -> None:
    data = toy_data()
    shard = ClientShard(0, 2, data.shards[2][0], data.train_pool(torch.device("cpu")), seed=0)
    net, memory = SmallResNet(1, 6, width=4).train(), Memory(9, num_tasks=3)
    memory.store(0, np.arange(4), np.random.default_rng(0))
    before = copied(net)
    first = task_losses(net, memory, shard, newest=1)
    assert net.training
    assert same(before, copied(net))
    assert torch.equal(task_losses(net, memory, shard, newest=1), first)
    assert torch.equal(task_losses(net.eval(), memory, shard, newest=1), first)
    assert not net.training


def test_evaluating_restores_the_mode_after_an_error() -> None:
    net = SmallResNet(1, 2, width=4).train()
    try:
        with evaluating(net):
            assert not net.training
            raise RuntimeError
    except RuntimeError:
        assert net.training
    assert net.training
