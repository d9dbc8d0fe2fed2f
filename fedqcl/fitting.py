"""What one rank does in ``fit``: makes the parts of a run, trains, and reports."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, Protocol

from lightning.fabric import Fabric

from fedqcl import loop
from fedqcl.checkpoint import CheckpointKeeper, RunState, Start, save_model
from fedqcl.checkpoint.directory import Checkpoints
from fedqcl.costs import Costs
from fedqcl.data import FederatedData
from fedqcl.engine import Engine
from fedqcl.engine.faults import Faults
from fedqcl.engine.launch import cautions, describe
from fedqcl.engine.memory import Footprint, check_memory, peak_memory
from fedqcl.engine.pulse import busy, meeting
from fedqcl.engine.rules import Personal, Rules, Weighting
from fedqcl.errors import InputError, Interrupted
from fedqcl.evaluate import BATCH, ClientEvaluator, Evaluator
from fedqcl.learner import Learner
from fedqcl.preemption import REQUEUE, Interruption, requeue
from fedqcl.run.console import Console, Level
from fedqcl.run.folder import RunFolder
from fedqcl.run.log import RunLog, SilentLog
from fedqcl.run.records import RunInfo
from fedqcl.run.wandb import WandbLogger
from fedqcl.run.writing import writing
from fedqcl.schedule import Schedule
from fedqcl.tracker import Tracker
from fedqcl.version import __version__

# Status of a run that was asked to stop and be started again, by whoever started it: "temporary failure" in sysexits.h.
AGAIN = 75


class Options(Protocol):
    """What a run is to be like; :class:`~fedqcl.trainer.FederatedTrainer` documents them."""

    rounds: int
    epochs: int
    participation: float
    weighting: Weighting
    personal: Personal
    evaluation: Literal["server", "clients"]
    restart: bool
    executor: Literal["auto", "eager", "graphed"]
    concurrency: int
    logger: WandbLogger | None
    on_client_error: Literal["raise", "skip"]
    on_nonfinite: Literal["raise", "drop"]
    console: Level
    checkpoint_every: int
    grace: float
    config: dict[str, Any]
    started: float


class Fitting:
    """One run, on one rank.

    Args:
        options: what it is to be like.
        fabric: launched already.
        learner: what clients run.
        data: set up already.
        start: where the run starts; the same on every rank.
    """

    def __init__(
        self,
        options: Options,
        fabric: Fabric,
        learner: Learner,
        data: FederatedData,
        start: Start,
    ) -> None:
        self.options = options
        self.fabric = fabric
        self.learner = learner
        self.data = data
        self.start = start
        self.folder = RunFolder(start.folder)
        self.log = SilentLog()
        if fabric.is_global_zero:  # only the first rank speaks
            loggers = [options.logger] if options.logger else []
            self.log = RunLog(self.folder, Console(options.console), loggers)

    def run(self) -> dict[str, Any] | Interrupted:
        """Train on all tasks that are left, and write the run's folder.

        Returns:
            What ``summary.json`` holds; or, on the first rank, how the run was stopped with what it had done saved.
        """
        log, start = self.log, self.start
        for line in start.lines:
            log.say(line)
        if start.finished:
            return self.folder.read_summary()
        try:
            at_once, first = partial(_start_again, self.fabric), self.fabric.is_global_zero
            with Interruption(self.options.grace, log.say, at_once, first, self._standing) as asked:
                summary = self._train(lambda: asked.signal)
        except Interrupted as stop:
            log.stop()
            log.say(f"stopped by {stop.signal.name}: {self._again()} goes on with it")
            stop.status = _start_again(self.fabric, stop.signal) or stop.status
            return stop if self.fabric.is_global_zero else {}
        except BaseException:
            log.fail()
            raise
        with meeting():
            self.fabric.barrier()
        return summary

    def _again(self) -> str:
        """What goes on with the run."""
        folder = self.start.folder
        return f"`fedqcl fit --ckpt_path {folder}`" if self.options.config else f"ckpt_path='{folder}'"

    def _standing(self) -> str:
        """What is left of the run if it ends at once."""
        if Checkpoints(self.folder.checkpoints).all():
            return f"the last checkpoint stands, and {self._again()} goes on from it"
        return "there is no checkpoint to go on from"

    def _train(self, asked_to_stop: Callable[[], int]) -> dict[str, Any]:
        options, data, log, start = self.options, self.data, self.log, self.start
        assert data.spec is not None
        with self._leaving_no_folder():
            engine = self._engine()
            evaluator = self._evaluator(engine)
            needed = Footprint.of(engine, evaluator.pool, BATCH).total if self.fabric.device.type == "cuda" else None
            info = self._info(needed)
        schedule = Schedule(data.spec.num_tasks, options.rounds, data.num_clients, options.participation, data.seed)
        with busy():
            log.start(info, start.run_id, schedule.rounds_before(start.position))
        for line in [*cautions(self.fabric), *data.cautions(), *self.learner.cautions(engine.server.net)]:
            log.warn(line)
        tracker = Tracker(evaluator, log, schedule, Costs(engine), options.started)
        state = RunState(engine, tracker)
        every = options.checkpoint_every
        with CheckpointKeeper(state, schedule, start, every, log.say, asked_to_stop) as keeper:
            loop.fit(self.learner.method, engine, schedule, tracker, keeper)
            keeper.settle()
        summary = self._summary(tracker, needed)
        if self.fabric.is_global_zero:
            with writing(self.folder.checkpoint):
                save_model(self.folder.checkpoint, engine.server.net, data.spec, data.labels)
        with busy():
            log.finish(summary)
        keeper.clear()
        return summary

    @contextmanager
    def _leaving_no_folder(self) -> Iterator[None]:
        """A user's mistake that is found before the run has begun leaves its name free."""
        try:
            yield
        except InputError:
            if self.fabric.is_global_zero and self.start.new:
                self.folder.discard()
            raise

    def _summary(self, tracker: Tracker, needed: int | None) -> dict[str, Any]:
        """What ``summary.json`` holds; every rank works it out together with the others."""
        return {
            **tracker.summary(),
            "evaluated_on": self.data.evaluated_on,
            "dataset": self.data.source.name,
            "device": describe(self.fabric),
            "memory_estimate": needed,
            "memory_peak": peak_memory(self.fabric.device),
            "seed": self.data.seed,
            "versions": _versions(),
        }

    def _engine(self) -> Engine:
        options = self.options
        rules = Rules(options.personal, options.weighting, options.restart)
        faults = Faults(options.on_client_error, options.on_nonfinite)
        return Engine(
            self.fabric,
            self.learner,
            self.data,
            options.epochs,
            options.executor,
            options.concurrency,
            rules,
            faults,
        )

    def _evaluator(self, engine: Engine) -> Evaluator:
        data, spec = self.data, self.data.spec
        assert spec is not None
        pool = data.evaluation_pool(self.fabric.device, data.evaluated_on)
        if self.options.evaluation == "server":
            return Evaluator(self.fabric, pool, spec)
        return ClientEvaluator(self.fabric, pool, spec, data.evaluation_shards(data.evaluated_on), engine.clients)

    def _info(self, needed: int | None) -> RunInfo:
        data = self.data
        return RunInfo(
            name=self.start.folder.name,
            dataset=data.source.name,
            method=type(self.learner.method).__name__,
            seed=data.seed,
            num_clients=data.num_clients,
            tasks=data.task_classes(),
            rounds=self.options.rounds,
            devices=describe(self.fabric),
            memory=check_memory(needed, self.fabric.device) if needed else None,
            config=self.options.config,
            split=data.split,
            scenario=data.scenario,
            versions=_versions(),
            evaluated_on=data.evaluated_on,
        )


def _start_again(fabric: Fabric, signum: int) -> int:
    """Have the run started again, if that is what the signal asks for; the status to end with, 0 for the usual one."""
    if signum != REQUEUE or not fabric.is_global_zero or requeue():
        return 0
    return AGAIN


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "fedqcl": __version__,
        **{name: version(name) for name in ("torch", "lightning", "numpy")},
    }
