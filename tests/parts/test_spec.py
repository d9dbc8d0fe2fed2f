from __future__ import annotations

from fedqcl.parts import Spec

SPEC = Spec(channels=3, size=(32, 32), classes=(2, 1, 3))


def test_sizes() -> None:
    assert SPEC.num_tasks == 3
    assert SPEC.num_classes == 6


def test_columns_are_numbered_task_by_task() -> None:
    assert SPEC.task_of_column().tolist() == [0, 0, 1, 2, 2, 2]


def test_head_is_the_tasks_block_of_columns() -> None:
    assert SPEC.head().int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1, 1],
    ]


def test_seen_are_the_columns_of_the_tasks_so_far() -> None:
    assert SPEC.seen().int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 1],
    ]


def test_by_default_the_task_of_an_image_is_known() -> None:
    assert SPEC.scenario == "task"
