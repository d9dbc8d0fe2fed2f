from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from fedqcl.parts import Spec
from fedqcl.parts.losses import cross_entropy

HEAD = Spec(channels=1, size=(1, 1), classes=(2, 3, 1)).head()


def test_by_hand() -> None:
    logits = torch.tensor([[3.0, 1.0, 4.0, 1.0, 5.0, 9.0]]).log()
    loss = cross_entropy(logits.expand(3, -1), torch.tensor([0, 4, 5]), HEAD[[0, 4, 5]])
    # 3 of 3 + 1, 5 of 4 + 1 + 5, and the only class of its task.
    torch.testing.assert_close(loss, torch.tensor([math.log(4 / 3), math.log(2), 0.0]))


def test_equals_a_head_of_its_own() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 6, generator=generator)
    y = torch.tensor([2, 3, 4, 4, 3, 2, 2, 3])
    own_head = F.cross_entropy(logits[:, 2:5], y - 2, reduction="none")
    torch.testing.assert_close(cross_entropy(logits, y, HEAD[y]), own_head, rtol=0, atol=1e-6)


def test_hidden_columns_get_no_gradient_at_all() -> None:
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.tensor([0, 1, 3, 5])
    cross_entropy(logits, y, HEAD[y]).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[~HEAD[y]] == 0).all()
    # Softmax less one-hot on the others: zero only for the sample whose class has no rival.
    assert logits.grad[HEAD[y]].count_nonzero() == 2 + 2 + 3
    torch.testing.assert_close(logits.grad.sum(1), torch.zeros(4), rtol=0, atol=1e-6)
