"""Residual nets for small images (He et al., 2016, basic blocks)."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from fedqcl.models.base import Net
from fedqcl.types import Count


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias and its BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class BasicBlock(nn.Module):
    """``relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))``; a 1x1 shortcut where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = conv_bn(inputs, outputs, 3, stride)
        self.second = conv_bn(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """``[n, inputs, H, W]`` to ``[n, outputs, H / stride, W / stride]``."""
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def residual_backbone(in_channels: int, widths: Sequence[int], blocks: int) -> nn.Sequential:
    """A 3x3 stem without pooling, then stages of ``blocks`` blocks that halve the image from the second on."""
    layers: list[nn.Module] = [conv_bn(in_channels, widths[0], 3), nn.ReLU()]
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            layers.append(BasicBlock(inputs, width, stride=2 if stage > 0 and block == 0 else 1))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class ResNet18(Net):
    """ResNet-18 with the CIFAR stem (3x3, stride 1, no pooling), as the paper's experiments use it.

    Args:
        in_channels: image channels.
        num_classes: ``K``, classes of all tasks.
        width: channels of the first stage; the others have 2, 4 and 8 times as many.
    """

    def __init__(self, in_channels: int, num_classes: int, width: Count = 64) -> None:
        super().__init__(
            residual_backbone(in_channels, [width, 2 * width, 4 * width, 8 * width], blocks=2),
            8 * width,
            num_classes,
        )


class SmallResNet(Net):
    """A residual net of two stages of one block, for images of about 8x8 pixels.

    Args:
        in_channels: image channels.
        num_classes: ``K``, classes of all tasks.
        width: channels of the first stage; the second has twice as many.
    """

    def __init__(self, in_channels: int, num_classes: int, width: Count = 16) -> None:
        super().__init__(residual_backbone(in_channels, [width, 2 * width], blocks=1), 2 * width, num_classes)
