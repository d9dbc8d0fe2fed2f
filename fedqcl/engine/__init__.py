"""Where clients live and how their local steps run. Nothing here knows a method by name."""

from fedqcl.engine.ranks import Engine
from fedqcl.engine.strategy import FederatedStrategy

__all__ = ["Engine", "FederatedStrategy"]
