"""What a net must be."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call

from fedqcl.models.cast import autocast_weights


class Net(nn.Module):
    """Features and one linear layer for the classes of all tasks.

    Args:
        backbone: images to features.
        num_features: ``D``.
        num_classes: ``K``, classes of all tasks.

    Attributes:
        backbone: images ``[n, C, H, W]`` to features ``[n, D]``.
        head: features to logits ``[n, K]``; a task's head is its slice of the columns.
    """

    def __init__(self, backbone: nn.Module, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(num_features, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Penultimate features, ``[n, D]``."""
        weights = autocast_weights(self.backbone)
        features: Tensor = functional_call(self.backbone, weights, (x,)) if weights else self.backbone(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits of all classes, ``[n, K]``."""
        logits: Tensor = self.head(self.features(x))
        return logits
