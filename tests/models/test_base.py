from __future__ import annotations

import torch
from torch import nn

from fedqcl.models import Net


def test_features_then_head() -> None:
    net = Net(nn.Flatten(), num_features=4, num_classes=3)
    x = torch.rand(2, 1, 2, 2)
    assert torch.equal(net.features(x), x.flatten(1))
    assert torch.equal(net(x), net.head(x.flatten(1)))
    assert net.head.weight.shape == (3, 4)
