from __future__ import annotations

import pytest
import torch

from fedqcl.models import SmallResNet
from fedqcl.models.cast import _CastTogether, autocast_weights


def test_values_are_rounded_and_gradients_come_back_in_float32() -> None:
    # 1 + 2^-9 lies between the bfloat16 numbers 1 and 1 + 2^-7, nearer to 1.
    weights = [torch.tensor([1 + 2**-9, 3.0], requires_grad=True), torch.tensor([[0.5]], requires_grad=True)]
    copies = _CastTogether.apply(*weights)
    assert [copy.dtype for copy in copies] == [torch.bfloat16] * 2
    assert [copy.tolist() for copy in copies] == [[1.0, 3.0], [[0.5]]]
    (copies[0].float() * torch.tensor([2.0, 4.0])).sum().backward()
    assert weights[0].grad is not None
    assert weights[0].grad.dtype == torch.float32
    assert weights[0].grad.tolist() == [2.0, 4.0]


def test_on_the_cpu_layers_are_left_to_themselves() -> None:
    net = SmallResNet(1, 2, width=4)
    assert autocast_weights(net) == {}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert autocast_weights(net) == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="autocast of CUDA")
def test_a_training_step_is_that_of_autocast() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net, x = SmallResNet(1, 2, width=16).cuda(), torch.randn(6, 1, 8, 8).cuda()
    net = net.to(memory_format=torch.channels_last)
    parameters = list(net.backbone.parameters())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        names = autocast_weights(net.backbone).keys()
        together, alone = net.features(x), net.backbone(x)
    assert names == {name for name, p in net.backbone.named_parameters() if p.dim() > 1}
    torch.testing.assert_close(together, alone)
    upstream = torch.randn_like(together)
    gradients = [torch.autograd.grad(features, parameters, upstream) for features in (together, alone)]
    for a, b in zip(*gradients, strict=True):
        assert (a - b).norm() <= 1e-2 * b.norm()
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
        assert autocast_weights(net.backbone) == {}
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert autocast_weights(net.backbone.eval()) == {}
