from __future__ import annotations

import pytest

from fedqcl.errors import InputError
from fedqcl.report.views import VIEWS, parse_view


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_a_kind_and_may_have_an_axis(view: str) -> None:
    kind, axis = parse_view("mine", view.replace("AXIS", "model.method.initial_queue"))
    assert kind == view.split()[0]
    assert axis == ("model.method.initial_queue" if "AXIS" in view else None)


@pytest.mark.parametrize("view", ["curve", "sweep", "sweep over", "sweep over V delta", "curves over V", ""])
def test_a_view_that_there_is_not_is_refused(view: str) -> None:
    with pytest.raises(InputError, match=f"^mine: show: there is no view '{view}'; known: table, table by AXIS, "):
        parse_view("mine", view)
