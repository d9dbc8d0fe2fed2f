"""What every method promises, checked on each method that the package has."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Literal, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedqcl.data.module import ClientShard
from fedqcl.data.stream import Sampler
from fedqcl.engine.averaging import sum_stats
from fedqcl.engine.server import Server
from fedqcl.methods import CCVR, ER, EWC, ClientState, FedAvg, FedProto, FedQCL, Method
from fedqcl.models import SmallResNet
from fedqcl.parts import Batch, Spec
from fedqcl.schedule import Schedule
from tests.helpers.methods import method_classes, skip_if_refused
from tests.helpers.toy import copied, same, toy_data

Scenario = Literal["task", "class"]
CPU = torch.device("cpu")
# Options that change what a method keeps or computes.
VARIANTS = [
    EWC(fisher="local"),
    FedQCL(V=[2.0, 3.0], quadratic_drift=True, normalise="V+sumQ", queue_scope="past", initial_queue=1.0),
    FedProto(distance="samples"),
    CCVR(covariance="diagonal"),
]


class Scene(NamedTuple):
    """A client about to take a step, and the server."""

    net: nn.Module
    batch: Batch
    client: ClientState
    server: nn.Module


def third_task(method: Method, scenario: Scenario) -> Scene:
    """A lone client in the middle of the third task, after one round of each task, as the loop calls the hooks."""
    data = toy_data(num_clients=1, seed=1, scenario=scenario)
    skip_if_refused(method, data.spec)
    pool, schedule = data.train_pool(CPU), Schedule(3, rounds=2, num_clients=1, participation=1.0, seed=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = SmallResNet(1, 6, width=4).train()
    client, state = started(method, data.spec, net)
    server = Server(copy.deepcopy(net).eval(), state)
    for task in range(3):
        shard = ClientShard(0, task, data.shards[task][0], pool, seed=1)
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1.25)
            stats = sum_stats([method.client_round(net, shard, client, state)], CPU)
            average = {name: value.double() for name, value in Server(net, state).weights().items()}
            server.load(method.server_round(server.weights(), average, stats, state))
            net.load_state_dict(server.net.state_dict())
            if task < 2:
                stats = sum_stats([method.client_task(net, shard, client, state)], CPU)
                method.server_task(server.net, stats, state, task, schedule.server_generator(task))
                net.load_state_dict(server.net.state_dict())
    stream = Sampler(1, 5, method.replay_batch, 1, None).draw(0, 2, 1, shard.index, client.replay(2))
    return Scene(net, stream.batch(pool, 0), client, state)


def started(method: Method, spec: Spec | None, net: nn.Module) -> tuple[ClientState, nn.Module]:
    """The states of a client and of the server before the first round."""
    assert spec is not None
    client = method.client_state(spec)
    client.start(0, net)
    return client, method.server_state(spec, net)


def tensors(batch: Batch) -> dict[str, Tensor]:
    """A batch's tensors by name."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def every_method(test: Callable[..., None]) -> Callable[..., None]:
    """In both scenarios, where the method takes both."""
    made = [pytest.param(cls(), id=cls.__name__) for cls in method_classes()]
    made += [pytest.param(method, id=f"{type(method).__name__}-{number}") for number, method in enumerate(VARIANTS)]
    methods = pytest.mark.parametrize("method", made)
    return pytest.mark.parametrize("scenario", ["task", "class"])(methods(test))


def test_the_methods_held_to_this_are_all_there_are() -> None:
    """The package's own, the example's and the one of the tests; a new one is found by itself."""
    assert {"ER", "FedAvg", "FedQCL", "Anchored", "EveryHook"} <= {cls.__name__ for cls in method_classes()}

    class New(FedAvg):
        pass

    assert New not in method_classes()
    New.__module__ = "fedqcl.methods.new"
    assert New in method_classes()
    New.__module__ = __name__


@every_method
def test_loss_is_pure(method: Method, scenario: Scenario) -> None:
    net, batch, state, server = third_task(method, scenario)
    twin = copy.deepcopy(net)
    told = {name: copied(module) for name, module in (("net", net), ("state", state), ("server", server))}
    inputs = {name: value.clone() for name, value in tensors(batch).items()}
    randomness = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002

    first = method.loss(net, batch, state, server)
    second = method.loss(twin, batch, state, server)

    assert first.shape == ()
    assert first.requires_grad
    assert first.isfinite()
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), randomness[0])
    assert random.getstate() == randomness[1]
    assert (np.random.get_state()[1] == randomness[2]).all()  # noqa: NPY002
    assert same(told["state"], copied(state))
    assert same(told["server"], copied(server))
    assert same(inputs, tensors(batch))
    changed = {name for name, value in copied(net).items() if not torch.equal(value, told["net"][name])}
    assert changed or not isinstance(method, FedAvg)  # one that does not freeze them
    assert all(name.rpartition(".")[2] in {"running_mean", "running_var", "num_batches_tracked"} for name in changed)


