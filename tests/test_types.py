from __future__ import annotations

import math
from typing import Any

import pytest

from fedqcl import types

GOOD = [
    (types.Count, [1, 500]),
    (types.Index, [0, 3]),
    (types.Positive, [1e-9, 3.0]),
    (types.NonNegative, [0.0, 2.5]),
    (types.Real, [-5.0, 0.0, math.inf]),
    (types.Share, [1e-3, 1.0]),
    (types.Fraction, [0.0, 0.999]),
    (types.Seed, [0, 2**32 - 1]),
]
BAD = [
    (types.Count, [0, -1, 1.5, "three"]),
    (types.Index, [-1]),
    (types.Positive, [0.0, -1.0, math.inf, math.nan]),
    (types.NonNegative, [-0.5, math.nan]),
    (types.Real, [-math.inf, math.nan, "x"]),
    (types.Share, [0.0, 1.5, math.nan]),
    (types.Fraction, [-0.1, 1.0, math.nan]),
    (types.Seed, [-1, 2**32, 0.5]),
]


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in GOOD for value in values])
def test_in_range(kind: Any, value: float) -> None:
    assert kind(value) == value


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BAD for value in values])
def test_out_of_range(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the parser words the message
        kind(value)
