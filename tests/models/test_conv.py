from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedqcl.models import conv
from fedqcl.models.beside import Beside
from fedqcl.models.conv import Conv2d, _Conv

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
    y, expected = _Conv.apply(x, weight, *sizes), F.conv2d(x, weight, None, *sizes)
    torch.testing.assert_close(y, expected)
    upstream = torch.randn(y.shape, generator=rng)
    for mine, theirs in zip(*(torch.autograd.grad(out, [x, weight], upstream) for out in (y, expected)), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert len(here.read) == 2


def test_what_is_not_needed_is_not_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here()
    monkeypatch.setattr(conv, "beside_current", lambda: here)
    x, weight = torch.ones(1, 1, 3, 3, requires_grad=True), torch.ones(1, 1, 1, 1)
    _Conv.apply(x, weight, (1, 1), (0, 0)).sum().backward()
    assert here.read == []
    assert x.grad is not None
    assert x.grad.tolist() == torch.ones(1, 1, 3, 3).tolist()


def test_a_layer_with_its_own_weights_is_an_ordinary_one() -> None:
    layer = Conv2d(2, 3, 3, padding=1, bias=False)
    x = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer(x), F.conv2d(x, layer.weight, padding=1))


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
