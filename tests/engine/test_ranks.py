from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from threading import Barrier
from types import SimpleNamespace
from typing import Any, Literal, cast
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedqcl.data import FederatedData
from fedqcl.engine import Engine, ranks
from fedqcl.engine.rules import Rules
from fedqcl.engine.server import federated_entries
from fedqcl.errors import InputError
from fedqcl.learner import Learner
from fedqcl.methods import ClientState, DERpp, FedAvg, FedProx, FedQCL, Method, Stats
from fedqcl.parts import Shard
from fedqcl.parts.weights import WeightBuffers, squared_distance
from fedqcl.schedule import Schedule
from tests.helpers.toy import Linear, Normed, copied, same, toy_data, toy_engine, toy_fit, toy_learner


def queued() -> FedQCL:
    return FedQCL(V=4, delta=-0.5, memory=6, replay_batch=2)


def engine_of(rank: int, world_size: int, data: FederatedData, learner: Learner, **options: Any) -> Engine:
    """One rank's engine, without a process group."""
    fabric: Any = SimpleNamespace(
        device=torch.device("cpu"), global_rank=rank, world_size=world_size, autocast=nullcontext
    )
    return Engine(fabric, learner, data, epochs=1, **options)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_every_client_is_hosted_by_one_rank(world_size: int) -> None:
    data = toy_data(num_clients=4)
    engines = [engine_of(rank, world_size, data, toy_learner(FedAvg())) for rank in range(world_size)]
    for engine in engines:
        assert len(engine.clients) in (4 // world_size, -(-4 // world_size))
        assert len(engine.replicas) == 1
    assert sorted(client for engine in engines for client in engine.clients) == [0, 1, 2, 3]


def test_there_are_seats_for_as_many_as_a_rank_ever_hosts() -> None:
    data = toy_data(num_clients=5)
    engines = [engine_of(rank, 2, data, toy_learner(FedAvg()), executor="graphed") for rank in range(2)]
    assert [len(engine.replicas) for engine in engines] == [3, 3]


@pytest.mark.parametrize(("room", "at_once"), [(1, 1), (ranks.MOVED_AT_ONCE, 2)])
def test_clients_change_ranks_with_all_they_have(room: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "MOVED_AT_ONCE", room)
    data = toy_data(num_clients=4)
    data.shards = [[np.arange(n) for n in sizes] for sizes in ([9, 8, 1, 2], [1, 9, 2, 8], [5, 5, 5, 5])]
    engines = [engine_of(rank, 2, data, toy_learner(queued()), rules=Rules("statistics")) for rank in range(2)]
    assert [list(engine.clients) for engine in engines] == [[0, 2], [1, 3]]
    states = [engine.clients for engine in engines]
    for client, state in {**states[0], **states[1]}.items():
        for value in state.state_dict().values():
            value.fill_(client + 1)
    parts: list[list[Any]] = []
    most: list[int] = []
    together = Barrier(2)

    def joined(items: list[Any]) -> list[Any]:
        parts.append(items)
        together.wait()
        ours = [item for part in parts for item in part]
        most.append(sum(isinstance(item, tuple) for item in ours))
        if together.wait() == 0:
            parts.clear()
        together.wait()
        return ours

    monkeypatch.setattr("fedqcl.engine.ranks.gather", joined)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda engine: engine.start_task(1), engines))
    assert max(most) == at_once  # states on their way at a time, as there is room for
    assert [list(engine.clients) for engine in engines] == [[0, 1], [2, 3]]
    assert all(engine.clients is before for engine, before in zip(engines, states, strict=True))  # others refer to it
    for client, state in {**states[0], **states[1]}.items():
        assert all((value == client + 1).all() for value in state.state_dict().values())


def test_broadcast_seats_active_clients_that_have_samples() -> None:
    data = toy_data(num_clients=4, alpha="iid")
    data.shards[1][2] = np.array([], np.int64)
    engine = toy_engine(toy_learner(FedAvg()), data)

    def seated(task: int, idle_too: bool = False) -> list[list[int]]:
        return [[local.shard.client for local in wave] for wave in engine.broadcast([0, 2, 3], task, idle_too)]

    assert seated(task=0) == [[0], [2], [3]]
    assert seated(task=1) == [[0], [3]]
    assert seated(task=1, idle_too=True) == [[0], [2], [3]]


