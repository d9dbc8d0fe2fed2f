"""The yardstick: FedQCL's local step as plain eager PyTorch, in the manner of the authors' code.

A forward pass for the current batch, one for every past task, and for each of these a pass of the reference model
whose value the gradient does not need.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn


def plain_net(num_classes: int) -> nn.Module:
    """ResNet-18 with the CIFAR stem, as torchvision builds it."""
    net = torchvision.models.resnet18(num_classes=num_classes)
    net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    net.maxpool = nn.Identity()
    return net


class PlainClient:
    """One client at work on one task.

    Args:
        num_classes: outputs of the net.
        num_past: past tasks, each with a queue of 5.
        device: where to train.
        V: weight of the current loss.
        lr: learning rate of plain SGD.
    """

    def __init__(
        self, num_classes: int, num_past: int, device: torch.device, V: float = 200, lr: float = 0.005
    ) -> None:
        self.net = plain_net(num_classes).to(device).train()
        self.reference = copy.deepcopy(self.net).eval()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)
        self.queues = [5.0] * num_past
        self.V = V

    def step(self, batch: tuple[Tensor, Tensor], memories: Sequence[tuple[Tensor, Tensor]]) -> None:
        """One local step on ``(images [B, 3, H, W], labels [B])`` and as many for every past task."""
        x, y = batch
        loss = self.V * F.cross_entropy(self.net(x), y)
        for Q, (x, y) in zip(self.queues, memories, strict=True):
            replay = F.cross_entropy(self.net(x), y)
            with torch.no_grad():
                before = F.cross_entropy(self.reference(x), y)
            loss = loss + Q * (replay - before)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
