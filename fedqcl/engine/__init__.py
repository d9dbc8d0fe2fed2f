"""Where clients live and how their local steps run. Nothing here knows a method by name."""

from fedqcl.engine.ranks import Engine, Personal, Weighting
from fedqcl.engine.strategy import FederatedStrategy

__all__ = ["Engine", "FederatedStrategy", "Personal", "Weighting"]