@pytest.mark.parametrize(("concurrency", "waves"), [(1, [[0], [1], [2]]), (2, [[0, 1], [2]]), (5, [[0, 1, 2]])])
def test_as_many_clients_are_seated_at_once_as_run_at_once(concurrency: int, waves: list[list[int]]) -> None:
    data = toy_data(num_clients=3, alpha="iid")
    engine = toy_engine(toy_learner(FedAvg()), data, executor="graphed", concurrency=concurrency)
    assert len(engine.replicas) == len(waves[0])
    assert [[local.shard.client for local in wave] for wave in engine.broadcast([0, 1, 2], task=0)] == waves
    one_by_one = toy_engine(toy_learner(FedAvg()), data, executor="eager", concurrency=concurrency)
    assert len(one_by_one.replicas) == 1


def test_an_optimizer_that_no_graph_can_restart() -> None:
    learner = Learner(FedAvg(), Linear, torch.optim.NAdam)
    with pytest.raises(InputError, match=r"^trainer\.executor: graphed cannot capture model\.optimizer; choose auto"):
        toy_engine(learner, toy_data(), executor="graphed")
    toy_engine(learner, toy_data())


class Dropping(Linear):
    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__(in_channels, num_classes)
        self.backbone.append(nn.Dropout(0.5))


def test_a_net_that_draws_is_not_captured() -> None:
    learner = toy_learner(FedAvg(), net=Dropping)
    with pytest.raises(InputError, match=r"^trainer\.executor: graphed cannot capture model\.net, which draws random"):
        toy_engine(learner, toy_data(), executor="graphed")
    toy_engine(learner, toy_data())


@pytest.mark.parametrize("method", [queued(), DERpp(memory=6, replay_batch=2)])
def test_a_shard_knows_how_much_is_stored(method: Method) -> None:
    engine = toy_engine(toy_learner(method), toy_data(alpha="iid"))
    for task, stored in ((0, 0), (1, 6)):
        for seats in engine.broadcast(range(3), task, idle_too=True):
            for local in seats:
                assert local.shard.stored == stored
                engine.call(method.client_task, local)


def test_reports_of_a_task_wait_on_the_CPU_for_their_sum() -> None:
    class Reporting(FedAvg):
        def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
            report = MagicMock(spec=Tensor)
            report.cpu.return_value = torch.tensor(float(shard.client))
            return {"n": report}

    method = Reporting()
    engine = toy_engine(toy_learner(method), toy_data(alpha="iid"))
    kept = [engine.call(method.client_task, local) for seats in engine.broadcast(range(3), 0) for local in seats]
    assert engine.sum(kept)["n"].item() == 3


def test_a_client_without_samples_sits_out() -> None:
    data = toy_data(num_clients=3, alpha="iid")
    data.shards[1][2] = np.array([], np.int64)
    moments, _ = toy_fit(toy_learner(queued()), data, rounds=2)
    start, *during = (m for m in moments if (m.task, m.round) >= (0, 1) and m.task < 2)
    for moment in during:
        assert sorted(report.client for report in moment.reports) == [0, 1]
        assert moment.clients[2]["queue.value"].tolist() == start.clients[2]["queue.value"].tolist() == [0, 0, 0]
        assert moment.clients[0]["queue.value"][0] > 0
    # In the third task it is there again, with what it stored of the first.
    last = moments[-1]
    assert sorted(report.client for report in last.reports) == [0, 1, 2]
    assert last.clients[2]["memory.count"].tolist() == [6, 0, 0]
    assert last.clients[2]["queue.value"][0] > 0
    assert last.clients[2]["queue.value"][1] == 0


def test_the_average_leaves_out_clients_without_samples() -> None:
    lone, together = toy_data(num_clients=1, tasks=1), toy_data(num_clients=2, tasks=1)
    together.shards = [[lone.shards[0][0], np.array([], np.int64)]]
    a, _ = toy_fit(toy_learner(FedAvg()), lone)
    b, _ = toy_fit(toy_learner(FedAvg()), together)
    assert same(a[-1].weights, b[-1].weights)


