from __future__ import annotations

import io
import math
import warnings

import pytest

from fedqcl.plots.style import figure, legend, short

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


@pytest.mark.parametrize(
    ("labels", "beside"),
    [
        (["ER", "FedQCL"], True),
        ([f"M{number}" for number in range(18)], True),
        (["cifar100-authors-bf16-mixed-no_trimming_before_queues-seed0", "ER"], False),
        (["a name of many words " * 10, "x" * 255], False),
        ([f"method {number}" for number in range(60)], False),
    ],
    ids=["short", "two columns", "long", "longer than the figure is wide", "many"],
)
def test_a_legend_leaves_the_axes_their_room(labels: list[str], beside: bool) -> None:
    drawn = figure(5.6, 3.6, "constrained")
    ax = drawn.add_subplot()
    for label in labels:
        ax.plot([0, 1], label=label)
    legend(drawn, ax)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Matplotlib warns where axes have no room left
        drawn.savefig(io.BytesIO(), dpi=drawn.dpi)
    (shown,) = drawn.legends
    axes, entries = ax.get_window_extent(), shown.get_window_extent()
    assert (entries.x0 >= axes.x1) == beside
    assert (entries.y1 <= axes.y0) == (not beside)
    assert axes.width > (0.4 if beside else 0.8) * drawn.bbox.width
    assert axes.height > 2.5 * drawn.dpi
    assert 0 <= entries.x0 < entries.x1 <= drawn.bbox.width
    assert 0 <= entries.y0 < entries.y1 <= drawn.bbox.height
