"""Which classes make up which task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedqcl.errors import InputError
from fedqcl.rng import Purpose, generator


def order_classes(labels: np.ndarray, order: Literal["natural", "random"] | Sequence[int], seed: int) -> np.ndarray:
    """Put the classes into the order in which tasks take them.

    Args:
        labels: the data set's label ids, each once, sorted: ``[K]`` integers.
        order: ``natural`` (as sorted), ``random`` (shuffled by the seed), or every label id in the order wanted.
        seed: the run's seed.

    Returns:
        Label ids, ``[K]``: the class at position ``c`` has output column ``c``.

    Raises:
        InputError: a list that is not a permutation of the labels.

    Example:
        >>> order_classes(np.array([3, 5, 8]), [8, 3, 5], seed=0)
        array([8, 3, 5])
    """
    if isinstance(order, str):
        return labels if order == "natural" else generator(seed, Purpose.CLASS_ORDER).permutation(labels)
    given = np.asarray(order)
    if len(given) != len(labels) or not np.array_equal(np.sort(given), labels):
        wrong = sorted(set(map(int, given)) ^ set(map(int, labels))) or "some twice"
        raise InputError(f"data.class_order: must name each of the {len(labels)} classes once; check {wrong}")
    return given


def split_classes(num_classes: int, tasks: int | Sequence[int]) -> tuple[int, ...]:
    """Decide how many classes each task has.

    Args:
        num_classes: ``K``.
        tasks: the number of tasks ``T``, which then are as equal as can be, the first ``K mod T`` having one class
            more; or the number of classes of each task.

    Returns:
        ``[T]`` class counts that add up to ``K``.

    Raises:
        InputError: more tasks than classes, or counts that do not add up.

    Example:
        >>> split_classes(10, 4)
        (3, 3, 2, 2)
        >>> split_classes(10, [6, 4])
        (6, 4)
    """
    if isinstance(tasks, int):
        if tasks > num_classes:
            raise InputError(f"data.tasks: {tasks} tasks need as many classes, and there are {num_classes}")
        more = num_classes % tasks
        return tuple(num_classes // tasks + (t < more) for t in range(tasks))
    if sum(tasks) != num_classes:
        raise InputError(f"data.tasks: the class counts add up to {sum(tasks)}, and there are {num_classes} classes")
    return tuple(tasks)
