"""One file a method. A method of one's own needs no entry here: its dotted path is enough."""

from fedqcl.methods.base import ClientState, Method, Stats
from fedqcl.methods.bi import BI
from fedqcl.methods.ccvr import CCVR
from fedqcl.methods.constant import ConstantReplay
from fedqcl.methods.der import DER, DERpp
from fedqcl.methods.er import ER
from fedqcl.methods.ewc import EWC
from fedqcl.methods.fedavg import FedAvg
from fedqcl.methods.fedproto import FedProto
from fedqcl.methods.fedprox import FedProx
from fedqcl.methods.fedqcl import FedQCL
from fedqcl.methods.fedqcl_authors import FedQCLAuthors
from fedqcl.methods.fot import FOT
from fedqcl.methods.lwf import LwF

__all__ = [
    "BI",
    "CCVR",
    "DER",
    "ER",
    "EWC",
    "FOT",
    "ClientState",
    "ConstantReplay",
    "DERpp",
    "FedAvg",
    "FedProto",
    "FedProx",
    "FedQCL",
    "FedQCLAuthors",
    "LwF",
    "Method",
    "Stats",
]
