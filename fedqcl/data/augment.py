"""Augmentation of whole batches on the device, from numbers drawn beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedqcl.types import Index, NonNegative

# Images whose colours are jittered at once, in float32: enough for large kernels, little memory.
JITTERED = 1024


@dataclass(frozen=True)
class Views:
    """How each image of a stream is to be seen; the leading dimensions are the stream's.

    Attributes:
        top: first row of the crop in the padded image, ``[...]`` int64. ``left`` likewise.
        flip: mirror left and right, ``[...]`` bool.
        jitter: brightness, contrast and saturation factors, ``[..., 3]`` float32; None for none.
    """

    top: Tensor
    left: Tensor
    flip: Tensor
    jitter: Tensor | None

    def __getitem__(self, steps: int | slice | Tensor) -> Views:
        """The views of one step of a stream, or of several."""
        return self._map(lambda value: value[steps])

    def flatten(self) -> Views:
        """The same views in one leading dimension."""
        dims = self.top.dim()
        return self._map(lambda value: value.flatten(0, dims - 1))

    def to(self, device: torch.device) -> Views:
        """A copy on a device."""
        return self._map(lambda value: value.to(device, non_blocking=True))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Views:
        jitter = None if self.jitter is None else change(self.jitter)
        return Views(change(self.top), change(self.left), change(self.flip), jitter)


class Augment:
    """Random crop of the zero-padded image, mirror image and colour jitter, drawn afresh for every batch.

    Args:
        crop: padding in pixels on each side before cropping back to the image's size; 0 for no crop.
        flip: mirror half of the images.
        jitter: brightness, contrast and saturation are each scaled by a factor from ``1 - jitter`` to ``1 + jitter``
            (never below 0), in this order.
        frozen: draw once for each training image, which then looks the same in every batch and in memory, as in the
            authors' code.
    """

    def __init__(self, crop: Index = 0, flip: bool = False, jitter: NonNegative = 0.0, frozen: bool = False) -> None:
        self.crop = crop
        self.flip = flip
        self.jitter = jitter
        self.frozen = frozen

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Views:
        """Draw views for a stream of images of the given leading shape."""
        top, left = rng.integers(0, 2 * self.crop + 1, (2, *shape))
        flip = rng.random(shape) < 0.5 if self.flip else np.zeros(shape, bool)
        jitter = None
        if self.jitter > 0:
            factors = rng.uniform(max(0.0, 1 - self.jitter), 1 + self.jitter, (*shape, 3))
            jitter = torch.from_numpy(factors.astype(np.float32))
        return Views(torch.from_numpy(top), torch.from_numpy(left), torch.from_numpy(flip), jitter)


def crop_and_flip(padded: Tensor, index: Tensor, views: Views, size: tuple[int, int]) -> Tensor:
    """Gather images and cut their views out of the padded originals, in one indexing operation.

    Args:
        padded: ``[N, H + 2p, W + 2p, C]`` uint8.
        index: which images, ``[n]`` int64.
        views: their crops and mirrors, ``[n]``.
        size: ``(H, W)``.

    Returns:
        ``[n, H, W, C]`` uint8.
    """
    rows = torch.arange(size[0], device=index.device)
    columns = torch.arange(size[1], device=index.device)
    columns = torch.where(views.flip[:, None], size[1] - 1 - columns, columns)
    return padded[
        index[:, None, None],
        (views.top[:, None] + rows)[:, :, None],
        (views.left[:, None] + columns)[:, None, :],
    ]


def colour_jitter(images: Tensor, factors: Tensor) -> Tensor:
    """Scale brightness, then contrast about the image's mean grey, then saturation about each pixel's grey.

    Args:
        images: ``[n, H, W, C]`` uint8; saturation needs ``C = 3`` and is left out otherwise.
        factors: ``[n, 3]`` float32.

    Returns:
        ``[n, H, W, C]`` uint8.
    """
    parts = zip(images.split(JITTERED), factors.split(JITTERED), strict=True)
    return torch.cat([_jitter(*part) for part in parts])


def _jitter(images: Tensor, factors: Tensor) -> Tensor:
    brightness, contrast, saturation = factors[:, :, None, None, None].unbind(1)
    x = (images * brightness).clamp_(0, 255)
    x = torch.lerp(_grey(x).mean((1, 2), keepdim=True), x, contrast).clamp_(0, 255)
    if x.shape[3] == 3:
        x = torch.lerp(_grey(x), x, saturation).clamp_(0, 255)
    return x.round_().to(torch.uint8)


def _grey(x: Tensor) -> Tensor:
    """Luma (ITU-R 601) of each pixel, ``[n, H, W, 1]``."""
    if x.shape[3] != 3:
        return x.mean(3, keepdim=True)
    return (x * x.new_tensor([0.299, 0.587, 0.114])).sum(3, keepdim=True)
