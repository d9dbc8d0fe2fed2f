"""In what a run may depart from plain federated averaging, whatever its method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Personal = Literal["nothing", "statistics", "model"]
Weighting = Literal["task", "first_task", "uniform"]


@dataclass(frozen=True)
class Rules:
    """How clients' models become the next global one.

    Attributes:
        personal: what of the model clients keep to themselves from round to round.
        weighting: what a client's model weighs in the average: its images of the current task, those of the first, or
            the same as any other.
        restart: start every task from the initial model.
    """

    personal: Personal = "nothing"
    weighting: Weighting = "task"
    restart: bool = False


USUAL = Rules()
"""Plain federated averaging."""
