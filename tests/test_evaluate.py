from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedqcl import evaluate
from fedqcl.data import FederatedData
from fedqcl.evaluate import ClientEvaluator, Evaluator
from fedqcl.methods import ClientState
from fedqcl.parts.weights import Entries
from tests.helpers.toy import Given, toy_data


class Scores(nn.Module):
    """Takes an image's pixels for the scores of the classes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def problem(scenario: Literal["task", "class"] = "task") -> FederatedData:
    """Six images of four pixels each, as scores of four classes, two a task."""
    scores = [
        [9, 0, 0, 0],  # class 0, right
        [0, 1, 9, 9],  # class 1, right among its own task's classes alone
        [5, 4, 0, 0],  # class 1, wrong
        [9, 9, 2, 1],  # class 2, right among its own task's classes alone
        [0, 0, 3, 4],  # class 3, right
        [0, 0, 4, 3],  # class 3, wrong
    ]
    x = np.array(scores, np.uint8).reshape(6, 2, 2, 1)
    return toy_data(Given(x, [0, 1, 1, 2, 3, 3]), tasks=2, num_clients=1, scenario=scenario)


def count(
    data: FederatedData, num_tasks: int, rank: int = 0, world_size: int = 1, newest: int | None = None
) -> tuple[list[float], list[float]]:
    fabric: Any = SimpleNamespace(global_rank=rank, world_size=world_size, autocast=nullcontext)
    evaluator = Evaluator(fabric, data.evaluation_pool(torch.device("cpu"), "test"), data.spec)
    correct, total = evaluator.count(Scores(), num_tasks, newest)
    assert correct.dtype == total.dtype == torch.float64
    return correct.tolist(), total.tolist()


def test_counts_by_hand() -> None:
    assert count(problem(), num_tasks=2) == ([2, 2], [3, 3])


def test_later_tasks_are_left_out() -> None:
    assert count(problem(), num_tasks=1) == ([2, 0], [3, 0])


@pytest.mark.parametrize("newest", [None, 0, 1])
def test_in_the_task_incremental_scenario_it_does_not_matter_what_was_learned(newest: int | None) -> None:
    assert count(problem(), 2, newest=newest) == ([2, 2], [3, 3])


@pytest.mark.parametrize(
    ("num_tasks", "newest", "correct", "total"),
    [
        (2, 1, [1, 1], [3, 3]),
        (2, None, [1, 1], [3, 3]),
        # What is not seen yet is never predicted: not in the place of a seen class, nor when it is right.
        (2, 0, [2, 0], [3, 3]),
        (1, 0, [2, 0], [3, 0]),
        (1, None, [2, 0], [3, 0]),
        (1, 1, [1, 0], [3, 0]),
    ],
)
def test_in_the_class_incremental_scenario_all_seen_classes_compete(
    num_tasks: int, newest: int | None, correct: list[float], total: list[float]
) -> None:
    assert count(problem("class"), num_tasks, newest=newest) == (correct, total)


@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_batches_and_ranks_do_not_matter(batch: int, world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "BATCH", batch)
    parts = [count(problem(), 2, rank, world_size) for rank in range(world_size)]
    assert np.sum([correct for correct, _ in parts], axis=0).tolist() == [2, 2]
    assert np.sum([total for _, total in parts], axis=0).tolist() == [3, 3]


class Biased(Scores):
    """Adds a number of its own to the score of the first class."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bias * torch.tensor([1.0, 0, 0, 0])


@pytest.mark.parametrize("world_size", [1, 2])
def test_clients_are_tested_by_their_own_models_on_their_own_images(world_size: int) -> None:
    data = problem()
    shards = [[np.array([0, 1, 2]), np.array([0, 2, 2])], [np.array([3]), np.array([5, 4])]]
    states = [ClientState(), ClientState()]
    # The second takes everything for the first class, so that of the first task it has only image 0 right.
    states[1].personal = Entries({"bias": torch.tensor(1000.0)})
    net, counts = Biased(), []
    for rank in range(world_size):
        mine = dict(list(enumerate(states))[rank::world_size])
        fabric: Any = SimpleNamespace(global_rank=rank, world_size=world_size, autocast=nullcontext)
        pool = data.evaluation_pool(torch.device("cpu"), "test")
        evaluator = ClientEvaluator(fabric, pool, data.spec, shards, mine)
        counts.append(torch.stack(evaluator.count(net, 2)))
    assert sum(counts).tolist() == [[2 + 1, 1 + 1], [6, 3]]
    assert net.bias == 0
