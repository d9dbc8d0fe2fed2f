from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedqcl import evaluate
from fedqcl.data import FederatedData
from fedqcl.evaluate import Evaluator
from tests.helpers.toy import Given, toy_data


class Scores(nn.Module):
    """Takes an image's pixels for the scores of the classes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def problem() -> FederatedData:
    """Six images of four pixels each, as scores of four classes, two a task."""
    scores = [
        [9, 0, 0, 0],  # class 0, right
        [0, 1, 9, 9],  # class 1, right among its own task's classes
        [5, 4, 0, 0],  # class 1, wrong
        [9, 9, 2, 1],  # class 2, right
        [0, 0, 3, 4],  # class 3, right
        [0, 0, 4, 3],  # class 3, wrong
    ]
    x = np.array(scores, np.uint8).reshape(6, 2, 2, 1)
    return toy_data(Given(x, [0, 1, 1, 2, 3, 3]), tasks=2, num_clients=1)


def count(data: FederatedData, num_tasks: int, rank: int = 0, world_size: int = 1) -> tuple[list[float], list[float]]:
    fabric: Any = SimpleNamespace(global_rank=rank, world_size=world_size, autocast=nullcontext)
    evaluator = Evaluator(fabric, data.evaluation_pool(torch.device("cpu"), "test"), data.spec)
    correct, total = evaluator.count(Scores(), num_tasks)
    assert correct.dtype == total.dtype == torch.float64
    return correct.tolist(), total.tolist()


def test_counts_by_hand() -> None:
    assert count(problem(), num_tasks=2) == ([2, 2], [3, 3])


def test_later_tasks_are_left_out() -> None:
    assert count(problem(), num_tasks=1) == ([2, 0], [3, 0])


@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_batches_and_ranks_do_not_matter(batch: int, world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "BATCH", batch)
    parts = [count(problem(), 2, rank, world_size) for rank in range(world_size)]
    assert np.sum([correct for correct, _ in parts], axis=0).tolist() == [2, 2]
    assert np.sum([total for _, total in parts], axis=0).tolist() == [3, 3]
