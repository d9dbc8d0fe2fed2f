from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedqcl.parts import Memory
from fedqcl.parts.memory import quotas


def filled(M: int, sizes: list[int]) -> Memory:
    """A memory after tasks of the given sizes; task ``k`` has the samples ``1000 k, 1000 k + 1, ...``."""
    memory = Memory(M, len(sizes))
    for task, size in enumerate(sizes):
        memory.store(task, 1000 * task + np.arange(size), np.random.default_rng(task))
    return memory


@pytest.mark.parametrize(
    ("M", "available", "places"),
    [
        (500, [2000], [500]),
        (500, [2000, 2000], [250, 250]),
        (500, [2000, 2000, 2000], [166, 166, 168]),  # 500 = 3 * 166 + 2, the remainder to the newest
        (500, [40, 2000, 2000], [40, 230, 230]),  # the first leaves 460 for two
        (500, [2000, 40, 2000], [230, 40, 230]),
        (501, [40, 2000, 2000], [40, 230, 231]),
        (10, [4, 4, 4], [3, 3, 4]),
        (11, [4, 4, 4], [3, 4, 4]),  # the newest is full, so the next newest gets the second spare place
        (500, [10, 0, 20], [10, 0, 20]),
        (2, [5, 5, 5], [0, 0, 2]),
        (0, [5], [0]),
        (7, [], []),
    ],
)
def test_quotas_by_hand(M: int, available: list[int], places: list[int]) -> None:
    assert quotas(M, available) == places


@given(st.integers(0, 60), st.lists(st.integers(0, 40), max_size=6))
def test_quotas_fill_the_memory_and_are_as_even_as_can_be(M: int, available: list[int]) -> None:
    places = quotas(M, available)
    assert sum(places) == min(M, sum(available))
    assert all(0 <= p <= n for p, n in zip(places, available, strict=True))
    wanting = [p for p, n in zip(places, available, strict=True) if p < n]
    if wanting:  # whoever could use more got the level; only the spare ones, fewer than there are tasks, lie above
        assert sum(max(0, p - min(wanting)) for p in places) < len(places)


@pytest.mark.parametrize(
    ("sizes", "history"),
    [
        ([2000, 2000, 2000], [[500], [250, 250], [166, 166, 168]]),
        ([40, 2000, 2000], [[40], [40, 460], [40, 230, 230]]),
        # The last one's five samples leave 495 places, 165 for each of the others.
        ([2000, 2000, 2000, 5], [[500], [250, 250], [166, 166, 168], [165, 165, 165, 5]]),
    ],
)
def test_memory_after_each_task(sizes: list[int], history: list[list[int]]) -> None:
    for tasks, counts in enumerate(history, start=1):
        memory = filled(500, sizes[:tasks])
        assert memory.count.tolist() == counts
        assert [len(memory.of_task(k)) for k in range(tasks)] == counts
        assert int((memory.index >= 0).sum()) == sum(counts)


@given(st.integers(1, 30), st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_memory_never_exceeds_M_and_trims_to_the_first(M: int, sizes: list[int]) -> None:
    memory = Memory(M, len(sizes))
    before: list[list[int]] = []
    for task, size in enumerate(sizes):
        candidates = 1000 * task + np.arange(size)
        memory.store(task, candidates, np.random.default_rng(task))
        kept = [memory.of_task(k).tolist() for k in range(task + 1)]
        assert int(memory.count.sum()) == sum(map(len, kept)) <= M
        assert (memory.index[sum(map(len, kept)) :] == -1).all()
        for old, now in zip(before, kept, strict=False):
            assert now == old[: len(now)]
        assert set(kept[task]) <= set(candidates.tolist())
        assert len(set(kept[task])) == len(kept[task])
        before = kept


def test_memory_holds_everything_while_there_is_room() -> None:
    memory = filled(10, [3, 4])
    assert sorted(memory.index[:7].tolist()) == [0, 1, 2, 1000, 1001, 1002, 1003]


def test_memory_keeps_a_random_subset_that_the_generator_alone_decides() -> None:
    def kept(seed: int) -> list[int]:
        memory = Memory(10, 1)
        memory.store(0, np.arange(100), np.random.default_rng(seed))
        return memory.index.tolist()

    assert kept(1) == kept(1)
    assert kept(1) != kept(2)
    assert set(kept(1)) != set(range(10))


def test_storing_a_task_without_samples_changes_nothing() -> None:
    memory, same = filled(10, [20, 20, 0]), filled(10, [20, 20])
    assert memory.count.tolist() == [5, 5, 0]
    assert torch.equal(memory.index, same.index)


def test_task_of_place() -> None:
    memory = filled(7, [2, 0, 3])
    assert memory.count.tolist() == [2, 0, 3]
    assert memory.task_of_place().tolist() == [0, 0, 2, 2, 2, 3, 3]  # 3 is T: empty


def test_memory_is_saved_and_loaded_whole() -> None:
    memory, other = filled(7, [4, 9]), Memory(7, 2)
    other.load_state_dict(memory.state_dict())
    assert other.of_task(1).tolist() == memory.of_task(1).tolist()


@pytest.mark.parametrize(
    ("size", "left"), [(2, [2, 2, 2]), (4, [3, 3, 4]), (3, [3, 3, 3]), (0, [0, 0, 0]), (9, [3, 3, 4])]
)
def test_trimming_keeps_the_first_of_every_task(size: int, left: list[int]) -> None:
    memory = filled(10, [20, 20, 20])
    before = [memory.of_task(k).tolist() for k in range(3)]
    memory.trim(size)
    assert memory.count.tolist() == left
    assert [memory.of_task(k).tolist() for k in range(3)] == [own[:size] for own in before]
    assert (memory.index[sum(left) :] == -1).all()


def test_trimming_first_makes_no_difference_to_what_is_stored_next() -> None:
    plain, trimmed = filled(10, [20, 20, 0]), filled(10, [20, 20, 0])
    trimmed.trim(10 // 3)
    for memory in (plain, trimmed):
        memory.store(2, 2000 + np.arange(20), np.random.default_rng(2))
    assert torch.equal(plain.index, trimmed.index)
