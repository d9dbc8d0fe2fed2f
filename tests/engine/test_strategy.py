from __future__ import annotations

from torch import nn

from fedqcl.engine import FederatedStrategy


def test_it_does_not_wrap_the_module() -> None:
    net = nn.Linear(1, 1)
    assert FederatedStrategy(start_method="fork").setup_module(net) is net
