"""Images, tasks, clients and the batches of a round."""

from fedqcl.data.augment import Augment
from fedqcl.data.module import FederatedData

__all__ = ["Augment", "FederatedData"]
