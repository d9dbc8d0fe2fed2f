"""The examples are short, and draw what a run has; the site's tests use them as the site says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from fedqcl.run import RunFolder
from tests.helpers.process import REPOSITORY
from tests.run.fake_run import run_records

EXAMPLES = REPOSITORY / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 30


def test_a_plot_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for record in run_records(3, 2):
        folder.write_round(record)
    draw = runpy.run_path(str(EXAMPLES / "drift.py"))["draw"]
    (line,) = draw([tmp_path]).axes[0].get_lines()
    assert list(line.get_ydata()) == [row["lyapunov"] for row in folder.read_metrics()]
    assert len(line.get_ydata()) == 6
