"""What methods are built from: the problem's spec, batches, losses, memory and queues."""

from fedqcl.parts.batch import Batch
from fedqcl.parts.memory import Memory
from fedqcl.parts.queue import Queue
from fedqcl.parts.shard import Shard
from fedqcl.parts.spec import Spec

__all__ = ["Batch", "Memory", "Queue", "Shard", "Spec"]
