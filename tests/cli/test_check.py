from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedqcl.cli.check import Linked, check
from fedqcl.cli.given import Given
from fedqcl.errors import InputError
from fedqcl.signature import Parameter, parameters
from fedqcl.types import Count, Positive


class Cook: ...


class Baker(Cook):
    def __init__(self, oven: Positive, helper: Cook | None = None) -> None: ...


class Grill(Cook):
    def __init__(self, fire: Count = 1, table: dict[str, int] | None = None) -> None: ...


class Table:
    def __init__(self, legs: Count = 4, **kwargs: Any) -> None: ...


def make_cook(oven: float) -> Cook:
    return Baker(oven)


class Kitchen:
    def __init__(
        self,
        cook: Cook,
        chef: Callable[[int], Cook] = Grill,
        table: Table | None = None,
        size: Count = 1,
        seed: int = 0,
    ) -> None: ...


TREE: dict[str, Any] = {
    "seed": Parameter(int),
    "run": Parameter(str, required=True, words="a folder"),
    "kitchen": {**(parameters(Kitchen) or {}), "seed": Linked(by="seed")},
}
DEFAULTS = {"kitchen.chef": Grill}
ENOUGH = [Given("run", "x"), Given("kitchen.cook", "Grill")]


def refusal(*given: Given) -> str:
    with pytest.raises(InputError) as refused:
        check(TREE, DEFAULTS, given)
    return str(refused.value)


def test_what_is_right_passes_and_the_classes_are_told() -> None:
    given = [
        *ENOUGH,
        Given("kitchen.cook.table.x", "3"),
        Given("kitchen.size", "3"),
        Given("kitchen.table.legs", 3, "a.yaml"),
        Given("kitchen.table.anything", 3, "a.yaml"),
        Given("kitchen.cook", "Baker"),
        Given("kitchen.cook.oven", 2.5, "a.yaml"),
        Given("kitchen.cook.helper", None, "a.yaml"),
    ]
    assert check(TREE, DEFAULTS, given) == {"kitchen.cook": Baker, "kitchen.chef": Grill}


