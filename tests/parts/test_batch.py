from __future__ import annotations

import torch

from fedqcl.parts import Batch


def batch(size: int, present: list[float], n: int) -> Batch:
    return Batch(
        x=torch.zeros(n, 1, 1, 1),
        y=torch.zeros(n).long(),
        columns=torch.ones(n, 2).bool(),
        own=torch.ones(n, 2).bool(),
        index=torch.arange(n),
        task=len(present),
        size=size,
        present=torch.tensor(present),
    )


def test_split_into_current_and_groups() -> None:
    current, replayed = batch(3, [1, 0], n=7).split(torch.arange(7))
    assert current.tolist() == [0, 1, 2]
    assert replayed.tolist() == [[3, 4], [5, 6]]


def test_split_keeps_further_dimensions() -> None:
    current, replayed = batch(1, [1], n=3).split(torch.arange(12).reshape(3, 4))
    assert current.shape == (1, 4)
    assert replayed.shape == (1, 2, 4)


def test_split_without_groups_gives_an_empty_sum() -> None:
    made = batch(3, [], n=3)
    current, replayed = made.split(torch.arange(3.0))
    assert made.groups == 0
    assert current.tolist() == [0, 1, 2]
    assert replayed.shape[0] == 0
    assert replayed.sum(1).shape == (0,)
    assert replayed.mean(1).sum() == 0


def test_competing_columns() -> None:
    made = batch(3, [], n=3)
    assert made.competing("seen") is made.columns
    assert made.competing("current") is made.own
