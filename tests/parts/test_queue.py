from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedqcl.parts import Queue

ALL = torch.tensor([True, True, True])


def queue(value: list[float], reference: list[float]) -> Queue:
    made = Queue(len(value))
    made.value.copy_(torch.tensor(value))
    made.reference.copy_(torch.tensor(reference))
    return made


def test_it_starts_empty() -> None:
    assert Queue(3).value.tolist() == [0, 0, 0]
    assert Queue(3).lyapunov().item() == 0


def test_update_by_hand() -> None:
    q = queue([0, 2, 1], reference=[1, 1, 3])
    # Rises over the reference less 0.5: 4 - 1 - 0.5 = 2.5; 0.25 - 1 - 0.5 = -1.25; 1 - 3 - 0.5 = -2.5, below zero.
    q.update(torch.tensor([4, 0.25, 1]), 0.5, ALL)
    assert q.value.tolist() == [2.5, 0.75, 0]
    # L goes from (0 + 4 + 1) / 2 to (6.25 + 0.5625) / 2.
    assert q.drift.item() == pytest.approx(3.40625 - 2.5)
    # Half the squares, (6.25 + 1.5625 + 6.25) / 2, and 0 * 2.5 + 2 * -1.25 + 1 * -2.5.
    assert q.drift_bound.item() == pytest.approx(7.03125 - 5)


def test_updates_add_up() -> None:
    q = queue([0], reference=[1])
    for expected in (0.75, 1.5, 2.25):
        q.update(torch.tensor([2.0]), 0.25, ALL[:1])
        assert q.value.item() == expected


def test_a_negative_delta_fills_a_queue_that_forgets_nothing() -> None:
    q = queue([0, 1], reference=[2, 3])
    q.update(torch.tensor([2.0, 3.0]), -0.5, ALL[:2])
    assert q.value.tolist() == [0.5, 1.5]


def test_tasks_without_samples_keep_their_queues() -> None:
    q = queue([1, 2, 3], reference=[0, 0, 0])
    q.update(torch.tensor([10.0, 10.0, 0.0]), 1.0, torch.tensor([False, True, False]))
    assert q.value.tolist() == [1, 11, 3]
    assert q.drift.item() == pytest.approx(0.5 * (121 - 4))


def test_an_infinite_delta_keeps_queues_empty() -> None:
    q = queue([0, 0, 0], reference=[1, 1, 1])
    for _ in range(2):
        q.update(torch.tensor([5.0, 1.0, 0.0]), math.inf, torch.tensor([True, True, False]))
        assert q.value.tolist() == [0, 0, 0]
        assert q.drift.item() == 0
        assert q.drift_bound.item() == math.inf


numbers = st.floats(-100, 100, width=32)
lengths = st.shared(st.integers(1, 5), key="T")


@given(
    value=lengths.flatmap(lambda T: st.lists(st.floats(0, 100, width=32), min_size=T, max_size=T)),
    reference=lengths.flatmap(lambda T: st.lists(numbers, min_size=T, max_size=T)),
    loss=lengths.flatmap(lambda T: st.lists(numbers, min_size=T, max_size=T)),
    past=lengths.flatmap(lambda T: st.lists(st.booleans(), min_size=T, max_size=T)),
    delta=st.floats(-20, 20),
)
def test_lemma_1(value: list[float], reference: list[float], loss: list[float], past: list[bool], delta: float) -> None:
    q = queue(value, reference)
    q.update(torch.tensor(loss), delta, torch.tensor(past))
    rise = [(a - b - delta) if p else 0.0 for a, b, p in zip(loss, reference, past, strict=True)]
    bound = sum(0.5 * r**2 + v * r for r, v in zip(rise, value, strict=True))
    scale = 1 + sum(r**2 + v**2 for r, v in zip(rise, value, strict=True))
    assert q.drift.item() <= bound + 1e-5 * scale
    assert q.drift_bound.item() == pytest.approx(bound, abs=1e-5 * scale)
    after = [max(v + r, 0.0) for v, r in zip(value, rise, strict=True)]
    assert q.value.tolist() == pytest.approx(after, abs=1e-4)
    assert q.drift.item() == pytest.approx(
        0.5 * sum(a**2 - v**2 for a, v in zip(after, value, strict=True)), abs=1e-5 * scale
    )
