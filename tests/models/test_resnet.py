from __future__ import annotations

import pytest
import torch
from torch import nn

from fedqcl.models import ResNet18, SmallResNet
from fedqcl.models.resnet import BasicBlock, ConvNorm


def test_resnet18_has_the_papers_size() -> None:
    with torch.device("meta"):
        net = ResNet18(3, 100)
    convolutions = sum(m.weight.numel() for m in net.modules() if isinstance(m, nn.Conv2d))
    norms = sum(p.numel() for m in net.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters())
    assert convolutions == 11_159_232
    assert norms == 9_600
    assert sum(p.numel() for p in net.parameters()) == 11_159_232 + 9_600 + 513 * 100
    assert sum(isinstance(m, nn.Conv2d) for m in net.modules()) == 17 + 3  # 17 and the shortcuts' three


def test_resnet18_starts_as_its_shortcuts() -> None:
    net = ResNet18(3, 10, width=8)
    block = net.backbone[1]
    assert isinstance(block, BasicBlock)
    x = torch.rand(2, 8, 4, 4)
    assert torch.equal(block(x), x)  # what comes out of a ReLU is not negative
    assert not net(torch.rand(2, 3, 8, 8)).any()
    plain = ResNet18(3, 10, width=8, zero_init=False)
    assert not torch.equal(plain.backbone[1](x), x)
    assert plain(torch.rand(2, 3, 8, 8)).any()


def test_resnet18_keeps_small_images_large() -> None:
    with torch.device("meta"):
        net = ResNet18(3, 10)
        x = torch.zeros(2, 3, 32, 32)
        sizes = []
        for layer in net.backbone:
            x = layer(x)
            sizes.append(tuple(x.shape[1:]))
    assert sizes[0] == (64, 32, 32)
    assert sizes[-3] == (512, 4, 4)
    assert sizes[-1] == (512,)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 2)])
def test_convolutions_are_drawn_as_he_et_al_do(kernel: int, stride: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weight = ConvNorm(64, 128, kernel, stride).conv.weight
    # Variance 2 / fan out; 2^13 numbers or more give its root to 1 % or so.
    assert weight.std().item() == pytest.approx((2 / (128 * kernel**2)) ** 0.5, rel=0.03)
    assert abs(weight.mean().item()) < 0.05 * weight.std().item()


@pytest.mark.parametrize("make", [ResNet18, SmallResNet])
def test_or_as_pytorch_does(make: type[ResNet18 | SmallResNet]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make(3, 10, width=32, zero_init=False, he_init=False)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):  # evenly within 1 / sqrt(fan in)
            largest = (module.in_channels * module.kernel_size[0] ** 2) ** -0.5
            assert 0.95 * largest < module.weight.abs().max() <= largest


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, 28), (3, 5)])
def test_small_resnet_takes_any_channels_and_size(channels: int, size: int) -> None:
    net = SmallResNet(channels, 7, width=4)
    x = torch.rand(3, channels, size, size)
    assert net(x).shape == (3, 7)
    assert net.features(x).shape == (3, 8)
    torch.testing.assert_close(net.eval()(x), net.head(net.features(x)))


def test_a_block_is_two_convolutions_and_a_shortcut() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for inputs, outputs, stride in ((4, 4, 1), (4, 8, 2), (4, 8, 1)):
            block, x = BasicBlock(inputs, outputs, stride).eval(), torch.randn(2, inputs, 6, 6)
            for norm in (block.first.norm, block.second.norm):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)

            def plain(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
                norm = layer.norm
                y = (layer.conv(x) - norm.running_mean[:, None, None]) / (norm.running_var + 1e-5)[:, None, None].sqrt()
                return y * norm.weight[:, None, None] + norm.bias[:, None, None]

            same = isinstance(block.shortcut, nn.Identity)
            assert same == (inputs == outputs and stride == 1)
            shortcut = x if same else plain(block.shortcut, x)
            expected = (plain(block.second, plain(block.first, x).relu()) + shortcut).relu()
            torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-5)
