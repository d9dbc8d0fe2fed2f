"""What every method promises, checked on each method that the package has."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.data.module import ClientShard
from fedqcl.data.stream import Sampler
from fedqcl.methods import ClientState, Method
from fedqcl.models import SmallResNet
from fedqcl.parts import Batch
from tests.helpers.methods import method_classes
from tests.helpers.toy import copied, same, toy_data

every_method = pytest.mark.parametrize("method", [cls() for cls in method_classes()], ids=lambda m: type(m).__name__)


def third_task(method: Method) -> tuple[nn.Module, Batch, ClientState, nn.Module]:
    """A client in the middle of the third task, after one round of it."""
    data = toy_data(num_clients=1, seed=1)
    pool = data.train_pool(torch.device("cpu"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = SmallResNet(1, 6, width=4).train()
    state, server = method.client_state(data.spec), method.server_state(data.spec, net)
    shards = [ClientShard(0, task, data.shards[task][0], pool, seed=1) for task in range(3)]
    for shard in shards[:2]:
        method.client_task(net, shard, state, server)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.5)
    method.client_round(net, shards[2], state, server)
    sampler = Sampler(1, 5, method.replay_batch, 1, None)
    stream = sampler.draw(0, 2, 1, shards[2].index, state.replay(2))
    return net, stream.batch(pool, 0), state, server


def test_the_package_has_the_methods_it_names() -> None:
    assert {"ER", "FedAvg", "FedQCL"} <= {cls.__name__ for cls in method_classes()}


@every_method
def test_loss_is_pure(method: Method) -> None:
    net, batch, state, server = third_task(method)
    twin = copy.deepcopy(net)
    told = {name: copied(module) for name, module in (("net", net), ("state", state), ("server", server))}
    inputs = [value.clone() for value in (batch.x, batch.y, batch.columns, batch.present)]
    randomness = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002

    first = method.loss(net, batch, state, server)
    second = method.loss(twin, batch, state, server)

    assert first.shape == ()
    assert first.requires_grad
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), randomness[0])
    assert random.getstate() == randomness[1]
    assert (np.random.get_state()[1] == randomness[2]).all()  # noqa: NPY002
    assert same(told["state"], copied(state))
    assert same(told["server"], copied(server))
    now = (batch.x, batch.y, batch.columns, batch.present)
    assert all(torch.equal(a, b) for a, b in zip(inputs, now, strict=True))
    changed = {name for name, value in copied(net).items() if not torch.equal(value, told["net"][name])}
    assert changed
    assert all(name.rpartition(".")[2] in {"running_mean", "running_var", "num_batches_tracked"} for name in changed)


@every_method
def test_loss_looks_at_no_value(method: Method) -> None:
    """On the meta device tensors have shapes and no values, so ``.item()`` and the like fail."""
    net, batch, state, server = third_task(method)
    values = (v.to("meta") for v in (batch.x, batch.y, batch.columns))
    bare = Batch(*values, batch.size, batch.present.to("meta"))
    loss = method.loss(net.to("meta"), bare, state.to("meta"), server.to("meta"))
    assert loss.shape == ()


@every_method
def test_state_is_buffers_of_fixed_shape(method: Method) -> None:
    fresh = method.client_state(toy_data(num_clients=1).spec)
    _, _, used, _ = third_task(method)
    shapes = {name: (value.shape, value.dtype) for name, value in fresh.named_buffers()}
    assert shapes == {name: (value.shape, value.dtype) for name, value in used.named_buffers()}
    assert fresh.state_dict().keys() == shapes.keys()
    assert not list(fresh.parameters())


@every_method
def test_number_of_replay_groups_depends_on_the_task_alone(method: Method) -> None:
    fresh = method.client_state(toy_data(num_clients=1).spec)
    _, _, used, _ = third_task(method)
    for task in range(3):
        assert len(fresh.replay(task)) == len(used.replay(task))


def test_a_method_without_a_loss_says_so() -> None:
    with pytest.raises(NotImplementedError):
        Method().loss(nn.Module(), None, ClientState(), nn.Module())  # type: ignore[arg-type]


def test_by_default_a_method_is_fedavg() -> None:
    weights, average = {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    assert Method().server_round(weights, average, {}, nn.Module()) is average
