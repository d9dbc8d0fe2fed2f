"""One file a method. A method of one's own needs no entry here: its dotted path is enough."""

from fedqcl.methods.base import ClientState, Method, Stats
from fedqcl.methods.er import ER
from fedqcl.methods.fedavg import FedAvg
from fedqcl.methods.fedqcl import FedQCL

__all__ = ["ER", "ClientState", "FedAvg", "FedQCL", "Method", "Stats"]
