from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from fedqcl.data.sources import Digits


def test_digits_are_stretched_to_bytes_and_split_by_class() -> None:
    data = Digits(test_fraction=0.2).load()
    original = load_digits()
    assert data.train.x.shape[1:] == data.test.x.shape[1:] == (8, 8, 1)
    assert data.train.x.dtype == np.uint8
    assert (data.train.x.min(), data.train.x.max()) == (0, 255)
    counts = np.bincount(original.target)
    assert np.bincount(data.test.y).tolist() == [round(0.2 * count) for count in counts]
    assert (np.bincount(data.train.y) + np.bincount(data.test.y)).tolist() == counts.tolist()
    # Grey level 8 of 16 is 127.5 of 255, level 5 is 79.7; the same pixels add up.
    levels = np.unique(np.concatenate([data.train.x.ravel(), data.test.x.ravel()]))
    assert levels.tolist() == [0, 16, 32, 48, 64, 80, 96, 112, 128, 143, 159, 175, 191, 207, 223, 239, 255]
    assert (data.train.x == 255).sum() + (data.test.x == 255).sum() == (original.images == 16).sum()
    assert data.name(7) == "7"


def test_digits_split_is_always_the_same() -> None:
    first = Digits().load()
    np.random.seed(3)  # noqa: NPY002 - the legacy generator is the one that must not matter
    second = Digits().load()
    np.testing.assert_array_equal(first.test.x, second.test.x)
    np.testing.assert_array_equal(first.test.y, second.test.y)
