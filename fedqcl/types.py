"""Number types with a range, checked when a configuration is parsed.

To a type checker each is the plain ``int`` or ``float``; to jsonargparse it is a type that refuses a value out of
range, NaN included, with a message that names the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    Count: TypeAlias = int
    Index: TypeAlias = int
    Positive: TypeAlias = float
    NonNegative: TypeAlias = float
    Real: TypeAlias = float
    Share: TypeAlias = float
    Fraction: TypeAlias = float
    Seed: TypeAlias = int
else:
    import jsonargparse.typing as numbers

    Count = numbers.PositiveInt
    Index = numbers.NonNegativeInt
    Positive = numbers.restricted_number_type("Positive", float, [(">", 0), ("<", float("inf"))])
    NonNegative = numbers.NonNegativeFloat
    Real = numbers.restricted_number_type("Real", float, (">", float("-inf")))
    Share = numbers.restricted_number_type("Share", float, [(">", 0), ("<=", 1)])
    Fraction = numbers.restricted_number_type("Fraction", float, [(">=", 0), ("<", 1)])
    Seed = numbers.restricted_number_type(
        "Seed", int, [(">=", 0), ("<", 2**32)], docstring="a whole number from 0 to 4294967295"
    )
