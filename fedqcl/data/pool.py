"""All images of a data set, resident on the device as uint8."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedqcl.data.augment import Views, colour_jitter, crop_and_flip
from fedqcl.parts import Batch, Spec

# Images that are frozen at once.
FROZEN = 10_000


class Pool:
    """Images and class columns, gathered by index and normalised on the device.

    Args:
        x: ``[N, H, W, C]`` uint8.
        y: class columns, ``[N]`` int64.
        spec: the problem.
        mean: per-channel mean of the images in 0..1, ``[C]``.
        std: likewise their standard deviation, above 0.
        padding: pixels of zeros kept round each image for random crops.
        device: where the images live.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        spec: Spec,
        mean: np.ndarray,
        std: np.ndarray,
        padding: int,
        device: torch.device,
    ) -> None:
        p = padding
        self.size = spec.size
        self.padding = p
        self.images = F.pad(torch.from_numpy(x).to(device), (0, 0, p, p, p, p))
        self.y = torch.from_numpy(y).to(device)
        self.scenario = spec.scenario
        self.head = spec.head().to(device)
        self.seen = spec.seen().to(device)
        self.scale = torch.as_tensor(1 / (255 * std), dtype=torch.float32, device=device)[:, None, None]
        self.offset = torch.as_tensor(mean / std, dtype=torch.float32, device=device)[:, None, None]

    @property
    def device(self) -> torch.device:
        """Where the images live."""
        return self.images.device

    @property
    def image_bytes(self) -> int:
        """What one image takes to store."""
        return math.prod(self.size) * self.images.shape[3]

    def look(self, index: Tensor, views: Views | None = None) -> Tensor:
        """Gather images as they are to be seen.

        Args:
            index: ``[n]`` int64 on the device.
            views: how to see them, ``[n]``; None for the images as they are.

        Returns:
            ``[n, H, W, C]`` uint8.
        """
        if views is None:
            (h, w), p = self.size, self.padding
            return self.images[index][:, p : p + h, p : p + w]
        x = crop_and_flip(self.images, index, views, self.size)
        return x if views.jitter is None else colour_jitter(x, views.jitter)

    def freeze(self, views: Views) -> None:
        """Let every image look for good as it is to be seen now.

        Args:
            views: one for each image, ``[N]``.
        """
        (h, w), p = self.size, self.padding
        for index in torch.arange(len(self.images), device=self.device).split(FROZEN):
            self.images[index, p : p + h, p : p + w] = self.look(index, views[index])

    def normalise(self, x: Tensor) -> Tensor:
        """Bring images to mean 0 and deviation 1: ``[n, H, W, C]`` uint8 to ``[n, C, H, W]`` float32.

        They lie as the nets do: channels last on CUDA, else channels first, lest convolutions turn all weights round.
        """
        x = x.permute(0, 3, 1, 2)
        return ((x if x.is_cuda else x.contiguous()) * self.scale).sub_(self.offset)

    def columns(self, y: Tensor, task: int) -> Tensor:
        """The output columns that compete for samples when ``task`` is the newest.

        Args:
            y: class columns, ``[n]`` int64.
            task: decides in the class-incremental scenario; in the task-incremental one the samples' own tasks do.

        Returns:
            ``[n, K]`` bool.
        """
        return self.head[y] if self.scenario == "task" else self.seen[task].expand(len(y), -1)

    def gather(self, index: Tensor, task: int = -1) -> tuple[Tensor, Tensor, Tensor]:
        """Gather samples as they are.

        Args:
            index: ``[n]`` int64 on the device.
            task: the newest task, -1 for the last of all.

        Returns:
            Normalised images ``[n, C, H, W]`` float32, class columns ``[n]`` int64 and competing columns ``[n, K]``
            bool.
        """
        y = self.y[index]
        return self.normalise(self.look(index)), y, self.columns(y, task)

    def batch(self, images: Tensor, index: Tensor, task: int, size: int, present: Tensor) -> Batch:
        """Make a step's batch of images that have been looked at.

        Args:
            images: ``[n, H, W, C]`` uint8.
            index: which they are, ``[n]`` int64.
            task: the current task.
            size: ``B``.
            present: ``[G]`` float32.
        """
        y = self.y[index]
        return Batch(self.normalise(images), y, self.columns(y, task), self.head[y], index, task, size, present)
