from __future__ import annotations

import pytest
import torch

from fedqcl.parts.views import cut_out, turn, views, warp

IDENTITY = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [(32, 32), (4, 4), (9, 14)])
def test_twelve_views_that_all_differ_and_never_change(size: tuple[int, int]) -> None:
    x = noise(3, 2, *size)
    kept = x.clone()
    seen = [x, *views(x)]
    assert len(seen) == 13
    assert all(view.shape == x.shape and view.dtype == x.dtype and view.isfinite().all() for view in seen)
    assert torch.equal(x, kept)
    for i, one in enumerate(seen):
        assert not any(torch.equal(one, other) for other in seen[:i])
    assert all(torch.equal(a, b) for a, b in zip(seen[1:], views(x), strict=True))


def test_a_view_of_an_image_is_its_own() -> None:
    x = noise(3, 1, 8, 8)
    for together, alone in zip(views(x), views(x[1:2]), strict=True):
        torch.testing.assert_close(together[1:2], alone)


def test_simple_views_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])[None, None]
    seen = [view[0, 0].tolist() for view in views(x)]
    assert seen[2] == [[2, 1], [4, 3]]
    assert seen[3] == [[3, 4], [1, 2]]
    assert seen[7] == [[1.5, 2.5], [3.5, 4.5]]
    assert seen[11] == [[-1, -2], [-3, -4]]


@pytest.mark.parametrize(("share", "length"), [(10 / 32, 10), (20 / 32, 20)])
def test_cut_out_is_a_square_in_the_middle(share: float, length: int) -> None:
    gone = cut_out(torch.ones(1, 1, 32, 32), share)[0, 0] == 0
    first, last = (32 - length) // 2, (32 + length) // 2 - 1
    assert gone.sum() == length**2
    assert gone[first, first]
    assert gone[last, last]


@pytest.mark.parametrize("size", [(5, 5), (4, 7)])
def test_warping_by_nothing_changes_nothing(size: tuple[int, int]) -> None:
    x = noise(2, 3, *size)
    torch.testing.assert_close(warp(x, IDENTITY), x)


def test_a_shift_moves_by_half_the_longer_side() -> None:
    x = noise(1, 1, 4, 8)
    moved = warp(x, [[1, 0, 0.5], [0, 1, 0.25], [0, 0, 1]])
    torch.testing.assert_close(moved[..., :3, :6], x[..., 1:, 2:])
    assert not moved[..., 3, :].any()
    assert not moved[..., 6:].any()


@pytest.mark.parametrize("size", [4, 5])
def test_quarter_turns(size: int) -> None:
    x = noise(2, 1, size, size)
    torch.testing.assert_close(turn(x, 90), torch.rot90(x, 1, (-2, -1)))
    torch.testing.assert_close(turn(x, 180), torch.rot90(x, 2, (-2, -1)))


def test_a_turn_of_an_oblong_image_does_not_stretch_it() -> None:
    x = torch.zeros(1, 1, 5, 9)
    x[0, 0, 2, 5] = 1  # right of the centre
    assert turn(x, 90)[0, 0, 1, 4].item() == pytest.approx(1)  # above it
