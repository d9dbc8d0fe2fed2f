from __future__ import annotations

import math

import pytest

from fedqcl.plots.style import short

nan = math.nan


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00123, "0.0012"),
        (0.5, "0.5"),
        (3.14159, "3.14"),
        (-1.5, "-1.50"),
        (9.999, "10.0"),
        (27.18, "27.2"),
        (318.4, "318"),
        (43210.0, "4e+04"),
        (math.inf, "inf"),
        (nan, "-"),
    ],
)
def test_a_number_in_short(value: float, text: str) -> None:
    assert short(value) == text
