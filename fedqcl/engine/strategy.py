"""Ranks that share a process group and no gradients."""

from __future__ import annotations

from typing import Any

from lightning.fabric.strategies.ddp import DDPStrategy
from torch import nn


class FederatedStrategy(DDPStrategy):
    """DDP's launch and process group without its wrapper, which would average gradients between clients."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._backward_sync_control = None

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """Leave the module as it is."""
        return module
