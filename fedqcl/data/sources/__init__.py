"""Where the images come from: one small file a source."""

from fedqcl.data.sources.base import Images, ImageSet, Source
from fedqcl.data.sources.cifar import CIFAR10, CIFAR100
from fedqcl.data.sources.digits import Digits
from fedqcl.data.sources.folder import ImageFolder
from fedqcl.data.sources.npz import Npz
from fedqcl.data.sources.tinyimagenet import TinyImageNet

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "Digits",
    "ImageFolder",
    "ImageSet",
    "Images",
    "Npz",
    "Source",
    "TinyImageNet",
]
