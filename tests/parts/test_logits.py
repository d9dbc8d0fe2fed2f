from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedqcl.parts import Memory, Spec
from fedqcl.parts.logits import LogitMemory, columns_at_storage
from tests.helpers.toy import pixel_batch

SPEC = Spec(channels=1, size=(1, 1), classes=(1, 2, 3))


@dataclass
class Numbers:
    """A shard whose images are the indices themselves."""

    task: int

    def samples(self, index: Tensor) -> tuple[Tensor, None, None]:
        return index.float()[:, None], None, None


class Says(nn.Module):
    """Tells of every sample its index, and which task has just ended."""

    def __init__(self, task: int) -> None:
        super().__init__()
        self.task = task

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.full_like(x, self.task)], dim=1)


def filled(M: int, sizes: list[int]) -> tuple[LogitMemory, Memory]:
    """After tasks of the given sizes, and a plain memory after the same."""
    memory, plain = LogitMemory(M, len(sizes), num_classes=2), Memory(M, len(sizes))
    for task, size in enumerate(sizes):
        candidates = 1000 * task + np.arange(size)
        plain.store(task, candidates, np.random.default_rng(task))
        memory.store(task, candidates, np.random.default_rng(task))
        memory.remember(Says(task), Numbers(task))  # type: ignore[arg-type]
    return memory, plain


@given(st.integers(1, 30), st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_logits_are_those_of_the_end_of_a_samples_task_wherever_the_sample_moves(M: int, sizes: list[int]) -> None:
    memory, plain = filled(M, sizes)
    assert torch.equal(memory.index, plain.index)
    assert torch.equal(memory.count, plain.count)
    places = memory.index >= 0
    expected = torch.stack([memory.index, memory.task_of_place()], dim=1).float()
    assert torch.equal(memory.logits[places], expected[places])


def test_trimming_moves_samples() -> None:
    """The test above would also pass if they always stayed."""
    before, after = filled(6, [9, 9])[0], filled(6, [9, 9, 9])[0]
    assert before.logits[3:, 1].tolist() == [1, 1, 1]
    assert after.logits[:, 1].tolist() == [0, 0, 1, 1, 2, 2]
    assert after.logits[2:4, 0].tolist() == before.logits[3:5, 0].tolist()


def test_distances_by_hand() -> None:
    memory = LogitMemory(3, num_tasks=3, num_classes=6)
    memory.index[:2] = torch.tensor([2, 1])
    memory.logits[:2] = torch.tensor([[1.0, 0, 0, 9, 9, 9], [5.0, 2, -1, 9, 9, 9]])
    batch = pixel_batch(SPEC, current=[3], replayed=[[1, 0]], present=[1])  # at the indices 0, 1 and 2
    logits = torch.tensor([[0.0] * 6, [0, 1, 1, 0, 0, 0], [4, 0, 0, 0, 0, 0]], requires_grad=True)
    distances = memory.distances(logits, batch, batch.own)
    # Class 1's own columns are 1 and 2: (1 - 2)^2 and (1 + 1)^2. Class 0 has one: (4 - 1)^2.
    assert distances.tolist() == [[2.5, 9.0]]
    (gradient,) = torch.autograd.grad(distances.sum(), logits)
    assert gradient.tolist() == [[0.0] * 6, [0, -1, 2, 0, 0, 0], [6, 0, 0, 0, 0, 0]]


def test_distances_of_stand_ins_are_finite_and_without_replay_there_are_none() -> None:
    memory = LogitMemory(3, num_tasks=3, num_classes=6)
    batch = pixel_batch(SPEC, current=[3], replayed=[[3, 4]], present=[0])
    assert memory.distances(torch.ones(3, 6), batch, batch.own).tolist() == [[1, 1]]
    assert memory.distances(torch.ones(1, 6), pixel_batch(SPEC, current=[0]), SPEC.head()[:1]).numel() == 0


@pytest.mark.parametrize(
    ("newest", "seen"),
    [
        (2, [[1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]),
        (1, [[1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0]]),
    ],
)
def test_columns_at_storage_end_with_the_samples_own_task(newest: int, seen: list[list[int]]) -> None:
    batch = pixel_batch(SPEC, current=[0, 2, 4])
    assert torch.equal(columns_at_storage(batch), batch.own)
    batch = replace(batch, columns=SPEC.seen()[newest].expand(3, -1))
    assert columns_at_storage(batch).int().tolist() == seen


def test_logits_are_saved_and_loaded() -> None:
    memory, _ = filled(7, [4, 9])
    other = LogitMemory(7, 2, num_classes=2)
    other.load_state_dict(memory.state_dict())
    assert torch.equal(other.logits, memory.logits)
    assert memory.logits.any()


def test_logits_follow_their_samples_when_the_memory_is_trimmed() -> None:
    memory, _ = filled(10, [20, 20, 20])
    memory.trim(2)
    places = sum(memory.count.tolist())
    assert places == 6
    assert memory.logits[:places].tolist() == [[float(i), i // 1000] for i in memory.index[:places].tolist()]
