from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedqcl.data.tasks import order_classes, split_classes
from fedqcl.errors import InputError


@pytest.mark.parametrize(
    ("num_classes", "tasks", "classes"),
    [
        (100, 5, (20, 20, 20, 20, 20)),
        (100, 7, (15, 15, 14, 14, 14, 14, 14)),  # 100 = 7 * 14 + 2
        (10, 10, (1,) * 10),
        (10, 1, (10,)),
        (100, [30, 20, 20, 15, 15], (30, 20, 20, 15, 15)),
        (5, [4, 1], (4, 1)),
    ],
)
def test_split(num_classes: int, tasks: int | list[int], classes: tuple[int, ...]) -> None:
    assert split_classes(num_classes, tasks) == classes


@given(st.integers(1, 300), st.integers(1, 300))
def test_split_is_as_equal_as_can_be(num_classes: int, tasks: int) -> None:
    if tasks > num_classes:
        with pytest.raises(InputError):
            split_classes(num_classes, tasks)
        return
    classes = split_classes(num_classes, tasks)
    assert len(classes) == tasks
    assert sum(classes) == num_classes
    assert max(classes) - min(classes) <= 1


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (11, "data.tasks: 11 tasks need as many classes, and there are 10"),
        ([5, 6], "data.tasks: the class counts add up to 11, and there are 10 classes"),
        ([], "data.tasks: the class counts add up to 0, and there are 10 classes"),
    ],
)
def test_split_errors(tasks: int | list[int], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        split_classes(10, tasks)


LABELS = np.array([3, 17, 900])


def test_natural_order() -> None:
    assert order_classes(LABELS, "natural", seed=0).tolist() == [3, 17, 900]


def test_random_order_is_a_shuffle_by_the_seed() -> None:
    labels = np.arange(100)
    first = order_classes(labels, "random", seed=0)
    assert sorted(first) == labels.tolist()
    assert first.tolist() != labels.tolist()
    assert (first == order_classes(labels, "random", seed=0)).all()
    assert (first != order_classes(labels, "random", seed=1)).any()


def test_given_order() -> None:
    assert order_classes(LABELS, [900, 3, 17], seed=0).tolist() == [900, 3, 17]


@pytest.mark.parametrize(
    ("order", "suspect"),
    [([3, 17], "900"), ([3, 17, 901], "900, 901"), ([3, 3, 17], "900"), ([3, 17, 900, 900], "some twice")],
)
def test_order_errors_name_the_label(order: list[int], suspect: str) -> None:
    with pytest.raises(InputError, match=r"^data.class_order: .*3 classes once") as error:
        order_classes(LABELS, order, seed=0)
    assert suspect in str(error.value)
    assert "\n" not in str(error.value)
