from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from fedqcl.data.augment import Augment, Views
from fedqcl.data.pool import Pool
from fedqcl.parts import Spec

X = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
Y = np.array([0, 1, 2, 2, 1, 0])
MEAN, STD = np.array([0.1, 0.5, 0.7]), np.array([0.25, 1.0, 2.0])


def pool(padding: int = 0, scenario: Literal["task", "class"] = "task") -> Pool:
    spec = Spec(channels=3, size=(4, 5), classes=(2, 1), scenario=scenario)
    return Pool(X, Y, spec, MEAN, STD, padding, torch.device("cpu"))


def normalised(x: np.ndarray) -> np.ndarray:
    return ((x / 255 - MEAN) / STD).transpose(0, 3, 1, 2)


def test_gather() -> None:
    x, y, columns = pool().gather(torch.tensor([4, 2, 2]))
    np.testing.assert_allclose(x.numpy(), normalised(X[[4, 2, 2]]), atol=1e-6)
    assert x.dtype == torch.float32
    assert x.is_contiguous()  # on a CPU
    assert y.tolist() == [1, 2, 2]
    assert columns.tolist() == [[True, True, False], [False, False, True], [False, False, True]]


OWN = [[True, True, False], [False, False, True], [False, False, True]]
FIRST, ALL = [[True, True, False]] * 3, [[True, True, True]] * 3


@pytest.mark.parametrize(
    ("scenario", "task", "expected"),
    [("task", 0, OWN), ("task", 1, OWN), ("task", -1, OWN), ("class", 0, FIRST), ("class", 1, ALL), ("class", -1, ALL)],
)
def test_which_columns_compete(scenario: Literal["task", "class"], task: int, expected: list[list[bool]]) -> None:
    made, index = pool(scenario=scenario), torch.tensor([4, 2, 2])
    assert made.columns(torch.tensor([1, 2, 2]), task).tolist() == expected
    assert made.gather(index, task)[2].tolist() == expected
    batch = made.batch(made.look(index), index, task, 3, torch.zeros(0))
    assert batch.columns.tolist() == expected
    assert batch.own.tolist() == OWN


def test_by_default_the_last_task_is_the_newest() -> None:
    assert pool(scenario="class").gather(torch.tensor([4, 2, 2]))[2].tolist() == ALL


def test_batch() -> None:
    made, index, present = pool(1), torch.tensor([4, 2, 2]), torch.tensor([1.0])
    batch = made.batch(torch.from_numpy(X[[1, 3, 5]]), index, 1, 2, present)
    np.testing.assert_allclose(batch.x.numpy(), normalised(X[[1, 3, 5]]), atol=1e-6)
    assert batch.y.tolist() == [1, 2, 2]
    assert batch.index is index
    assert batch.present is present
    assert (batch.task, batch.size, batch.groups) == (1, 2, 1)


def test_look_gives_the_bytes() -> None:
    index = torch.tensor([4, 2, 2])
    for padding in (0, 2):
        seen = pool(padding).look(index)
        assert seen.dtype == torch.uint8
        assert (seen.numpy() == X[[4, 2, 2]]).all()


def test_look_crops_and_jitters() -> None:
    top, left = torch.tensor([0, 4]), torch.tensor([3, 0])
    halved = torch.tensor([[0.5, 1.0, 1.0]] * 2)
    seen = pool(2).look(torch.tensor([5, 1]), Views(top, left, torch.zeros(2).bool(), halved))
    expected = np.zeros((2, 4, 5, 3))
    expected[0, 2:, :4] = X[5, :2, 1:]  # two rows of padding above, one column beside
    expected[1, :2, 2:] = X[1, 2:, :3]
    assert seen.dtype == torch.uint8
    np.testing.assert_allclose(seen.numpy(), expected / 2, rtol=0, atol=0.5)


def test_gather_looks_and_normalises() -> None:
    made, index = pool(1), torch.tensor([3, 0])
    assert torch.equal(made.gather(index)[0], made.normalise(made.look(index)))


def test_padding_is_not_seen_without_views() -> None:
    index = torch.arange(6)
    assert torch.equal(pool(2).gather(index)[0], pool(0).gather(index)[0])
    assert pool(2).images.shape == (6, 8, 9, 3)


def test_images_stay_bytes() -> None:
    assert pool().images.dtype == torch.uint8


def test_the_middle_crop_is_the_image() -> None:
    two = torch.full((6,), 2)
    middle = Views(two, two, torch.zeros(6).bool(), None)
    index = torch.arange(6)
    assert torch.equal(pool(2).look(index, middle), pool(2).look(index))


def test_no_augmentation_is_the_identity() -> None:
    index = torch.arange(6)
    views = Augment().draw((6,), np.random.default_rng(0))
    assert torch.equal(pool().look(index, views), pool().look(index))


def test_crops_show_black_beyond_the_edge() -> None:
    zero = torch.zeros(1).long()
    seen = pool(2).look(torch.tensor([3]), Views(zero, zero, torch.zeros(1).bool(), None))
    expected = np.zeros((1, 4, 5, 3), np.uint8)
    expected[:, 2:, 2:] = X[[3], :2, :3]
    assert (seen.numpy() == expected).all()


def test_jitter_works_on_the_bytes() -> None:
    zero = torch.zeros(1).long()
    dark = Views(zero, zero, torch.zeros(1).bool(), torch.tensor([[0.0, 1.0, 1.0]]))
    assert (pool().look(torch.tensor([3]), dark) == 0).all()
