"""What a report can show of an experiment."""

from __future__ import annotations

import re

from fedqcl.errors import InputError

VIEWS = (
    *("table", "table by AXIS", "complexity", "curves", "pareto", "pareto of AXIS"),
    *("sweep over AXIS", "queues over AXIS"),
)


def parse_view(experiment: str, view: str) -> tuple[str, str | None]:
    """What kind of view it is, and its axis, if it has one.

    Args:
        experiment: whose view it is.
        view: one of :data:`VIEWS`, with an axis in the place of ``AXIS``.

    Raises:
        InputError: there is no such view.

    Example:
        >>> parse_view("e7", "sweep over V")
        ('sweep', 'V')
    """
    if not any(re.fullmatch(known.replace("AXIS", r"\S+"), view) for known in VIEWS):
        raise InputError(f"{experiment}: show: there is no view {view!r}; known: {', '.join(VIEWS)}")
    kind, *rest = view.split()
    return kind, rest[-1] if rest else None
