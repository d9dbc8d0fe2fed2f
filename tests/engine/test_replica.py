from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fedqcl.data.module import ClientShard
from fedqcl.engine.replica import Replica
from fedqcl.engine.server import Server, federated_entries
from fedqcl.methods import FedQCL
from tests.helpers.toy import Normed, copied, same, toy_data

CPU = torch.device("cpu")


def scene() -> tuple[Server, Replica, FedQCL, list[ClientShard]]:
    data, method = toy_data(), FedQCL(memory=6, replay_batch=2)
    server = Server(Normed(1, 6).eval(), nn.Module())
    replica = Replica(server.net, method.client_state(data.spec), CPU)
    pool = data.train_pool(CPU)
    return server, replica, method, [ClientShard(i, 0, data.shards[0][i], pool, seed=0) for i in range(3)]


def spoil(replica: Replica) -> None:
    """Change everything that a client's round can change."""
    with torch.no_grad():
        for value in federated_entries(replica.net).values():
            value.add_(1.0)
        replica.state.queue.value.add_(2.0)
    replica.state.memory.store(0, np.arange(4), np.random.default_rng(0))
    replica.loss += 5.0


def test_a_replica_is_a_training_copy() -> None:
    server, replica, _, _ = scene()
    assert replica.net.training
    assert not server.net.training
    spoil(replica)
    assert not any(torch.equal(a, b) for a, b in zip(server.net.parameters(), replica.net.parameters(), strict=True))


def test_a_client_takes_its_seat_and_leaves_with_its_state() -> None:
    server, replica, method, shards = scene()
    spec = toy_data().spec
    states = [method.client_state(spec) for _ in range(2)]
    fresh = copied(states[1])

    replica.seat(server.weights(), states[0], shards[0])
    spoil(replica)
    assert same(copied(states[0]), fresh)  # what a client does stays in the replica until it leaves
    replica.leave(states[0])
    assert states[0].queue.value.tolist() == [2, 2, 2]
    assert states[0].memory.count.tolist() == [4, 0, 0]

    replica.seat(server.weights(), states[1], shards[1])
    assert same(copied(replica.state), fresh)
    assert replica.loss == 0
    assert replica.shard is shards[1]
    weights = federated_entries(replica.net)
    assert all(torch.equal(weights[name], value) for name, value in server.weights().items())
    assert same(copied(states[1]), fresh)

    replica.seat(server.weights(), states[0], shards[0])
    assert same(copied(replica.state), copied(states[0]))


def test_a_seated_client_and_the_server_share_no_memory() -> None:
    server, replica, method, shards = scene()
    before = copied(server.net)
    replica.seat(server.weights(), method.client_state(toy_data().spec), shards[0])
    spoil(replica)
    assert same(before, copied(server.net))
