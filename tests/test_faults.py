"""A few kills of the fault campaign; ``benchmarks/results`` has the outcome of a long one."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.helpers.process import REPOSITORY, run_python


def test_killed_runs_end_as_those_left_in_peace(tmp_path: Path) -> None:
    result = run_python(str(REPOSITORY / "benchmarks/faults.py"), "--kills", "4", "--out", str(tmp_path), timeout=280)
    assert result.returncode == 0, result.stderr
    with (tmp_path / "kills.csv").open(newline="") as file:
        kills = list(csv.DictReader(file))
    assert len(kills) >= 4
    assert not [kill for kill in kills if kill["wrong"]]
    assert any(kill["signal"] == "SIGKILL" and int(kill["rounds"]) > 0 for kill in kills)
