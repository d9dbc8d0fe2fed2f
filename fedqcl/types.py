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
else:
    from jsonargparse.typing import NonNegativeFloat as NonNegative
    from jsonargparse.typing import NonNegativeInt as Index
    from jsonargparse.typing import PositiveFloat as Positive
    from jsonargparse.typing import PositiveInt as Count
    from jsonargparse.typing import restricted_number_type

    Real = restricted_number_type("Real", float, (">=", float("-inf")), docstring="any number but NaN")
    Share = restricted_number_type("Share", float, [(">", 0), ("<=", 1)], docstring="above 0, at most 1")
    Fraction = restricted_number_type("Fraction", float, [(">=", 0), ("<", 1)], docstring="at least 0, below 1")
