"""Nets: a feature extractor and one linear layer for the heads of all tasks."""

from fedqcl.models.base import Net
from fedqcl.models.resnet import ResNet18, SmallResNet

__all__ = ["Net", "ResNet18", "SmallResNet"]
