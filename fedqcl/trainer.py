"""The trainer: ranks, run folder and results around the loop."""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from typing import Any, Literal

import torch
from lightning.fabric import Fabric

from fedqcl import loop
from fedqcl.checkpoint import CheckpointKeeper, RunState, Start, describe_problem, load_model, save_model
from fedqcl.data import FederatedData
from fedqcl.engine import Engine
from fedqcl.engine.averaging import gather
from fedqcl.engine.graphed import starts_at_zero
from fedqcl.engine.launch import describe, is_first, is_first_of_machine, make_fabric
from fedqcl.errors import InputError, Interrupted
from fedqcl.evaluate import Evaluator
from fedqcl.learner import Learner
from fedqcl.preemption import REQUEUE, Interruption, passed_on, requeue
from fedqcl.resume import find_run, go_on
from fedqcl.run.console import Console
from fedqcl.run.folder import RunFolder
from fedqcl.run.log import RunLog
from fedqcl.run.records import RunInfo
from fedqcl.run.wandb import WandbLogger
from fedqcl.schedule import Schedule
from fedqcl.tracker import Tracker
from fedqcl.types import Count, Positive, Share
from fedqcl.version import __version__

Job = Callable[[Fabric, Learner, FederatedData], Any]

# Status of a run that was asked to stop and be started again, by whoever started it: "temporary failure" in sysexits.h.
AGAIN = 75


