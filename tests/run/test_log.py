from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedqcl.run import Console, RoundRecord, RunFolder, RunInfo, RunLog, SilentLog

from .fake_run import accuracy_matrix, run_info, run_records, run_summary


class Notes:
    """A logger that notes what it is told."""

    run_id = None

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, info: RunInfo, folder: Path, run_id: str | None = None, say: Callable[[str], None] = print) -> None:
        self.calls.append(f"start {info.name} {folder.name} {run_id}")
        say("hello from the logger")

    def round(self, record: RoundRecord) -> None:
        self.calls.append(f"round {record.task}.{record.round}")

    def task(self, record: RoundRecord, matrix: Any, queues: Any) -> None:
        self.calls.append(f"task {record.task} {len(matrix)} {len(queues)}")

    def finish(self, summary: dict[str, Any]) -> None:
        self.calls.append(f"finish {summary['seed']}")

    def stop(self) -> None:
        self.calls.append("stop")

    def fail(self) -> None:
        self.calls.append("fail")


def run(log: SilentLog, tasks: int = 2, rounds: int = 2) -> None:
    log.start(run_info(tasks, rounds), run_id="abc")
    records = []
    for record in run_records(tasks, rounds):
        records.append(record)
        log.round(record)
        if record.round == rounds - 1:
            log.task(record, accuracy_matrix(records), [record.queue] * (record.task + 1))
    log.finish(run_summary(records))


def test_everybody_is_told_in_order(tmp_path: Path) -> None:
    notes, out = Notes(), io.StringIO()
    folder = RunFolder.create(tmp_path, "mine", "run")
    run(RunLog(folder, Console("normal", out), [notes]))
    assert notes.calls == [
        "start digits-fedqcl-0 mine abc",
        "round 0.0",
        "round 0.1",
        "task 0 2 1",
        "round 1.0",
        "round 1.1",
        "task 1 2 2",
        "finish 0",
    ]
    assert "hello from the logger\n" in out.getvalue()
    assert len(folder.read_metrics()) == 4
    assert len(folder.read_clients()) == 20
    assert folder.read_summary()["seed"] == 0
    assert sorted(path.name for path in folder.plots.iterdir()) == [
        "accuracy.png",
        "accuracy_matrix.png",
        "queue_heatmap.png",
        "queues.png",
    ]
    assert f"pictures  {folder.plots}: accuracy.png accuracy_matrix.png queue_heatmap.png queues.png" in out.getvalue()


@pytest.mark.parametrize("end", ["stop", "fail"])
def test_a_run_that_ends_early_is_closed(end: str, tmp_path: Path) -> None:
    notes = Notes()
    log = RunLog(RunFolder.create(tmp_path, None, "run"), Console("quiet", io.StringIO()), [notes])
    log.start(run_info())
    getattr(log, end)()
    assert notes.calls[-1] == end


def test_the_other_ranks_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    log = SilentLog()
    run(log)
    log.stop()
    log.fail()
    assert capsys.readouterr() == ("", "")
