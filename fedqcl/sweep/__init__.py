"""Sweeps: an experiment's grid of runs, which of them are there, and running those that are not."""

from fedqcl.sweep.experiment import Experiment, Planned
from fedqcl.sweep.known import KnownRuns
from fedqcl.sweep.workers import Job, run_jobs

__all__ = ["Experiment", "Job", "KnownRuns", "Planned", "run_jobs"]
