"""The examples: short, and doing what their first lines say; the method is the README's, and tested with it."""

from __future__ import annotations

import runpy
import struct
import sys
from pathlib import Path

import pytest

from fedqcl.cli import main
from fedqcl.run import RunFolder
from tests.helpers.process import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
TINY = ["--trainer.devices", "1", "--trainer.rounds", "1", "--trainer.epochs", "1", "--model.net.width", "4"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 30


def test_a_data_set_by_its_dotted_path_and_a_plot_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(EXAMPLES)])
    monkeypatch.delitem(sys.modules, "stripes", raising=False)
    words = ["--data.source", "stripes.Stripes", "--data.source.classes", "4", "--data.source.images", "40"]
    assert main(["fit", "--config", "quickstart.yaml", *words, "--data.tasks", "2", *TINY]) == 0
    folder = RunFolder("runs/stripes-FedQCL-seed0")
    matrix = folder.read_summary()["accuracy_matrix"]
    assert len(matrix) == 2
    assert matrix[0][0] >= 0.5  # no worse than guessing between two

    draw = runpy.run_path(str(EXAMPLES / "drift.py"))["draw"]
    (line,) = draw([folder.path]).axes[0].get_lines()
    assert list(line.get_ydata()) == [row["lyapunov"] for row in folder.read_metrics()]
    monkeypatch.setattr(sys, "argv", ["drift.py", str(folder.path)])
    runpy.run_path(str(EXAMPLES / "drift.py"), run_name="__main__")
    assert struct.unpack_from(">II", Path("drift.png").read_bytes(), 16) == (640, 480)