@every_method
def test_loss_looks_at_no_value(method: Method, scenario: Scenario) -> None:
    """On the meta device tensors have shapes and no values, so ``.item()`` and the like fail."""
    net, batch, state, server = third_task(method, scenario)
    bare = replace(batch, **{name: value.to("meta") for name, value in tensors(batch).items()})
    loss = method.loss(net.to("meta"), bare, state.to("meta"), server.to("meta"))
    assert loss.shape == ()


@every_method
def test_state_is_buffers_of_fixed_shape(method: Method, scenario: Scenario) -> None:
    scene = third_task(method, scenario)
    used, (fresh, _) = scene.client, started(method, toy_data(num_clients=1, scenario=scenario).spec, scene.net)
    shapes = {name: (value.shape, value.dtype) for name, value in fresh.named_buffers()}
    assert shapes == {name: (value.shape, value.dtype) for name, value in used.named_buffers()}
    assert fresh.state_dict().keys() == shapes.keys()
    assert not list(fresh.parameters())


@every_method
def test_server_state_is_changed_in_place(method: Method, scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured steps keep reading the same tensors."""
    made: list[dict[str, tuple[int, torch.Size, torch.dtype]]] = []
    server_state = type(method).server_state

    def places(server: nn.Module) -> dict[str, tuple[int, torch.Size, torch.dtype]]:
        named = [*server.named_parameters(), *server.named_buffers()]
        return {name: (value.data_ptr(), value.shape, value.dtype) for name, value in named}

    def noted(self: Method, spec: Spec, net: nn.Module) -> nn.Module:
        server = server_state(self, spec, net)
        made.append(places(server))
        return server

    monkeypatch.setattr(type(method), "server_state", noted)
    assert [places(third_task(method, scenario).server)] == made


@every_method
def test_states_are_restored_from_their_state_dicts(method: Method, scenario: Scenario) -> None:
    """In another process, say: what is made anew and loaded goes on as what was saved."""
    net, batch, client, server = third_task(method, scenario)
    data, other = toy_data(num_clients=1, seed=1, scenario=scenario), SmallResNet(1, 6, width=4)
    new_client, new_server = started(method, data.spec, other)
    new_client.load_state_dict(client.state_dict())
    new_server.load_state_dict(server.state_dict())
    twin = copy.deepcopy(net)
    assert torch.equal(method.loss(net, batch, client, server), method.loss(twin, batch, new_client, new_server))
    shard = ClientShard(0, 2, data.shards[2][0], data.train_pool(CPU), seed=1)
    for hook in (method.client_round, method.client_task):
        with torch.no_grad():
            assert same(dict(hook(net, shard, client, server)), dict(hook(twin, shard, new_client, new_server)))
        assert same(copied(client), copied(new_client))
    assert [group.tolist() for group in client.replay(2)] == [group.tolist() for group in new_client.replay(2)]


@every_method
def test_what_clients_report_are_sums_over_samples(method: Method, scenario: Scenario) -> None:
    """Of two clients with half of the samples each as of one with all of them."""
    net, _, client, server = third_task(method, scenario)
    data = toy_data(num_clients=1, seed=1, scenario=scenario)
    pool, index = data.train_pool(CPU), data.shards[2][0]
    for hook in (method.client_round, method.client_task):
        reported = []
        for part in (index, index[:7], index[7:]):
            shard = ClientShard(0, 2, part, pool, seed=1)
            with torch.no_grad():
                reported.append(hook(copy.deepcopy(net), shard, copy.deepcopy(client), server))
        whole, first, second = reported
        assert whole.keys() == first.keys() == second.keys()
        for name, value in whole.items():
            torch.testing.assert_close(first[name] + second[name], value, rtol=1e-4, atol=1e-5, msg=name)


@every_method
def test_number_of_replay_groups_depends_on_the_task_alone(method: Method, scenario: Scenario) -> None:
    fresh = method.client_state(toy_data(num_clients=1, scenario=scenario).spec)
    used = third_task(method, scenario).client
    for task in range(3):
        assert len(fresh.replay(task)) == len(used.replay(task))


@pytest.mark.parametrize("scenario", ["task", "class"])
@pytest.mark.parametrize("method", [FedQCL(), ER(), FedAvg(), Method()])
def test_these_take_both_scenarios(method: Method, scenario: Scenario) -> None:
    method.check(Spec(channels=1, size=(4, 4), classes=(2, 2), scenario=scenario), num_clients=3)


def test_a_method_without_a_loss_says_so() -> None:
    with pytest.raises(NotImplementedError):
        Method().loss(nn.Module(), None, ClientState(), nn.Module())  # type: ignore[arg-type]


def test_by_default_a_method_is_fedavg() -> None:
    weights, average = {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    assert Method().server_round(weights, average, {}, nn.Module()) is average