def test_a_round_without_any_samples_keeps_the_model() -> None:
    data = toy_data(num_clients=2)
    data.shards[1] = [np.array([], np.int64)] * 2
    moments, _ = toy_fit(toy_learner(queued()), data, rounds=1)
    assert moments[1].reports == []
    assert same(moments[0].weights, moments[1].weights)
    assert not same(moments[1].weights, moments[2].weights)


def test_absent_clients_keep_queues_and_memories() -> None:
    data = toy_data(num_clients=5, alpha="iid")
    moments, engine = toy_fit(toy_learner(queued()), data, rounds=3, participation=0.4)
    schedule = Schedule(3, 3, 5, 0.4, data.seed)
    moved = 0
    for before, now in pairwise(moments):
        active = schedule.participants(now.task, now.round)
        assert sorted(report.client for report in now.reports) == active
        assert len(active) == 2
        for client in range(5):
            a, b = before.clients[client], now.clients[client]
            if client in active:
                moved += not torch.equal(a["queue.value"], b["queue.value"])
            else:
                assert torch.equal(a["queue.value"], b["queue.value"])
                assert b["queue.drift"] == b["queue.drift_bound"] == 0
            if before.task == now.task:
                assert torch.equal(a["memory.index"], b["memory.index"])
    assert moved > 5
    # Memories are filled at the end of a task by everyone, whoever took part in its rounds.
    assert all(state.memory.count.tolist() == [2, 2, 2] for state in engine.clients.values())


def test_sums_are_over_all_clients() -> None:
    engine = toy_engine(toy_learner(FedAvg()), toy_data())
    stats = [{"n": torch.tensor([1, 2])}, {"n": torch.tensor([3, 4])}]
    assert engine.sum(stats)["n"].tolist() == [4, 6]


def test_hooks_run_without_gradients() -> None:
    engine = toy_engine(toy_learner(FedAvg()), toy_data())
    for (local,) in engine.broadcast([0], task=0):
        seen = engine.call(lambda net, shard, state, server: {"grad": torch.tensor(torch.is_grad_enabled())}, local)
        assert not seen["grad"]


@pytest.mark.parametrize("stats", [None, {"n": 3}, [torch.ones(1)]])
def test_a_hook_that_returns_something_else(stats: Any) -> None:
    engine = toy_engine(toy_learner(FedAvg()), toy_data())

    def hook(net: nn.Module, shard: Shard, state: ClientState, server: nn.Module) -> Any:
        return stats

    for (local,) in engine.broadcast([0], task=0):
        with pytest.raises(TypeError, match=r"hook must return tensors by name, \{\} if none$"):
            engine.call(hook, local)


