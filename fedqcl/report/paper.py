"""The figures that the paper prints, to stand beside those of runs with the same settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedqcl.report.runs import Run

_FILE = yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text(encoding="utf-8"))
METHODS: list[str] = _FILE["methods"]


class Printed(NamedTuple):
    """One method's figures in a table of the paper.

    Attributes:
        average_accuracy: in percent.
        accuracy_std: NaN where it is not printed.
        forgetting: a fraction.
        forgetting_std: NaN where it is not printed.
    """

    average_accuracy: float
    accuracy_std: float
    forgetting: float
    forgetting_std: float


def printed(run: Run) -> Printed | None:
    """What the paper prints for a run's settings; None if it prints nothing."""
    for table in _FILE["tables"]:
        if all(_agrees(run, key, value) for key, value in table["settings"].items()):
            figures = printed_in(table["name"]).get(run.method)
            if figures:
                return figures
    return None


def printed_in(table: str) -> dict[str, Printed]:
    """What a table of the paper prints, by method."""
    figures = next(known["figures"] for known in _FILE["tables"] if known["name"] == table)
    return {
        method: Printed(*(math.nan if value is None else value for value in row)) for method, row in figures.items()
    }


def _agrees(run: Run, key: str, value: Any) -> bool:
    """Whether a setting is the paper's; one that the run's method does not have is."""
    return key not in run.settings or bool(run.settings[key] == value)


def complexity() -> dict[str, dict[str, str]]:
    """The formulas of the paper's complexity table, by method."""
    formulas: dict[str, dict[str, str]] = _FILE["complexity"]
    return formulas
