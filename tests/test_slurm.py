"""A job that is signalled, saves, is requeued and ends as one that never stopped; where there is a Slurm to ask."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.process import REPOSITORY, run_python
from tests.helpers.stopped import outcome

SCRIPT = REPOSITORY / "slurm" / "fit.sbatch"
PLAN = ["--config", "quickstart.yaml", "--trainer.rounds", "4", "--data.tasks", "3"]


def slurm(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout


def there_is_a_slurm() -> bool:
    if not all(map(shutil.which, ("sbatch", "sinfo", "scontrol", "scancel"))):
        return False
    return subprocess.run(["sinfo", "--noheader"], check=False, capture_output=True, timeout=30).returncode == 0


def wait_until(reached: Callable[[], object], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_the_script_is_shell() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)


@pytest.mark.skipif(not there_is_a_slurm(), reason="there is no Slurm here")
def test_a_job_outlives_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "bin" / "fedqcl"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m fedqcl "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.chdir(tmp_path)
    submit = ["sbatch", "--parsable", "--ntasks-per-node=2", "--cpus-per-task=1", "--output=log", str(SCRIPT)]
    job = slurm(*submit, *PLAN).strip()
    run = tmp_path / "runs" / "digits-FedQCL-seed0"

    def state() -> str:
        return slurm("scontrol", "show", "job", job)

    try:
        wait_until((run / "checkpoints" / "task-01-round-02").exists)
        slurm("scancel", "--signal=USR1", job)
        wait_until(lambda: re.search(r"JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT)", state()))
        assert "JobState=COMPLETED" in state()
        assert "Restarts=1" in state()
    finally:
        subprocess.run(["scancel", job], check=False, capture_output=True)
    log = (tmp_path / "log").read_text()
    assert log.count("stopped by SIGUSR1") == 1
    assert log.count("goes on  after task 1, round") == 1
    result = run_python("-m", "fedqcl", "fit", *PLAN, "--trainer.name", "whole", "--trainer.devices", "1", "-q")
    assert result.returncode == 0, result.stderr
    assert {k: v for k, v in outcome(run).items() if k != "files"} == {
        k: v for k, v in outcome(run.with_name("whole")).items() if k != "files"
    }
