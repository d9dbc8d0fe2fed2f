"""``fedqcl sweep``: runs what is missing of experiments."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedqcl.cli.configs import find_experiment, read_experiment, shipped_experiments
from fedqcl.cli.lean import lean_imports
from fedqcl.cli.words import Parser
from fedqcl.errors import InputError
from fedqcl.preemption import requeue_noted
from fedqcl.run.console import duration
from fedqcl.run.folder import RunFolder
from fedqcl.sweep.experiment import Experiment, Planned
from fedqcl.sweep.known import KnownRuns, free_name, mark, same_run
from fedqcl.sweep.workers import Job, apart, run_jobs


def sweep(words: list[str]) -> int:
    """Run the command.

    Args:
        words: what follows ``fedqcl sweep``.

    Returns:
        Exit status: 0, or 1 if a run failed; with ``--index`` that of its run.

    Raises:
        InputError: a mistake in the command line, an experiment or one of its configurations, before any run starts.
    """
    options = _parser().parse_args(words)
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"jobs: {options.jobs} is not accepted; give a whole number from 1 up")
    _parsed.cache_clear()  # the config files may be others than at the last call
    experiments = _experiments(options.experiment, options.override)
    known = KnownRuns(Path(options.root), _completed)
    places = [(experiment, run) for experiment in experiments for run in experiment.runs()]
    if options.index is not None:
        if not 0 <= options.index < len(places):
            last = len(places) - 1
            raise InputError(f"index: {options.index} is not one of the {len(places)} runs; give 0 to {last}")
        with requeue_noted():
            return _run_one(Task(known, *places[options.index]))
    tasks = [Task(known, *place) for place in places]
    _show(experiments, tasks, with_runs=options.list)
    return 0 if options.list else _run_missing(_without_repeats(tasks), options.jobs)


def _parser() -> Parser:
    parser = Parser(prog="fedqcl sweep", description="Run what is missing of experiments' runs.")
    parser.add_argument(
        "experiment",
        nargs="+",
        help=f"YAML files, or of {', '.join(shipped_experiments())}; e7 is enough for e7-V",
    )
    parser.add_argument("--list", action="store_true", help="show the runs, and which of them are finished")
    parser.add_argument("--index", type=int, help="run exactly this one, from 0, on all devices: for a Slurm array")
    parser.add_argument(
        "--override",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="narrow or change the grid, as seed=0 or V=10,100, or set any option, as trainer.precision=32-true",
    )
    parser.add_argument(
        "--root", default="runs", help="folder of all runs; one that lies in it or one folder down is not repeated"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        help="runs at once, dealt to the GPUs or on a core of the CPU each; by default one on each GPU, on the CPU one",
    )
    return parser


def _experiments(names: Sequence[str], overrides: Sequence[str]) -> list[Experiment]:
    """The experiments that are meant, each once."""
    found: dict[str, Experiment] = {}
    for file in dict.fromkeys(map(find_experiment, names)):
        if file.stem in found:
            raise InputError(f"{file}: another of these experiments is called {file.stem}, too; rename the file")
        found[file.stem] = Experiment(file.stem, read_experiment(file), overrides)
    return list(found.values())


class Task:
    """A planned run and what it takes to make it.

    Args:
        known: the runs that are there.
        experiment: whose run it is.
        planned: the run.
    """

    def __init__(self, known: KnownRuns, experiment: Experiment, planned: Planned) -> None:
        self.known = known
        self.experiment = experiment
        self.planned = planned
        self.places = [(experiment, planned)]
        self.config = _whole_config(planned)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.planned.name

    def folder(self) -> RunFolder | None:
        """The run's folder; None if there is none yet."""
        return self.known.find(self.config)

    def finished(self) -> RunFolder | None:
        """The finished run, marked as one of its experiments; None if there is none yet."""
        folder = self.folder()
        if folder is None or not folder.finished:
            return None
        for experiment, planned in self.places:
            mark(folder, experiment, planned)
        return folder

    def state(self) -> str:
        """How far the run is, as ``--list`` shows it."""
        folder = self.folder()
        state = "missing" if folder is None else "finished" if folder.finished else "unfinished"
        return f"{state:<10}  {self.name}{f'  {folder.path}' if folder else ''}"

    def job(self, *options: str) -> Job:
        """The job that makes the run: goes on with an unfinished one, or makes one under a name that is free."""
        root = self.known.root / self.experiment.name
        left = self.folder()
        root, name = (left.path.parent, left.path.name) if left else (root, free_name(root, self.name))
        words = [*self.planned.words(), f"--trainer.root={root}", f"--trainer.name={name}"]
        if self.config["trainer"]["logger"]:
            tags = [self.experiment.name, *(f"{axis}={choice}" for axis, choice in self.planned.at.items())]
            words += [f"--trainer.logger.group={self.experiment.name}", f"--trainer.logger.tags={json.dumps(tags)}"]
        return Job(name, (*words, *options, "--ckpt_path=auto"), root / f"{name}.log")


