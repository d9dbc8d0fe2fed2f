"""The figures that the paper prints, to stand beside those of runs with the same settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedqcl.report.runs import Run

_FILE = yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text(encoding="utf-8"))
METHODS: list[str] = _FILE["methods"]
DATASETS: dict[str, str] = _FILE["datasets"]


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
    """What the paper prints for a run's settings; None if it prints nothing, as of runs on validation images."""
    if run.images != "test":
        return None
    method = _FILE["same"].get(run.method, run.method)
    settings = run.settings | {"dataset": run.dataset}
    for table in _FILE["tables"]:
        figures = table["figures"].get(method)
        if figures and all(_agrees(settings, key, value) for key, value in table["settings"].items()):
            return Printed(*(math.nan if value is None else value for value in figures))
    return None


def _agrees(settings: dict[str, Any], key: str, value: Any) -> bool:
    """Whether a setting is the paper's; one that the run's method does not have is."""
    return key not in settings or bool(settings[key] == value)


def complexity() -> dict[str, dict[str, str]]:
    """The formulas of the paper's complexity table, by method."""
    formulas: dict[str, dict[str, str]] = _FILE["complexity"]
    return formulas
