from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedqcl.data.digest import digest
from fedqcl.data.sources import Images

LENGTH = 51


def images(n: int = LENGTH) -> Images:
    x = np.arange(n * 6, dtype=np.uint32) * 2_654_435_761 >> 24
    return Images(x.astype(np.uint8).reshape(n, 3, 2, 1), np.arange(n) % 7)


def swapped(array: np.ndarray) -> np.ndarray:
    order = np.arange(len(array))
    order[[0, -1]] = order[[-1, 0]]
    return array[order]


def edited(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[-1] ^= 1
    return array


def test_it_is_the_same_on_every_machine_and_in_every_release() -> None:
    assert digest(images(), images(5)) == "2c43f3dd29631fc9ba91425edd3cd3db"


def test_it_depends_on_numbers_and_not_on_how_they_lie_in_memory() -> None:
    one = images()
    turned = Images(np.asfortranarray(one.x), one.y.astype(">i8"))
    assert digest(turned) == digest(one)


@pytest.mark.parametrize("change", [swapped, edited])
@pytest.mark.parametrize("array", ["x", "y"])
def test_any_change_shows(array: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    one = images()
    arrays = {"x": one.x, "y": one.y}
    assert digest(Images(**arrays | {array: change(arrays[array])})) != digest(one)


def test_other_shapes_and_parts_show() -> None:
    one, few = images(), images(5)
    reshaped = Images(one.x.reshape(LENGTH, 2, 3, 1), one.y)
    joined = Images(np.concatenate([one.x, few.x]), np.concatenate([one.y, few.y]))
    assert len({digest(*parts) for parts in ([one, few], [few, one], [one], [reshaped, few], [joined])}) == 5
