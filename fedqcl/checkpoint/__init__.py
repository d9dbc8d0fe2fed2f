"""What a run can be gone on from, and the model that it leaves."""

from fedqcl.checkpoint.keeper import NOTHING_KEPT, CheckpointKeeper, Keeper, Start
from fedqcl.checkpoint.model import describe_problem, load_model, save_model
from fedqcl.checkpoint.state import RunState

__all__ = [
    "NOTHING_KEPT",
    "CheckpointKeeper",
    "Keeper",
    "RunState",
    "Start",
    "describe_problem",
    "load_model",
    "save_model",
]
