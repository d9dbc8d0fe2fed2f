from __future__ import annotations

from typing import Any

import pytest

from fedqcl.run.shape import check_config, check_places, check_summary, is_number

CONFIG: dict[str, Any] = {"seed_everything": 0, "trainer": {"rounds": 1}, "model": {"net": None}, "data": {"alpha": 1}}
SUMMARY: dict[str, Any] = {
    "average_accuracy": 0.6,
    "accuracy_matrix": [[0.6, None], [0.5, 0.7]],
    "queue_matrix": [[None, None], [2, None]],
    "costs": {"bytes_sent_per_round": 1, "gradient_images_per_step": [13, 26]},
    "seed": 0,
}
PLACE: dict[str, Any] = {"title": "V", "fills": "", "show": ["table"], "at": [{"seed": 0, "V": "1e5", "T": [2, 3]}]}


def test_what_runs_write_fits() -> None:
    check_config("\n", CONFIG)
    check_summary(SUMMARY)
    check_summary({"average_accuracy": 1, "queue_matrix": None})  # an early run lacks what came later
    check_places({"e7": PLACE, "e8": PLACE | {"show": []}})
    check_places({})


@pytest.mark.parametrize("key", CONFIG)
@pytest.mark.parametrize("value", [None, {}, [], "text"])
def test_a_config_without_one_of_its_parts_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^config\.yaml: {key} (is missing|cannot be .+)$"):
        check_config("\n", CONFIG | {key: value})


def test_a_config_that_ends_too_early_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^config\.yaml ends within a line$"):
        check_config("data: {alpha: 1", CONFIG)
    with pytest.raises(ValueError, match=r"^config\.yaml holds no options$"):
        check_config("3\n", 3)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("average_accuracy", None, "is missing"),
        ("average_accuracy", "0.5", "cannot be '0.5'"),
        ("average_accuracy", True, "cannot be True"),
        ("accuracy_matrix", 3, "cannot be 3"),
        ("accuracy_matrix", {"a": 1}, "cannot be {'a': 1}"),
        ("accuracy_matrix", [0.5], r"cannot be \[0.5\]"),
        ("accuracy_matrix", [["0.5"]], r"cannot be \[\['0.5'\]\]"),
        ("accuracy_matrix", [[0.5], [0.5]], r"cannot be \[\[0.5\], \[0.5\]\]"),
        ("queue_matrix", [3, 3], r"cannot be \[3, 3\]"),
        ("costs", [1] * 99, r"cannot be \[1, 1, 1, 1, 1, 1, \.\.\.\]"),
        ("seed", [0], r"cannot be \[0\]"),
    ],
)
def test_a_summary_of_another_shape_is_refused(key: str, value: object, why: str) -> None:
    with pytest.raises(ValueError, match=rf"^summary\.json: {key} {why}$"):
        check_summary(SUMMARY | {key: value})


@pytest.mark.parametrize("place", [3, [], "text", True])
def test_an_experiment_that_is_no_mapping_is_refused(place: object) -> None:
    with pytest.raises(ValueError, match=r"^sweep\.json: e8 cannot be"):
        check_places({"e7": PLACE, "e8": place})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("title", value) for value in (None, 3)),
        *(("fills", value) for value in (None, 3)),
        *(("show", value) for value in (None, "table", [3])),
        *(("at", value) for value in (None, {}, [], [3], [{}], [{"V": {"a": 1}}])),
    ],
)
def test_an_experiment_of_another_shape_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^sweep\.json: e7: {key} (is missing|cannot be .+)$"):
        check_places({"e7": PLACE | {key: value}})


def test_a_number_is_one_that_a_float_can_hold() -> None:
    assert all(map(is_number, (0, -1.5)))
    assert not any(map(is_number, (True, "1", None, float("nan"), float("inf"), 10**400)))
