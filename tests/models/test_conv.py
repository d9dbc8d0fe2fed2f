from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedqcl.models import conv
from fedqcl.models.beside import Beside
from fedqcl.models.conv import Conv2d, Uses, _Conv

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="streams of CUDA")


class Here:
    """In the place of a stream beside the current one."""

    def __init__(self) -> None:
        self.read: list[Tensor] = []

    def work(self, *reads: Tensor) -> nullcontext[None]:
        self.read += reads
        return nullcontext()


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 2)])
def test_gradients_are_those_of_a_convolution(monkeypatch: pytest.MonkeyPatch, kernel: int, stride: int) -> None:
    here = Here()
    monkeypatch.setattr(conv, "beside_current", lambda: here)
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 6, 6, generator=rng, requires_grad=True)
    weight = torch.randn(5, 4, kernel, kernel, generator=rng, requires_grad=True)
    sizes = ((stride, stride), (kernel // 2, kernel // 2))
    y, expected = _Conv.apply(x, weight, Uses(), *sizes), F.conv2d(x, weight, None, *sizes)
    torch.testing.assert_close(y, expected)
    upstream = torch.randn(y.shape, generator=rng)
    for mine, theirs in zip(*(torch.autograd.grad(out, [x, weight], upstream) for out in (y, expected)), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert len(here.read) == 2


def test_what_is_not_needed_is_not_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here()
    monkeypatch.setattr(conv, "beside_current", lambda: here)
    x, weight = torch.ones(1, 1, 3, 3, requires_grad=True), torch.ones(1, 1, 1, 1)
    _Conv.apply(x, weight, Uses(), (1, 1), (0, 0)).sum().backward()
    assert here.read == []
    assert x.grad is not None
    assert x.grad.tolist() == torch.ones(1, 1, 3, 3).tolist()


def test_large_gradients_are_worked_out_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here()
    monkeypatch.setattr(conv, "beside_current", lambda: here)
    x, weight = torch.ones(2, 1, 3, 3, requires_grad=True), torch.ones(1, 1, 1, 1, requires_grad=True)
    for limit, read in ((18, 2), (17, 0)):
        here.read.clear()
        monkeypatch.setattr(conv, "FITS_BESIDE", limit)
        _Conv.apply(x, weight, Uses(), (1, 1), (0, 0)).sum().backward()
        assert len(here.read) == read
    assert weight.grad is not None
    assert weight.grad.item() == 36


def test_a_layer_with_its_own_weights_is_an_ordinary_one() -> None:
    layer = Conv2d(2, 3, 3, padding=1, bias=False)
    x = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer(x), F.conv2d(x, layer.weight, padding=1))


def marked(layer: Conv2d) -> Conv2d:
    """The layer with weights that are copies, as those that are cast."""
    weight = layer.weight.detach().clone().requires_grad_()
    weight.uses = Uses()
    del layer.weight
    layer.weight = weight
    return layer


def test_gradients_of_weights_that_are_used_twice_are_not_left_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here()
    monkeypatch.setattr(conv, "beside_current", lambda: here)
    layer = marked(Conv2d(2, 2, 3, padding=1, bias=False))
    x = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    (layer(layer(x)).square().sum()).backward()
    assert here.read == []
    weight = layer.weight.detach().clone().requires_grad_()
    F.conv2d(F.conv2d(x, weight, padding=1), weight, padding=1).square().sum().backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad, weight.grad)
    layer.weight.uses = Uses()
    layer(x).sum().backward()
    assert len(here.read) == 2


@pytest.mark.parametrize(
    "options",
    [{"bias": True}, {"dilation": 2}, {"groups": 2}, {"padding_mode": "reflect"}, {"padding": "same"}],
    ids=lambda options: next(iter(options)),
)
def test_what_is_more_than_weights_is_an_ordinary_layer(options: dict[str, Any]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = Conv2d(2, 2, 3, **{"padding": 1, "bias": False} | options)
        x = torch.randn(2, 2, 5, 5)
    expected = layer(x)
    assert torch.equal(marked(layer)(x), expected)
    assert layer.weight.uses.count == 0


@needs_cuda
def test_what_is_read_beside_is_kept_until_the_join() -> None:
    main = torch.cuda.current_stream()
    beside = Beside(main)
    source = torch.ones(2**20, device="cuda")
    with beside.work(source):
        torch.cuda._sleep(10_000_000)
        result = source * 2
    address = source.data_ptr()
    del source
    assert torch.zeros(2**20, device="cuda").data_ptr() != address
    beside.join()
    assert result.sum().item() == 2 * 2**20
    assert torch.zeros(2**20, device="cuda").data_ptr() == address