def test_options_are_those_of_the_class_given_last() -> None:
    good = [Given("kitchen.cook", "Grill"), Given("kitchen.cook.fire", "2"), Given("kitchen.cook", "Baker")]
    check(TREE, DEFAULTS, [*ENOUGH, *good, Given("kitchen.cook.oven", "2")])
    assert refusal(*ENOUGH, *good, Given("kitchen.cook.fire", "2")).startswith("kitchen.cook.fire: there is no such")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (("kitchen.sise", "3"), "kitchen.sise: there is no such option; did you mean kitchen.size?"),
        (("kitchen.Size", "3"), "kitchen.Size: there is no such option; did you mean kitchen.size?"),
        (("size", "3"), "size: there is no such option; did you mean kitchen.size?"),
        (("kitchen.fire", "3"), "kitchen.fire: there is no such option; did you mean kitchen.cook.fire?"),
        (("kichen.size", "3"), "kichen.size: there is no such option; did you mean kitchen.size?"),
        (("chef.fire", "3"), "chef.fire: there is no such option; did you mean kitchen.chef.fire?"),
        (("xyz", "3"), "xyz: there is no such option; known: seed, run, kitchen"),
        (
            ("kitchen.cook.fir", "3"),
            "kitchen.cook.fir: there is no such option of Grill; did you mean kitchen.cook.fire?",
        ),
        (("kitchen.cook.size", "3"), "kitchen.cook.size: there is no such option of Grill; known: fire, table"),
        (("kitchen.chef.oven", "3"), "kitchen.chef.oven: there is no such option of Grill; known: table"),
        (("kitchen.size", "0"), "kitchen.size: 0 is not accepted; give a whole number from 1 up"),
        (("kitchen.size", ""), "kitchen.size: empty is not accepted; give a whole number from 1 up"),
        (("kitchen.size", None), "kitchen.size: has no value; give a whole number from 1 up"),
        (("kitchen.size.x", "3"), "kitchen.size.x: there is nothing under kitchen.size; give kitchen.size itself"),
        (("kitchen.cook", "Grillo"), "kitchen.cook: Grillo is no Cook; did you mean Grill? known: Baker, Grill"),
        (("kitchen.cook", "Kitchen"), "kitchen.cook: Kitchen is no Cook; known: Baker, Grill"),
        (("kitchen.cook", "os.path"), "kitchen.cook: os.path is no Cook; known: Baker, Grill"),
        (
            ("kitchen.cook", "nowhere.Cook"),
            "kitchen.cook: nowhere.Cook cannot be imported (ModuleNotFoundError: No module named 'nowhere'); "
            "known: Baker, Grill",
        ),
        (("kitchen.cook", "null"), "kitchen.cook: null is not accepted; give Baker, Grill"),
        (("kitchen.seed", "3"), "kitchen.seed: is set by seed; give that instead"),
        (("kitchen", "3"), "kitchen: 3 is not accepted; give options under it: cook, chef, table, size"),
        (("kitchen.size", "${n}"), "kitchen.size: ${n} is not resolved; write the value itself"),
    ],
)
def test_refused_on_the_command_line(given: tuple[str, Any], line: str) -> None:
    assert refusal(*ENOUGH, Given(*given)) == line


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (("kitchen.sise", 3), "kitchen.sise: there is no such option in a.yaml; did you mean kitchen.size?"),
        (("kitchen.size", True), "kitchen.size: true is not accepted in a.yaml; give a whole number from 1 up"),
        (("kitchen.size", None), "kitchen.size: has no value in a.yaml; give a whole number from 1 up"),
        (
            ("kitchen.cook", "Grillo"),
            "kitchen.cook: Grillo is no Cook in a.yaml; did you mean Grill? known: Baker, Grill",
        ),
        (("kitchen.cook", [1]), "kitchen.cook: [1] is not accepted in a.yaml; give Baker, Grill"),
        (("kitchen.seed", 3), "kitchen.seed: is set by seed in a.yaml; give that instead"),
        (
            ("kitchen.cook.table", ["${n}"]),
            "kitchen.cook.table: ['${n}'] is not resolved in a.yaml; write the value itself",
        ),
    ],
)
def test_refused_in_a_file(given: tuple[str, Any], line: str) -> None:
    assert refusal(*ENOUGH, Given(*given, file="a.yaml")) == line


def test_options_before_their_class() -> None:
    line = "kitchen.cook.fire: comes before kitchen.cook; first give kitchen.cook: Baker, Grill"
    assert refusal(Given("kitchen.cook.fire", "3")) == line


def test_what_is_missing() -> None:
    assert refusal(Given("kitchen.cook", "Grill")) == "run: is needed and was not given; give a folder"
    assert refusal(Given("run", "x")) == "kitchen.cook: is needed and was not given; give Baker, Grill"
    missing = "kitchen.cook.oven: is needed by Baker and was not given; give a number above 0"
    assert refusal(*ENOUGH, Given("kitchen.cook", "Baker")) == missing
    check(TREE, DEFAULTS, [], complete=False)


def test_a_function_is_left_to_jsonargparse() -> None:
    given = [*ENOUGH, Given("kitchen.cook", f"{__name__}.make_cook"), Given("kitchen.cook.anything", "3")]
    assert check(TREE, DEFAULTS, given)["kitchen.cook"] is None


def test_a_file_of_its_own_is_checked_too(tmp_path: Path) -> None:
    file = tmp_path / "cook.yaml"
    file.write_text("{class_path: Baker, init_args: {oven: 3}}")
    assert check(TREE, DEFAULTS, [*ENOUGH, Given("kitchen.cook", str(file))])["kitchen.cook"] is Baker
    file.write_text("{class_path: Baker, init_args: {oven: 0}}")
    line = "kitchen.cook.oven: 0 is not accepted in cook.yaml; give a number above 0"
    assert refusal(*ENOUGH, Given("kitchen.cook", str(file))) == line
    file.write_text("sise: 3")
    line = "kitchen.sise: there is no such option in cook.yaml; did you mean kitchen.size?"
    assert refusal(*ENOUGH, Given("kitchen", str(file))) == line
    check(TREE, DEFAULTS, [*ENOUGH, Given("run", "x" * 5000)])
