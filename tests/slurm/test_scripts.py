"""The Slurm scripts on a real Slurm: that of `tests/slurm/start.sh`, two nodes on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedqcl.cli import main
from fedqcl.run import RunFolder
from tests.helpers.process import REPOSITORY

SCRIPTS = REPOSITORY / "slurm"
TINY = ["--config", "quickstart.yaml", "--trainer.rounds", "1", "--trainer.epochs", "1"]
SECONDS = 240


def missing() -> str:
    """Why these tests cannot run; blank if they can."""
    if not shutil.which("sbatch"):
        return "Slurm is not installed"
    asked = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=False)
    if not re.search(r"^ClusterName\s*= ci$", asked.stdout, re.MULTILINE):
        return "no Slurm of tests/slurm/start.sh answers"  # and no other: jobs do not belong on a stranger's cluster
    return ""


REASON = missing()
pytestmark = [pytest.mark.skipif(bool(REASON), reason=REASON), pytest.mark.timeout(SECONDS + 60)]


class Jobs:
    """Submits scripts and waits for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        command = folder / "bin" / "fedqcl"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedqcl "$@"\n', encoding="utf-8")
        command.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PYTEST_"))}
        path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**kept, "PATH": path, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}

    def submit(self, name: str, script: str, *words: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """Submit a script into a folder of its own, named like the job."""
        folder = self.folder / name
        folder.mkdir()
        options = (
            *options,
            "--wait",
            "--time=10",
            f"--job-name=test-{name}",
            "--cpus-per-task=2",
            "--output=out-%a.txt",
        )
        return subprocess.Popen(
            ["sbatch", *options, str(SCRIPTS / script), *words],
            cwd=folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
        )

    def output(self, name: str) -> str:
        """What a job has printed."""
        return "".join(path.read_text(encoding="utf-8") for path in sorted((self.folder / name).glob("out-*.txt")))

    def summaries(self, name: str) -> list[dict[str, Any]]:
        """The summaries of a job's runs."""
        return [RunFolder(path.parent).read_summary() for path in sorted((self.folder / name).rglob("summary.json"))]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """All jobs, at work at the same time, and ended."""
    jobs = Jobs(tmp_path_factory.mktemp("slurm"))
    grid = ["e7", "--override", "config=quickstart", "seed=0", "C=1", "R=1", "V=50,100"]
    started = [
        jobs.submit("nodes", "fit.sbatch", *TINY, options=("--nodes=2", "--ntasks-per-node=1")),
        jobs.submit("wrong", "fit.sbatch", *TINY, "--trainer.devices", "4", options=("--ntasks-per-node=2",)),
        jobs.submit("array", "sweep.sbatch", *grid, options=("--array=0-1",)),
        jobs.submit("single", "sweep.sbatch", *grid),
    ]
    for job in started:
        job.wait(SECONDS)
    return jobs


def test_two_nodes_of_one_task_each_make_what_one_rank_does(jobs: Jobs, tmp_path: Path) -> None:
    assert main(["fit", *TINY, "--trainer.devices", "1", "--trainer.root", str(tmp_path)]) == 0
    (alone,) = tmp_path.rglob("summary.json")
    (summary,) = jobs.summaries("nodes") or [jobs.output("nodes")]
    assert summary["device"] == "2 CPU ranks of 1 thread"
    assert summary["accuracy_matrix"] == RunFolder(alone.parent).read_summary()["accuracy_matrix"]


def test_what_does_not_fit_the_job_is_one_line(jobs: Jobs) -> None:
    assert jobs.summaries("wrong") == []
    assert [line for line in jobs.output("wrong").splitlines() if not line.startswith(("srun: ", "slurmstepd"))] == [
        "fedqcl fit: error: trainer.devices: 4 were asked for and Slurm has started 2 on each node; write `#SBATCH "
        "--ntasks-per-node=4`, or leave trainer.devices out"
    ]


def test_each_task_of_an_array_makes_a_run_of_the_sweep(jobs: Jobs) -> None:
    folder = jobs.folder / "array" / "runs" / "e7-V"
    names = ["quickstart-FedQCL-V100-seed0", "quickstart-FedQCL-V50-seed0"]
    assert sorted(path.name for path in folder.iterdir()) == names, jobs.output("array")
    assert [RunFolder(folder / name).read_places()["e7-V"]["at"][0]["V"] for name in names] == [100, 50]
    assert len(jobs.summaries("array")) == 2


def test_a_sweep_that_is_no_array_says_so(jobs: Jobs) -> None:
    assert jobs.output("single").startswith("slurm/sweep.sbatch: this is no array; write sbatch --array=0-LAST")


@pytest.mark.parametrize("name", ["fit.sbatch", "sweep.sbatch"])
def test_slurm_accepts_every_directive(name: str, tmp_path: Path) -> None:
    asked = subprocess.run(
        ["sbatch", "--test-only", str(SCRIPTS / name)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert asked.returncode == 0, asked.stderr