def _show(experiments: Sequence[Experiment], tasks: Sequence[Task], with_runs: bool) -> None:
    """What the experiments are, and, if asked for, their runs, numbered from the first experiment's on."""
    width = len(str(len(tasks)))
    for experiment in experiments:
        mine = [(index, task) for index, task in enumerate(tasks) if task.experiment is experiment]
        folder = tasks[0].known.root / experiment.name
        print(f"{experiment.name}: {experiment.title}, {len(mine)} runs in {folder}")
        for index, task in mine if with_runs else []:
            print(f"{index:>{width}}  {task.state()}")


def _whole_config(planned: Planned) -> dict[str, Any]:
    seed = planned.options.get("seed_everything")
    # Parsing takes a tenth of a second, and what differs in the seed alone differs in nothing else.
    plain = type(seed) is int and 0 <= seed < 2**32
    words = [word for word in planned.words() if not (plain and word.startswith("--seed_everything="))]
    try:
        config = _parsed(tuple(words))
    except InputError as error:
        raise InputError(f"{planned.name}: {error}") from None
    return config | {"seed_everything": seed} if plain else config


@functools.cache
def _parsed(words: tuple[str, ...]) -> dict[str, Any]:
    with lean_imports():
        from fedqcl.cli.lightning import whole_config

    return whole_config(list(words))


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    from fedqcl.cli.lightning import completed

    return completed(config)


def _without_repeats(tasks: Sequence[Task]) -> list[Task]:
    """Tasks of different configurations; a run that lies at several places of experiments is made once."""
    different: list[Task] = []
    for task in tasks:
        same = next((other for other in different if same_run(task.config, other.config)), None)
        if same:
            same.places += task.places
        else:
            different.append(task)
    return different


def _run_one(task: Task) -> int:
    """Make one run in this process, with all devices it is given."""
    folder = task.finished()
    if folder:
        print(f"{task.name}: finished already, in {folder.path}")
        return 0
    status = _fit(list(task.job().words))
    task.finished()
    return status


def _run_missing(tasks: Sequence[Task], jobs: int | None) -> int:
    """Make the runs that are missing, in processes of their own."""
    _check_alone()
    missing = [task for task in tasks if not task.finished()]
    print(f"{len(tasks) - len(missing)} finished, {len(missing)} to run", flush=True)
    alone = [] if any("trainer.devices" in task.planned.options for task in missing) else ["--trainer.devices=1"]
    made = {job: task for task in missing for job in [task.job(*alone)]}
    for folder in {job.log.parent for job in made}:
        _make_folder(folder)
    failed = _make(made, _slots(missing, jobs))
    if failed:
        print("\n".join([f"{len(failed)} of {len(made)} failed:", *failed]), file=sys.stderr)
    return int(bool(failed))


def _make(tasks: Mapping[Job, Task], slots: Sequence[str | None]) -> list[str]:
    """Make runs, telling how each comes out; returns a line on each one that failed."""
    failed = []
    total, started = len(tasks), time.monotonic()
    for number, (job, status) in enumerate(run_jobs(_fit, list(tasks), slots), start=1):
        folder = tasks[job].finished() if status == 0 else None
        if folder is None:
            failed.append(f"{job.name}: {job.last_line()} ({job.log})")
        outcome = _outcome(folder) if folder else "FAILED"
        pace = (time.monotonic() - started) / number
        left = f"; {duration(pace * (total - number))} left" if number < total else ""
        print(f"[{number:>{len(str(total))}}/{total}] {job.name}  {outcome}{left}", flush=True)
    return failed


def _make_folder(path: Path) -> None:
    """Make the folder of an experiment's runs and of what they print."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"root: cannot make {path}: {error.strerror}; choose another") from None


def _check_alone() -> None:
    """Refuse to be one of several: each would make all runs."""
    tasks, name = int(os.environ.get("SLURM_NTASKS") or 1), os.environ.get("SLURM_JOB_NAME")
    if tasks > 1 and name not in ("bash", "interactive"):
        raise InputError(f"Slurm: a sweep is one task, not {tasks}; write `#SBATCH --ntasks-per-node=1`")


def _slots(tasks: Sequence[Task], jobs: int | None) -> list[str | None]:
    """What runs at once: each GPU's name for ``CUDA_VISIBLE_DEVICES``, None for the CPU."""
    gpus = _visible_gpus() if any(task.config["trainer"]["accelerator"] != "cpu" for task in tasks) else []
    return [gpus[slot % len(gpus)] if gpus else None for slot in range(jobs or len(gpus) or 1)]


def _visible_gpus() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = apart(_count_gpus)
    return named.split(",")[:count] if named else [str(gpu) for gpu in range(count)]


def _count_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _outcome(folder: RunFolder) -> str:
    summary = folder.read_summary()
    forgetting = summary["forgetting"]
    forgotten = "" if forgetting is None else f", forgetting {100 * forgetting:.1f} %"
    return f"accuracy {100 * summary['average_accuracy']:.1f} %{forgotten}, {summary['wall_seconds']:.0f} s"


def _fit(words: list[str]) -> int:
    """``fedqcl fit`` in this process; ranks of its own start it again by its command line."""
    from fedqcl.cli.main import main

    sys.argv[1:] = ["fit", *words]
    return main(["fit", *words])