class FederatedTrainer:
    """Runs federated continual learning with Lightning Fabric, clients dealt out over the devices.

    Args:
        accelerator: ``auto`` takes CUDA devices if there are any.
        devices: ranks on this machine, one a GPU; ``auto`` takes every GPU, on the CPU every core, but no more than
            there are clients.
        num_nodes: machines.
        precision: ``32-true``, or ``bf16-mixed`` for bfloat16 forward passes with float32 weights.
        rounds: ``C``, communication rounds of a task.
        epochs: ``R``, epochs a client trains in a round.
        participation: share of the clients that take part in a round, drawn afresh each round.
        executor: ``graphed`` captures each client's step in a CUDA graph, and runs clients at once; ``eager`` is plain
            PyTorch, one client after another; ``auto`` is ``graphed`` on CUDA with optimizers that can be restarted
            in a graph, as most can.
        concurrency: clients of one GPU that run at once when graphed; each takes memory of its own.
        threads: threads of each rank on the CPU; part of the result, as sums are split among them.
        root: folder of all runs.
        name: the run's name; one made of data set, method and seed by default.
        logger: a tracking service to report to besides the run folder.
        console: how much to print.
        checkpoint_every: rounds from one checkpoint to the next; one is written at the end of every task in any case.
        grace: seconds a run has to come to the end of its round when it is asked to stop; after them it ends at once,
            and goes on later from the checkpoint before.
        start_method: how ranks are started; ``fork`` is quick, and for the CPU alone.
    """

    def __init__(
        self,
        accelerator: Literal["auto", "cpu", "cuda"] = "auto",
        devices: Count | Literal["auto"] = "auto",
        num_nodes: Count = 1,
        precision: Literal["32-true", "bf16-mixed"] = "32-true",
        rounds: Count = 10,
        epochs: Count = 5,
        participation: Share = 1.0,
        executor: Literal["auto", "eager", "graphed"] = "auto",
        concurrency: Count = 5,
        threads: Count = 1,
        root: str = "runs",
        name: str | None = None,
        logger: WandbLogger | None = None,
        console: Literal["quiet", "normal", "verbose"] = "normal",
        checkpoint_every: Count = 1,
        grace: Positive = 25.0,
        start_method: Literal["popen", "fork", "spawn"] = "popen",
    ) -> None:
        self.accelerator = accelerator
        self.devices = devices
        self.num_nodes = num_nodes
        self.precision = precision
        self.rounds = rounds
        self.epochs = epochs
        self.participation = participation
        self.executor = executor
        self.concurrency = concurrency
        self.threads = threads
        self.root = root
        self.name = name
        self.logger = logger
        self.console = console
        self.checkpoint_every = checkpoint_every
        self.grace = grace
        self.start_method = start_method
        self.config: dict[str, Any] = {}
        self.config_text = ""
        self._start: Start | None = None
        self._started = 0.0

    def fit(self, model: Learner, datamodule: FederatedData, ckpt_path: str | None = None) -> dict[str, Any]:
        """Train on all tasks and write a run folder.

        Args:
            model: method, net and optimizer.
            datamodule: tasks and clients.
            ckpt_path: a run to go on with: its folder, or a checkpoint in it. ``last`` is the newest run of this
                configuration, one that has not finished if there is any; ``auto`` the same, or a new one if there is
                none. A run that has finished is left as it is.

        Returns:
            What ``summary.json`` holds.

        Raises:
            Interrupted: it was asked to stop, and has saved what it had done.
        """
        self._started = time.perf_counter()
        with ExitStack() as held, passed_on():
            result: dict[str, Any] | Interrupted = self._launch(
                self._fit, model, datamodule, prepare=lambda: self._begin(model, datamodule, ckpt_path, held)
            )
        if isinstance(result, Interrupted):
            raise result
        return result

    def validate(self, model: Learner, datamodule: FederatedData, ckpt_path: str) -> dict[str, Any]:
        """Evaluate a run's model on the images the run was measured on.

        Args:
            model: says which net the weights are for.
            datamodule: the data the run used.
            ckpt_path: a run folder, or the ``model.ckpt`` in it.

        Returns:
            ``average_accuracy`` and the ``accuracy`` of each task, fractions.
        """
        return self._evaluate(model, datamodule, ckpt_path, datamodule.evaluated_on)

    def test(self, model: Learner, datamodule: FederatedData, ckpt_path: str) -> dict[str, Any]:
        """Evaluate a run's model on the test images.

        Args:
            model: says which net the weights are for.
            datamodule: the data the run used.
            ckpt_path: a run folder, or the ``model.ckpt`` in it.

        Returns:
            ``average_accuracy`` and the ``accuracy`` of each task, fractions.
        """
        return self._evaluate(model, datamodule, ckpt_path, "test")

    def _launch(
        self, job: Job, learner: Learner, data: FederatedData, prepare: Callable[[], None] | None = None
    ) -> Any:
        """Start the ranks and run a job on each; the result is the first rank's."""
        fabric = make_fabric(
            self.accelerator, self.devices, self.num_nodes, self.precision, self.start_method, data.num_clients
        )
        if self.executor == "graphed":
            self._check_graphed(fabric, learner)
        # Before there are other ranks: only one may download, and a mistake is reported once.
        if is_first_of_machine():
            data.prepare_data()
            data.setup()
            assert data.spec is not None
            learner.method.check(data.spec)
        if prepare is not None and is_first():
            prepare()
        return fabric.launch(partial(self._on_rank, job=job, learner=learner, data=data))

    def _check_graphed(self, fabric: Fabric, learner: Learner) -> None:
        if fabric.device.type != "cuda":
            raise InputError("trainer.executor: graphed needs a CUDA device; choose auto or eager")
        if not starts_at_zero(learner):
            raise InputError("trainer.executor: graphed cannot restart model.optimizer; choose auto or eager")

    def _on_rank(self, fabric: Fabric, job: Job, learner: Learner, data: FederatedData) -> Any:
        if fabric.device.type == "cpu":
            torch.set_num_threads(self.threads)
        data.setup()
        return job(fabric, learner, data)

    def _fit(self, fabric: Fabric, learner: Learner, data: FederatedData) -> dict[str, Any] | Interrupted:
        assert data.spec is not None
        start: Start = gather([self._start])[0]
        log = self._log(fabric, start)
        for line in start.lines:
            log.say(line)
        if start.finished:
            return RunFolder(start.folder).read_summary()
        try:
            with Interruption(self.grace, log.say, partial(_start_again, fabric)) as asked:
                summary = self._train(fabric, learner, data, start, log, lambda: asked.signal)
        except Interrupted as stop:
            log.fail()
            log.say(f"stopped by {stop.signal.name}: `fedqcl fit --ckpt_path {start.folder}` goes on with it")
            stop.status = _start_again(fabric, stop.signal) or stop.status
            return stop if fabric.is_global_zero else {}
        except BaseException:
            log.fail()
            raise
        fabric.barrier()
        return summary

    def _train(
        self,
        fabric: Fabric,
        learner: Learner,
        data: FederatedData,
        start: Start,
        log: RunLog,
        asked_to_stop: Callable[[], int],
    ) -> dict[str, Any]:
        assert data.spec is not None
        task, round = start.position
        log.start(self._info(fabric, learner, data, start), start.run_id, task * self.rounds + round)
        engine = Engine(fabric, learner, data, self.epochs, self.executor, self.concurrency)
        schedule = Schedule(data.spec.num_tasks, self.rounds, data.num_clients, self.participation, data.seed)
        evaluator = Evaluator(fabric, data.evaluation_pool(fabric.device, data.evaluated_on), data.spec)
        tracker = Tracker(evaluator, log, schedule, engine.server.num_bytes, self._started)
        state = RunState(engine, tracker, self._made_with(learner, data))
        every = self.checkpoint_every
        with CheckpointKeeper(state, schedule, start, every, log.say, asked_to_stop) as keeper:
            loop.fit(learner.method, engine, schedule, tracker, keeper)
            keeper.settle()
        summary = {
            **tracker.summary(),
            "evaluated_on": data.evaluated_on,
            "device": describe(fabric),
            "seed": data.seed,
            "versions": _versions(),
        }
        if log.folder is not None:
            save_model(log.folder.checkpoint, engine.server.net, data.spec, data.labels)
        log.finish(summary)
        keeper.clear()
        return summary

    def _begin(self, learner: Learner, data: FederatedData, ckpt_path: str | None, held: ExitStack) -> None:
        """Find or make the run's folder, hold it, and find out where the run starts; for the first rank alone."""
        run = find_run(ckpt_path, self.root, self.name, self.config) if ckpt_path else None
        if ckpt_path and run:
            held.enter_context(run.held())
            self._start = go_on(run, ckpt_path, self._made_with(learner, data))
            return
        name = f"{data.source.name}-{type(learner.method).__name__}-seed{data.seed}"
        run = RunFolder.create(self.root, self.name, name, self.config_text)
        held.enter_context(run.held())
        self._start = Start(run.path, secrets.token_hex(4))

    def _made_with(self, learner: Learner, data: FederatedData) -> dict[str, Any]:
        """What a run's results depend on, in plain numbers and words; without a config file the most of it."""
        assert data.spec is not None
        options = {
            "method": type(learner.method).__name__,
            "num_clients": int(data.num_clients),
            "rounds": int(self.rounds),
            "epochs": int(self.epochs),
            "participation": float(self.participation),
            "seed": int(data.seed),
        }
        return {"config": self.config, "options": options, "problem": describe_problem(data.spec, data.labels)}

    def _log(self, fabric: Fabric, start: Start) -> RunLog:
        """Only the first rank speaks."""
        if not fabric.is_global_zero:
            return RunLog.silent()
        return RunLog(RunFolder(start.folder), Console(self.console), [self.logger] if self.logger else [])

    def _info(self, fabric: Fabric, learner: Learner, data: FederatedData, start: Start) -> RunInfo:
        return RunInfo(
            name=start.folder.name,
            dataset=data.source.name,
            method=type(learner.method).__name__,
            seed=data.seed,
            num_clients=data.num_clients,
            tasks=data.task_classes(),
            rounds=self.rounds,
            devices=describe(fabric),
            config=self.config,
            split=data.split,
            scenario=data.scenario,
            versions=_versions(),
        )

    def _evaluate(
        self, learner: Learner, data: FederatedData, ckpt_path: str, part: Literal["validation", "test"]
    ) -> dict[str, Any]:
        def job(fabric: Fabric, learner: Learner, data: FederatedData) -> dict[str, Any]:
            assert data.spec is not None
            net = learner.make_net(data.spec, data.seed)
            load_model(ckpt_path, net, data.spec, data.labels)
            evaluator = Evaluator(fabric, data.evaluation_pool(fabric.device, part), data.spec)
            correct, total = evaluator.count(net.to(fabric.device).eval(), data.spec.num_tasks)
            accuracy = correct / total
            figures = {"average_accuracy": accuracy.nanmean().item(), "accuracy": accuracy.tolist()}
            if fabric.is_global_zero:
                Console(self.console).evaluation(figures, part)
            return figures

        def check() -> None:
            assert data.spec is not None
            load_model(ckpt_path, learner.make_net(data.spec, data.seed), data.spec, data.labels)

        result: dict[str, Any] = self._launch(job, learner, data, check)
        return result


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
