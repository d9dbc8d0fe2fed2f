"""Federated continual learning as drift-plus-penalty control."""

from fedqcl.version import __version__

__all__ = ["__version__"]
