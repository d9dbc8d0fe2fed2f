"""The loop against Algorithm 1 of the paper, written down once more in NumPy alone.

Of the package, the transcription gets what is given to an algorithm: the clients' shards, the initial weights, and
which samples and clients the random draws pick. Forward and backward passes, SGD, queues, memories and the average are
its own, in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from fedqcl.data import FederatedData
from fedqcl.data.stream import Sampler
from fedqcl.methods import FedQCL
from fedqcl.rng import Purpose, generator
from fedqcl.schedule import Schedule
from tests.helpers.toy import Toy, toy_data, toy_fit, toy_learner

SOURCE = Toy(noise=150)
Weights = dict[str, np.ndarray]
SEED, B, R, C, V, LR, M, b = 4, 5, 2, 3, 4.0, 0.125, 9, 3


@dataclass
class Problem:
    """Toy's images as a net sees them, and each task's block of two classes."""

    x: np.ndarray
    y: np.ndarray

    @classmethod
    def of_toy(cls) -> Problem:
        images = SOURCE.load().train
        pixels = images.x / 255
        flat = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        return cls((flat - pixels.mean()) / pixels.std(), images.y)

    def losses(self, w: Weights, index: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cross-entropy of samples over some columns; features and the gradient of the logits beside."""
        features = self.x[index] @ w["backbone.1.weight"].T + w["backbone.1.bias"]
        logits = features @ w["head.weight"].T + w["head.bias"]
        competing = np.exp(logits[:, columns])
        p = competing / competing.sum(1, keepdims=True)
        target = self.y[index] - columns.start
        slope = np.zeros_like(logits)
        slope[:, columns] = p - np.eye(p.shape[1])[target]
        return -np.log(p[np.arange(len(index)), target]), features, slope

    def loss(self, w: Weights, index: np.ndarray, columns: slice) -> float:
        """The mean over the samples."""
        return float(self.losses(w, index, columns)[0].mean())

    def gradient(self, w: Weights, index: np.ndarray, columns: slice) -> Weights:
        """Of the mean over the samples."""
        _, features, slope = self.losses(w, index, columns)
        slope = slope / len(index)
        back = slope @ w["head.weight"]
        return {
            "backbone.1.weight": back.T @ self.x[index],
            "backbone.1.bias": back.sum(0),
            "head.weight": slope.T @ features,
            "head.bias": slope.sum(0),
        }


@dataclass
class Client:
    """What a client keeps: queues and stored samples, by past task."""

    Q: dict[int, float] = field(default_factory=dict)
    stored: dict[int, np.ndarray] = field(default_factory=dict)

    def store(self, task: int, shuffled: np.ndarray) -> None:
        """Fill the memory evenly: one sample of each task in turn, and the last, incomplete turn to the newest."""
        wanted = {**self.stored, task: shuffled}
        places = dict.fromkeys(wanted, 0)
        while open_ := [k for k in wanted if places[k] < len(wanted[k])]:
            room = M - sum(places.values())
            if room < len(open_):
                break
            for k in open_:
                places[k] += 1
        for k in sorted(wanted, reverse=True):
            places[k] += min(M - sum(places.values()), len(wanted[k]) - places[k])
        self.stored = {k: wanted[k][: places[k]] for k in wanted}
        self.Q.setdefault(task, 0.0)


def algorithm_1(
    problem: Problem,
    data: FederatedData,
    w: Weights,
    delta: float,
    participants: Callable[[int, int], list[int]],
    scale: Callable[[int], float],
    lr: float,
    queue_scope: str,
) -> Iterator[tuple[Weights, list[Client]]]:
    """Yield the global model and the clients after every round.

    ``scale`` says by what the mean loss of so many stored samples is multiplied where queues measure it,
    ``queue_scope`` whether they measure among the classes of all tasks so far or of past ones.
    """

    def columns(k: int, newest: int) -> slice:
        """Which compete for samples of task k: its own two, or in the class-incremental scenario all so far."""
        return slice(2 * k, 2 * k + 2) if data.scenario == "task" else slice(0, 2 * newest + 2)

    sampler = Sampler(SEED, B, b, R, augment=None)
    clients = [Client() for _ in range(data.num_clients)]
    for t in range(3):
        reference = w  # w^(t-1)
        for c in range(C):
            local, n = [], []
            for i in participants(t, c):
                shard, client = data.shards[t][i], clients[i]
                if not len(shard):
                    continue
                groups = [torch.from_numpy(client.stored.get(k, np.array([], np.int64))) for k in range(t)]
                w_i = w
                for step in sampler.draw(i, t, c, shard, groups).index.numpy():
                    update = {name: V * g for name, g in problem.gradient(w_i, step[:B], columns(t, t)).items()}
                    for k in client.stored:
                        replayed = step[B + k * b : B + (k + 1) * b]
                        for name, g in problem.gradient(w_i, replayed, columns(k, t)).items():
                            update[name] = update[name] + client.Q[k] * g
                    w_i = {name: value - lr * update[name] for name, value in w_i.items()}
                for k, stored in client.stored.items():
                    among = columns(k, t if queue_scope == "seen" else t - 1)
                    rise = problem.loss(w_i, stored, among) - problem.loss(reference, stored, among)
                    client.Q[k] = max(client.Q[k] + scale(len(stored)) * rise - delta, 0.0)
                local.append(w_i)
                n.append(len(shard))
            p = np.array(n) / sum(n)
            w = {name: sum(p_i * w_i[name] for p_i, w_i in zip(p, local, strict=True)) for name in w}
            yield w, clients
        for i, client in enumerate(clients):
            if len(data.shards[t][i]):
                rng = generator(SEED, Purpose.MEMORY, client=i, task=t)
                client.store(t, rng.permutation(data.shards[t][i]))


