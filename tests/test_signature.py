from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from fedqcl.signature import ClassHint, Parameter, class_hint, expected, fits, may_nest, parameters
from fedqcl.types import Count, Fraction, Index, NonNegative, Positive, Real, Share


class Base:
    def __init__(self, size: Count, name: str = "x") -> None: ...


class Child(Base):
    def __init__(self, depth: int = 1, **kwargs: Any) -> None: ...


class _Hidden(Base): ...


class Anything:
    def __init__(self, **kwargs: Any) -> None: ...


class Misspelt:
    def __init__(self, x: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


def test_parameters_follow_keywords_to_the_parent() -> None:
    assert parameters(Base) == {"size": Parameter(Count, required=True), "name": Parameter(str)}
    assert parameters(Child) == {
        "depth": Parameter(int),
        "size": Parameter(Count, required=True),
        "name": Parameter(str),
    }


def test_parameters_without_those_supplied() -> None:
    assert parameters(Base, supplied=1) == {"name": Parameter(str)}


def test_parameters_that_cannot_be_told() -> None:
    assert parameters(Anything) is None
    assert parameters(object) == {}
    assert parameters(Misspelt) == {"x": Parameter(Any, required=True)}


@pytest.mark.parametrize(
    ("hint", "asked"),
    [
        (Base, ClassHint(Base, 0)),
        (Base | None, ClassHint(Base, 0)),
        (Callable[[int, int], Base], ClassHint(Base, 2)),
        (Callable[[int], int], None),
        (Count, None),
        (Base | float, None),
        (Literal["a"], None),
        (dict[str, int], None),
        (Any, None),
    ],
)
def test_class_hint(hint: Any, asked: ClassHint | None) -> None:
    assert class_hint(hint) == asked


def test_names_are_public_and_of_the_base_s_own_package() -> None:
    foreign = type("Foreign", (Base,), {"__module__": "elsewhere"})
    assert ClassHint(Base, 0).names == ["Child"]
    assert ClassHint(Base, 0).find("Foreign") is foreign
    assert ClassHint(Child, 0).names == ["Child"]


def test_find() -> None:
    asked = ClassHint(Base, 0)
    assert asked.find("Base") is Base
    assert asked.find("_Hidden") is _Hidden
    assert asked.find("Nothing") is None
    assert asked.find("os.nothing") is None
    assert asked.find("pathlib.Path") is __import__("pathlib").Path
    with pytest.raises(ImportError, match=r"^ModuleNotFoundError: No module named 'no_such_module'$"):
        asked.find("no_such_module.Thing")


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Count, ["1"], ["0", "-1", "1.5", "x", "", "null"]),
        (Index, ["0"], ["-1", "nan"]),
        (Positive, ["1e-3", "2"], ["0", "-1", "nan", "x"]),
        (NonNegative, ["0"], ["-1", "nan"]),
        (Real, ["-1", "0", "1e3"], ["nan", "x"]),
        (Share, ["1", "0.5"], ["0", "1.5", "nan"]),
        (Fraction, ["0", "0.5"], ["1", "-0.1", "nan"]),
        (Count | None, ["null", "3"], ["0"]),
        (Literal["a", "b"], ["a"], ["c", "null"]),
        (list[Count], ["[1, 2]"], ["[1, 0]", "3"]),
        (bool, ["true", "false"], ["maybe", "3"]),
    ],
)
def test_fits_as_text(hint: Any, good: list[str], bad: list[str]) -> None:
    assert [fits(hint, text, text=True) for text in good] == [True] * len(good)
    assert [fits(hint, text, text=True) for text in bad] == [False] * len(bad)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Count, [1, "2"], [0, True, None, [1]]),
        (Positive, [1, 0.5], [0, float("nan"), None]),
        (str | None, ["x", None], [3]),
        (Count | list[Count], [2, [1, 2]], [[], 0, [1, "x"]][1:]),
    ],
)
def test_fits_as_value(hint: Any, good: list[Any], bad: list[Any]) -> None:
    assert [fits(hint, value, text=False) for value in good] == [True] * len(good)
    assert [fits(hint, value, text=False) for value in bad] == [False] * len(bad)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Count, "a whole number from 1 up"),
        (Share, "a number above 0, at most 1"),
        (Positive | Literal["iid"], "a number above 0 or iid"),
        (Count | list[Count], "a whole number from 1 up or a list, each a whole number from 1 up"),
        (str | None, "text or null"),
        (Base | None, "Child or null"),
        (float | Base, "a number"),
        (Callable[[int], Base], "Child"),
        (Literal["a", "b"], "a or b"),
        (dict, "dict"),
        (dict[str, int], "dict[str, int]"),
        (Any, "a value"),
    ],
)
def test_expected(hint: Any, words: str) -> None:
    assert expected(hint) == words


def test_what_may_nest() -> None:
    assert may_nest(Any)
    assert may_nest(dict[str, int] | None)
    assert may_nest(Base | float)
    assert not may_nest(Count | Literal["auto"])
    assert not may_nest(list[int] | None)
