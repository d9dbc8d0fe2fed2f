"""Residual nets for small images (He et al., 2016, basic blocks)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from fedqcl.models.base import Net
from fedqcl.models.conv import Conv2d
from fedqcl.models.norm import BatchNormReLU, twin
from fedqcl.types import Count


class ConvNorm(nn.Module):
    """``relu(bn(conv(x)) + shortcut)``, the convolution without bias, its weights drawn as He et al. (2015) do.

    Args:
        inputs: channels of ``x``.
        outputs: channels of the result.
        kernel: height and width of the convolution, odd.
        stride: of the convolution.
        relu: apply the ReLU.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, relu: bool = True) -> None:
        super().__init__()
        self.conv = Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        self.norm = BatchNormReLU(outputs, relu)

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """``[n, inputs, H, W]`` to ``[n, outputs, H / stride, W / stride]``."""
        y: Tensor = self.norm(self.conv(x), shortcut)
        return y


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut, 1x1 where the shape changes.

    Args:
        inputs: channels of ``x``.
        outputs: channels of the result.
        stride: of the first convolution.
        zero_init: start with nothing but the shortcut.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, zero_init: bool = False) -> None:
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride)
        self.second = ConvNorm(outputs, outputs, 3)
        if zero_init:
            nn.init.zeros_(self.second.norm.weight)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[n, inputs, H, W]`` to ``[n, outputs, H / stride, W / stride]``."""
        y: Tensor = self.second(self.first(x), self.shortcut(twin(x)))
        return y


def residual_backbone(in_channels: int, widths: Sequence[int], blocks: int, zero_init: bool = False) -> nn.Sequential:
    """A 3x3 stem without pooling, then stages of ``blocks`` blocks that halve the image from the second on.

    Args:
        in_channels: image channels.
        widths: channels of each stage.
        blocks: blocks of a stage.
        zero_init: start every block as its shortcut.
    """
    layers: list[nn.Module] = [ConvNorm(in_channels, widths[0], 3)]
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            layers.append(BasicBlock(inputs, width, 2 if stage > 0 and block == 0 else 1, zero_init))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class _ResNet(Net):
    """A residual backbone and a head.

    Args:
        in_channels: image channels.
        num_classes: ``K``, classes of all tasks.
        widths: channels of each stage.
        blocks: blocks of a stage.
        zero_init: start every block as its shortcut (Goyal et al., 2017) and all logits at zero.
        he_init: draw convolutions as He et al. (2015) do, or else as PyTorch does.
    """

    def __init__(
        self, in_channels: int, num_classes: int, widths: Sequence[int], blocks: int, zero_init: bool, he_init: bool
    ) -> None:
        super().__init__(residual_backbone(in_channels, widths, blocks, zero_init), widths[-1], num_classes)
        if zero_init:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)
        for module in self.modules() if not he_init else ():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()


class ResNet18(_ResNet):
    """ResNet-18 with the CIFAR stem (3x3, stride 1, no pooling), as the paper's experiments use it.

    Args:
        in_channels: image channels.
        num_classes: ``K``, classes of all tasks.
        width: channels of the first stage; the others have 2, 4 and 8 times as many.
        zero_init: start every block as its shortcut (Goyal et al., 2017) and all logits at zero. It steadies the first
            rounds at the large learning rates that FedQCL's ``V`` amounts to.
        he_init: draw convolutions as He et al. (2015) do, or else as PyTorch does, with a sixth of the variance where a
            layer has as many inputs as outputs, as in the authors' code.
    """

    def __init__(
        self, in_channels: int, num_classes: int, width: Count = 64, zero_init: bool = True, he_init: bool = True
    ) -> None:
        widths = [width, 2 * width, 4 * width, 8 * width]
        super().__init__(in_channels, num_classes, widths, 2, zero_init, he_init)


class SmallResNet(_ResNet):
    """A residual net of two stages of one block, for images of about 8x8 pixels.

    Args:
        in_channels: image channels.
        num_classes: ``K``, classes of all tasks.
        width: channels of the first stage; the second has twice as many.
        zero_init: as of :class:`ResNet18`.
        he_init: as of :class:`ResNet18`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, width: Count = 16, zero_init: bool = False, he_init: bool = True
    ) -> None:
        super().__init__(in_channels, num_classes, [width, 2 * width], 1, zero_init, he_init)
