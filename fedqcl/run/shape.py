"""The shape of a run's files: YAML and JSON may hold anything, and what is read is to be what a run writes."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeGuard

Test: TypeAlias = Callable[[Any], bool]


def check_config(text: str, config: Any) -> None:
    """Check what ``config.yaml`` holds: one that was cut short may still be YAML, of other options or values.

    Args:
        text: the file's.
        config: what that stands for.

    Raises:
        ValueError: it is not what a run writes; names the first key that is not.
    """
    if not isinstance(config, Mapping):
        raise ValueError("config.yaml holds no options")
    _check("config.yaml", config, _CONFIG)
    if not text.endswith("\n"):
        raise ValueError("config.yaml ends within a line")


def check_summary(summary: Mapping[str, Any]) -> None:
    """Check what ``summary.json`` holds.

    Raises:
        ValueError: it is not what a run writes; names the first key that is not.
    """
    _check("summary.json", summary, _SUMMARY)


def check_places(places: Mapping[str, Any]) -> None:
    """Check what ``sweep.json`` holds.

    Raises:
        ValueError: it is not what a sweep writes; names the first key that is not.
    """
    _check("sweep.json", places, dict.fromkeys(places, _is_mapping))
    for name, place in places.items():
        _check(f"sweep.json: {name}", place, _PLACE)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number that a float can hold; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _check(name: str, content: Mapping[str, Any], shape: Mapping[str, Test]) -> None:
    """Check the values of some keys; one that is missing is None."""
    for key, fits in shape.items():
        value = content.get(key)
        if not fits(value):
            raise ValueError(f"{name}: {key} {'is missing' if value is None else f'cannot be {reprlib.repr(value)}'}")


def _or_none(fits: Test) -> Test:
    return lambda value: value is None or fits(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_matrix(value: Any) -> bool:
    """Whether it has a number or None for each pair of tasks."""
    return isinstance(value, list) and all(_is_row(row, len(value)) for row in value)


def _is_row(value: Any, tasks: int) -> bool:
    return isinstance(value, list) and len(value) == tasks and all(map(_or_none(is_number), value))


def _are_options(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _are_views(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_points(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_point, value))


def _is_point(value: Any) -> bool:
    """Whether it has a choice for each of some axes."""
    return _are_options(value) and not any(map(_is_mapping, value.values()))


_CONFIG: dict[str, Test] = {"seed_everything": is_number} | dict.fromkeys(("trainer", "model", "data"), _are_options)
_SUMMARY: dict[str, Test] = {
    "average_accuracy": is_number,
    "accuracy_matrix": _or_none(_is_matrix),
    "queue_matrix": _or_none(_is_matrix),
    "costs": _or_none(_is_mapping),
    "seed": _or_none(is_number),
}
_PLACE: dict[str, Test] = {"title": _is_text, "fills": _is_text, "show": _are_views, "at": _are_points}
