"""Fixed views of images, to see how much a net's answers depend on how it looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import cos, radians, sin

import torch
import torch.nn.functional as F
from torch import Tensor


def views(x: Tensor) -> Iterator[Tensor]:
    """Twelve views of each image, the same ones every time: the kinds that BI's code takes (MLO-lab/online-FCL).

    What is cut away or comes in from outside is of the mean colour, about which images are also inverted. How strong
    the brightness, perspective, affine and crop views are, is this package's own choice.

    Args:
        x: normalised images, ``[n, C, H, W]``.

    Yields:
        ``[n, C, H, W]`` each.
    """
    yield cut_out(x, 10 / 32)
    yield cut_out(x, 20 / 32)
    yield x.flip(-1)
    yield x.flip(-2)
    yield turn(x, 10)
    yield turn(x, 45)
    yield turn(x, 90)
    yield x + 0.5  # brighter by half a deviation
    yield warp(x, [[1, 0, 0], [0, 1, 0], [0.2, 0.2, 1]])  # perspective
    yield warp(x, [[1, 0.2, 0.1], [0, 1, 0.1], [0, 0, 1]])  # affine: shear and shift
    yield warp(x, [[0.75, 0, 0], [0, 0.75, 0], [0, 0, 1]])  # crop, resized
    yield -x  # inverted


def cut_out(x: Tensor, share: float) -> Tensor:
    """Blank the middle of images, ``share`` of their height and width."""
    rows, columns = (_middle(side, round(share * side)) for side in x.shape[-2:])
    y = x.clone()
    y[..., rows, columns] = 0
    return y


def _middle(side: int, length: int) -> slice:
    start = (side - length) // 2
    return slice(start, start + length)


def turn(x: Tensor, degrees: float) -> Tensor:
    """Turn images to the left about their centre."""
    c, s = cos(radians(degrees)), sin(radians(degrees))
    return warp(x, [[c, -s, 0], [s, c, 0], [0, 0, 1]])


def warp(x: Tensor, matrix: Sequence[Sequence[float]]) -> Tensor:
    """Look at each point of an image where a projective map takes it, between pixels linearly.

    Args:
        x: ``[n, C, H, W]``.
        matrix: 3x3, on points ``(right, down, 1)`` from the centre in units of half the longer side.

    Returns:
        ``[n, C, H, W]``, zero where the map leads outside.
    """
    h, w = x.shape[-2:]
    side = max(h, w)
    right, down = ((2 * torch.arange(n, device=x.device) + 1 - n) / side for n in (w, h))
    points = torch.stack(torch.broadcast_tensors(right, down[:, None], torch.ones(h, w, device=x.device)), -1)
    points = points @ torch.tensor(matrix, dtype=torch.float32, device=x.device).T
    grid = points[..., :2] / points[..., 2:] * torch.tensor([side / w, side / h], device=x.device)
    return F.grid_sample(x, grid.expand(len(x), -1, -1, -1), align_corners=False)
