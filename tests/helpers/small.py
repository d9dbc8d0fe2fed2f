"""Small runs on CPU ranks, shared by the helpers that make them in processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedqcl.models import Net, SmallResNet
from fedqcl.run import pictures
from fedqcl.trainer import FederatedTrainer


def small_net(in_channels: int, num_classes: int) -> Net:
    return SmallResNet(in_channels, num_classes, width=4)


def small_trainer(root: Path | str, **options: Any) -> FederatedTrainer:
    small = {"accelerator": "cpu", "devices": 1, "rounds": 3, "epochs": 1, "root": str(root), "console": "quiet"}
    return FederatedTrainer(**small | {"start_method": "fork"} | options)


def draw_no_pictures() -> None:
    """For the rest of this process: they are another test's business, and slow."""
    pictures.plot_run = lambda path: []
