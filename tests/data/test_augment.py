from __future__ import annotations

import numpy as np
import pytest
import torch

from fedqcl.data.augment import JITTERED, Augment, Views, colour_jitter, crop_and_flip

GREY = np.array([0.299, 0.587, 0.114])


def images(n: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 6, 5, channels), np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("padding", [0, 2])
def test_crop_and_flip_against_a_loop(channels: int, padding: int) -> None:
    x = images(4, channels)
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    index = np.array([2, 0, 3, 3, 1, 2, 0])
    views = Augment(crop=padding, flip=True).draw((7,), np.random.default_rng(5))
    assert 0 < views.flip.sum() < 7

    expected = []
    for i, top, left, flip in zip(index, views.top, views.left, views.flip, strict=True):
        view = padded[i, top : top + 6, left : left + 5]
        expected.append(view[:, ::-1] if flip else view)

    seen = crop_and_flip(torch.from_numpy(padded), torch.from_numpy(index), views, (6, 5))
    assert seen.dtype == torch.uint8
    assert (seen.numpy() == np.stack(expected)).all()


def test_draws_cover_the_whole_range() -> None:
    views = Augment(crop=2, flip=True).draw((50, 20), np.random.default_rng(0))
    for offset in (views.top, views.left):
        assert offset.shape == (50, 20)
        assert torch.bincount(offset.flatten(), minlength=5).div(1000).sub(0.2).abs().max() < 0.05
    assert abs(views.flip.float().mean() - 0.5) < 0.05
    assert (views.top != views.left).any()
    assert views.jitter is None


def test_no_augmentation_is_the_identity() -> None:
    views = Augment().draw((3,), np.random.default_rng(0))
    x = torch.from_numpy(images(3, 3))
    assert torch.equal(crop_and_flip(x, torch.arange(3), views, (6, 5)), x)


@pytest.mark.parametrize(("jitter", "low", "high"), [(0.4, 0.6, 1.4), (1.5, 0.0, 2.5)])
def test_jitter_range(jitter: float, low: float, high: float) -> None:
    factors = Augment(jitter=jitter).draw((1000,), np.random.default_rng(0)).jitter
    assert factors is not None
    assert factors.shape == (1000, 3)
    assert factors.dtype == torch.float32
    assert low - 1e-6 <= factors.min() < low + 0.05
    assert high - 0.05 < factors.max() <= high + 1e-6


def test_jitter_against_a_loop() -> None:
    x = images(8, 3)
    factors = np.random.default_rng(1).uniform(0.2, 1.8, (8, 3))
    expected = []
    for image, (brightness, contrast, saturation) in zip(x, factors, strict=True):
        bright = np.clip(image * brightness, 0, 255)
        mean = (bright @ GREY).mean()
        strong = np.clip(mean + contrast * (bright - mean), 0, 255)
        grey = (strong @ GREY)[..., None]
        expected.append(np.clip(grey + saturation * (strong - grey), 0, 255))
    seen = colour_jitter(torch.from_numpy(x), torch.from_numpy(factors).float())
    assert seen.dtype == torch.uint8
    # Rounded to the nearest level, but for what float32 makes of a tie.
    np.testing.assert_allclose(seen.numpy(), np.stack(expected), rtol=0, atol=0.5 + 1e-3)


def test_more_images_than_are_jittered_at_once() -> None:
    n = 2 * JITTERED + 3
    x = torch.from_numpy(images(n, 3))
    factors = torch.linspace(0.5, 1.5, 3 * n).view(n, 3)
    one_by_one = [colour_jitter(x[i : i + 1], factors[i : i + 1]) for i in range(0, n, 100)]
    assert torch.equal(colour_jitter(x, factors)[::100], torch.cat(one_by_one))


def test_factors_of_one_change_nothing() -> None:
    for channels in (1, 3):
        x = torch.from_numpy(images(2, channels))
        assert torch.equal(colour_jitter(x, torch.ones(2, 3)), x)


def test_grey_images_have_no_saturation() -> None:
    x = torch.from_numpy(images(2, 1))
    assert torch.equal(colour_jitter(x, torch.tensor([[1.0, 1.0, 0.0]]).expand(2, 3)), x)


def test_jitter_by_hand() -> None:
    x = torch.tensor([[10, 20, 200]], dtype=torch.uint8).reshape(1, 1, 3, 1)
    # Halved: 5, 10, 100, whose mean is 38 1/3; twice as far from it: below zero, below zero, 161 2/3.
    assert colour_jitter(x, torch.tensor([[0.5, 2.0, 1.0]])).flatten().tolist() == [0, 0, 162]


def test_views_of_a_step() -> None:
    views = Augment(crop=1, flip=True, jitter=0.4).draw((4, 3), np.random.default_rng(0))
    step: Views = views[2]
    assert torch.equal(step.top, views.top[2])
    assert torch.equal(step.flip, views.flip[2])
    assert step.jitter is not None
    assert step.jitter.shape == (3, 3)
    assert Augment().draw((4, 3), np.random.default_rng(0))[1].jitter is None


def test_views_of_several_steps_in_one_dimension() -> None:
    views = Augment(crop=1, flip=True, jitter=0.4).draw((4, 3), np.random.default_rng(0))
    flat = views[1:3].flatten()
    assert flat.top.tolist() == [*views.top[1].tolist(), *views.top[2].tolist()]
    assert flat.left.tolist() == views.left[1:3].flatten().tolist()
    assert flat.flip.tolist() == views.flip[1:3].flatten().tolist()
    assert flat.jitter is not None
    assert views.jitter is not None
    assert torch.equal(flat.jitter, torch.cat([views.jitter[1], views.jitter[2]]))
    assert Augment().draw((4, 3), np.random.default_rng(0)).flatten().jitter is None


def test_the_generator_decides() -> None:
    def top(seed: int) -> list[int]:
        return Augment(crop=4).draw((20,), np.random.default_rng(seed)).top.tolist()

    assert top(0) == top(0) != top(1)