def test_two_runs_are_equal_bit_for_bit() -> None:
    first, second = (toy_fit(toy_learner(queued()), toy_data())[0] for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert same(a.weights, b.weights)
        assert all(same(a.clients[i], b.clients[i]) for i in a.clients)


def test_a_client_starts_as_itself_from_the_initial_model() -> None:
    started = {}

    class Noted(ClientState):
        def start(self, client: int, net: nn.Module) -> None:
            started[client] = copied(net)

    method = FedAvg()
    method.client_state = lambda spec: Noted()  # type: ignore[method-assign]
    learner = toy_learner(method)
    engine = toy_engine(learner, toy_data())
    assert started.keys() == engine.clients.keys() == {0, 1, 2}
    initial = copied(learner.make_net(toy_data().spec, 0))
    assert all(same(seen, initial) for seen in started.values())


def test_what_is_personal_stays_with_the_client() -> None:
    engine = toy_engine(toy_learner(FedAvg(), net=Normed), toy_data(alpha="iid"), rules=Rules(personal="statistics"))
    for client in (0, 1):
        for (local,) in engine.broadcast([client], task=0):
            with torch.no_grad():
                for value in federated_entries(local.net).values():
                    value.fill_(2.0 + client)
    names = {"backbone.0.running_mean", "backbone.0.running_var"}
    assert {name: v.item() for name, v in engine.clients[1].personal.by_name().items()} == dict.fromkeys(names, 3.0)
    for (local,) in engine.broadcast([0], task=0):
        for name, value in federated_entries(local.net).items():
            assert torch.equal(value, torch.full_like(value, 2.0) if name in names else engine.server.weights()[name])
    for (local,) in engine.broadcast([2], task=0):  # whom nobody has touched
        assert all(torch.equal(v, engine.server.weights()[n]) for n, v in federated_entries(local.net).items())


def test_with_a_personal_model_every_client_trains_alone() -> None:
    learner, data = toy_learner(FedAvg(), net=Normed), toy_data()
    _, engine = toy_fit(learner, data, rules=Rules(personal="model"))
    for client in range(3):
        alone = toy_data()
        alone.shards = [[s if i == client else s[:0] for i, s in enumerate(task)] for task in data.shards]
        moments, _ = toy_fit(learner, alone)
        for name, value in engine.clients[client].personal.by_name().items():
            torch.testing.assert_close(value, moments[-1].weights[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("weighting", "expected"), [("task", [6, 2]), ("first_task", [4, 8]), ("uniform", [1, 1])])
def test_what_a_client_weighs(weighting: Literal["task", "first_task", "uniform"], expected: list[int]) -> None:
    data = toy_data(num_clients=2)
    data.shards = [[np.arange(n) for n in sizes] for sizes in ([4, 8], [6, 2], [3, 3])]
    engine = toy_engine(toy_learner(FedAvg()), data, rules=Rules(weighting=weighting))
    assert [engine.weight(local.shard) for (local,) in engine.broadcast([0, 1], task=1)] == expected


def test_the_average_is_of_these_weights() -> None:
    """One client has three times the other's samples; at equal weights the average lies in the middle of theirs."""
    data = toy_data(num_clients=2, tasks=1)
    data.shards = [[data.shards[0][0][:6], data.shards[0][1][:2]]]
    alone = []
    for client in range(2):
        engine = toy_engine(toy_learner(FedAvg()), data)
        for (local,) in engine.broadcast([client], task=0):
            engine.local_steps([local], round=0)
            alone.append(copied(local.net)["head.weight"])
    for weighting, share in (("task", 0.75), ("uniform", 0.5)):
        moments, _ = toy_fit(toy_learner(FedAvg()), data, rounds=1, rules=Rules(weighting=weighting))
        expected = share * alone[0] + (1 - share) * alone[1]
        torch.testing.assert_close(moments[-1].weights["head.weight"], expected, rtol=0, atol=1e-6)


def test_every_task_starts_from_the_initial_model() -> None:
    learner, data = toy_learner(FedAvg()), toy_data()
    initial = learner.make_net(data.spec, data.seed).head.weight.detach()
    kept, restarted = (toy_fit(learner, data, rules=Rules(restart=restart))[0] for restart in (False, True))
    # A task trains its own two rows of the head.
    for task in range(3):
        own = torch.arange(6) // 2 == task
        head = restarted[2 * task + 1].weights["head.weight"]
        assert torch.equal(head[~own], initial[~own])
        assert not torch.equal(head[own], initial[own])
    assert same(kept[1].weights, restarted[1].weights)
    assert not torch.equal(kept[-1].weights["head.weight"][:2], initial[:2])


def test_every_task_starts_with_nothing_that_the_method_has_kept() -> None:
    rules = Rules(restart=True)
    _, engine = toy_fit(toy_learner(FedProx()), toy_data(), rules=rules)
    assert squared_distance(engine.server.net, cast(WeightBuffers, engine.server.state)) == 0
    engine.start_task(2)  # back to the model that the clients are kept near
    assert squared_distance(engine.server.net, cast(WeightBuffers, engine.server.state)) == 0
    alone, _ = toy_fit(toy_learner(FedAvg()), toy_data(), rules=rules)
    replayed, engine = toy_fit(toy_learner(FedQCL(V=1, delta=-5, memory=6, replay_batch=2)), toy_data(), rules=rules)
    for a, b in zip(alone, replayed, strict=True):
        assert all(torch.allclose(a.weights[name], value, atol=1e-6) for name, value in b.weights.items())
        assert not any(client["queue.value"].any() for client in b.clients.values())
    assert all(not state.memory.count[:2].any() for state in engine.clients.values())