def compare(
    data: FederatedData,
    delta: float = 0.05,
    participation: float = 1.0,
    queue_loss: Any = "batches",
    lr: float = LR,
    **options: Any,
) -> list[np.ndarray]:
    """Run both and check them against each other round by round; further options are FedQCL's.

    Returns:
        The transcription's queues ``[N, T]`` after each round, so that a test can see that they were at work.
    """
    method = FedQCL(V, delta, memory=M, replay_batch=b, queue_loss=queue_loss, **options)
    learner = toy_learner(method, lr=lr)
    initial = {name: value.double().numpy() for name, value in learner.make_net(data.spec, SEED).state_dict().items()}
    moments, _ = toy_fit(learner, data, rounds=C, epochs=R, participation=participation)
    participants = Schedule(3, C, data.num_clients, participation, SEED).participants
    scale = (lambda n: n / b) if queue_loss == "batches" else (lambda n: 1.0)
    history = []
    reference = algorithm_1(Problem.of_toy(), data, initial, delta, participants, scale, lr, method.queue_scope)
    for moment, (w, clients) in zip(moments, reference, strict=True):
        for name, value in w.items():
            np.testing.assert_allclose(moment.weights[name].numpy(), value, rtol=0, atol=1e-5)
        Q = np.array([[client.Q.get(k, 0.0) for k in range(3)] for client in clients])
        for i, client in enumerate(clients):
            np.testing.assert_allclose(moment.clients[i]["queue.value"].numpy(), Q[i], rtol=0, atol=1e-4)
            # The last round of a task is compared before its end, when memories are filled anew.
            counts = [len(client.stored.get(k, [])) for k in range(3)]
            assert moment.clients[i]["memory.count"].tolist() == counts
            stored = np.concatenate([[], *(client.stored[k] for k in sorted(client.stored))])
            assert moment.clients[i]["memory.index"][: sum(counts)].tolist() == stored.tolist()
        history.append(Q)
    return history


def toy(num_clients: int = 3, **options: Any) -> FederatedData:
    return toy_data(SOURCE, num_clients=num_clients, batch_size=B, seed=SEED, **options)


def test_all_clients() -> None:
    rounds = np.stack(compare(toy()))
    # Queues are at work: some rise and some fall, so both sides of the maximum are met.
    assert (rounds > 0.1).any(0).sum() >= 3
    assert (np.diff(rounds, axis=0) > 0.01).any()
    assert (np.diff(rounds, axis=0) < -0.01).any()


@pytest.mark.parametrize("queue_scope", ["seen", "past"])
def test_class_incremental(queue_scope: str) -> None:
    rounds = np.stack(compare(toy(scenario="class"), lr=LR / 4, logit_matching=0.0, queue_scope=queue_scope))
    assert (rounds > 0.1).any(0).sum() >= 3
    assert (np.diff(rounds, axis=0) < -0.01).any()


def test_mean_queue_loss_and_a_negative_delta() -> None:
    history = compare(toy(), delta=-0.25, queue_loss="mean")
    assert (history[-1][:, :2] > 0.5).all()


def test_some_clients_at_a_time() -> None:
    history = compare(toy(num_clients=5, alpha="iid"), delta=-0.1, participation=0.4)
    assert (history[-1][:, 0] > 0).sum() >= 3


def test_a_client_without_samples_of_the_last_task() -> None:
    data = toy(alpha="iid")
    data.shards[2][1] = np.array([], np.int64)
    history = compare(data)
    assert (history[-1][1] == history[5][1]).all()


def test_a_client_without_samples_of_the_first_task() -> None:
    data = toy(alpha="iid")
    data.shards[0][1] = np.array([], np.int64)
    history = compare(data, delta=-0.1)
    assert history[-1][1][0] == 0
    assert history[-1][1][1] > 0


def test_a_client_without_samples_of_a_task_in_the_middle() -> None:
    data = toy(alpha="iid")
    data.shards[1][1] = np.array([], np.int64)
    history = compare(data, delta=-0.1)
    assert history[-1][1][0] > 0
