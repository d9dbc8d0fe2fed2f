"""Which hooks are called when, and with what; what the loop computes is in test_algorithm.py."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedqcl.methods import FedAvg, Stats
from fedqcl.methods.base import ClientState, Weights
from fedqcl.parts import Shard
from fedqcl.schedule import Schedule
from tests.helpers.toy import copied, same, toy_data, toy_fit, toy_learner


class Spy(FedAvg):
    """Notes its calls; clients report their samples, and the server moves half the way to the average."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[object, ...]] = []
        self.halfway: list[dict[str, Tensor]] = []
        self.at_task_end: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []
        self.drawn: list[int] = []
        self.last: list[bool] = []

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        self.last.append(shard.last_round)
        self.calls.append(("client_round", shard.task, shard.client, len(shard)))
        return {"samples": torch.tensor(len(shard))}

    def server_round(self, weights: Weights, average: Weights, stats: Stats, server: nn.Module) -> Weights:
        self.calls.append(("server_round", int(stats["samples"])))
        self.halfway.append({name: (weights[name] + average[name].float()) / 2 for name in weights})
        return self.halfway[-1]

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        self.calls.append(("client_task", shard.task, shard.client, len(shard)))
        self.seen = copied(net)
        return {"samples": torch.tensor(len(shard)), "clients": torch.tensor(1)}

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        self.calls.append(("server_task", task, int(stats["samples"]), int(stats["clients"])))
        self.at_task_end.append((self.seen, copied(net)))
        self.drawn.append(int(rng.integers(2**62)))


def test_hooks_in_order_with_sums_over_clients() -> None:
    data, spy = toy_data(num_clients=3, tasks=2, alpha="iid"), Spy()
    data.shards[1][1] = np.array([], np.int64)
    moments, _ = toy_fit(toy_learner(spy), data, rounds=2)
    first = [("client_round", 0, i, 12) for i in range(3)] + [("server_round", 36)]
    # Client 1 has no samples of the second task: it takes part in its end and in nothing else.
    second = [("client_round", 1, i, 12) for i in (0, 2)] + [("server_round", 24)]
    assert spy.calls == [
        *first, *first, *[("client_task", 0, i, 12) for i in range(3)], ("server_task", 0, 36, 3),
        *second, *second, *[("client_task", 1, i, n) for i, n in enumerate((12, 0, 12))], ("server_task", 1, 24, 3),
    ]  # fmt: skip
    for moment, halfway in zip(moments, spy.halfway, strict=True):
        assert all(torch.equal(moment.weights[name], halfway[name]) for name in halfway)
    # At the end of a task clients and server meet the global model of its last round.
    for (client, server), moment in zip(spy.at_task_end, moments[1::2], strict=True):
        assert same(client, server)
        assert same(server, moment.weights)


def test_clients_know_a_task_s_last_round() -> None:
    spy = Spy()
    toy_fit(toy_learner(spy), toy_data(num_clients=2, tasks=2, alpha="iid"), rounds=3)
    assert spy.last == 2 * [False, False, False, False, True, True]


def test_the_server_draws_by_seed_and_task() -> None:
    spy = Spy()
    toy_fit(toy_learner(spy), toy_data(seed=6), rounds=1)
    plan = Schedule(3, rounds=1, num_clients=3, participation=1.0, seed=6)
    assert spy.drawn == [plan.server_generator(task).integers(2**62) for task in range(3)]


def test_only_participants_train_and_everyone_ends_a_task() -> None:
    data, spy = toy_data(num_clients=5, tasks=2, alpha="iid"), Spy()
    toy_fit(toy_learner(spy), data, rounds=2, participation=0.4)
    plan = Schedule(2, 2, 5, 0.4, data.seed)
    trained = [call[1:3] for call in spy.calls if call[0] == "client_round"]
    assert trained == [(task, i) for task in range(2) for round in range(2) for i in plan.participants(task, round)]
    ended = [call[1:3] for call in spy.calls if call[0] == "client_task"]
    assert ended == [(task, i) for task in range(2) for i in range(5)]


def test_a_round_without_samples_has_no_server_round() -> None:
    data, spy = toy_data(num_clients=2, tasks=2), Spy()
    data.shards[1] = [np.array([], np.int64)] * 2
    toy_fit(toy_learner(spy), data, rounds=1)
    assert [call[0] for call in spy.calls[-3:]] == ["client_task", "client_task", "server_task"]
    assert [call[0] for call in spy.calls].count("server_round") == 1
