"""The trainer: ranks, run folder and results around the loop."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from lightning.fabric import Fabric

from fedqcl.arguments import check_arguments, description, in_plain_words
from fedqcl.checkpoint import Start, describe_problem, load_model
from fedqcl.data import FederatedData
from fedqcl.data.digest import digest
from fedqcl.engine import guard
from fedqcl.engine.averaging import gather
from fedqcl.engine.determinism import deterministic_algorithms
from fedqcl.engine.launch import is_first, is_first_of_machine, make_fabric
from fedqcl.engine.memory import explain_memory
from fedqcl.engine.pulse import PULSE
from fedqcl.engine.rules import Personal, Weighting
from fedqcl.errors import InputError, Interrupted
from fedqcl.evaluate import Evaluator
from fedqcl.fitting import Fitting
from fedqcl.learner import Learner
from fedqcl.preemption import passed_on
from fedqcl.resume import check_model, check_same, find_run, go_on
from fedqcl.run.config import CIRCUMSTANCES, Complete
from fedqcl.run.console import Console, Level
from fedqcl.run.folder import RunFolder
from fedqcl.run.wandb import WandbLogger
from fedqcl.types import Count, Positive, Share

Job = Callable[[Fabric, Learner, FederatedData], Any]


@contextmanager
def _threads_put_back() -> Iterator[None]:
    """Leave a script that makes a run with as many threads as it had."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(eq=False)
class FederatedTrainer:
    """Runs federated continual learning with Lightning Fabric, clients dealt out over the devices.

    Args:
        accelerator: ``auto`` takes CUDA devices if there are any.
        devices: ranks on each machine, one a GPU; ``auto`` takes every GPU, on the CPU every core it may use, but no
            more than there are clients, and under Slurm those of the job.
        num_nodes: machines; ``auto`` is one, and under Slurm those of the job.
        precision: ``32-true``, or ``bf16-mixed`` for bfloat16 forward passes with float32 weights.
        rounds: ``C``, communication rounds of a task.
        epochs: ``R``, epochs a client trains in a round.
        participation: share of the clients that take part in a round, drawn afresh each round.
        weighting: what a client's model weighs in the average: its number of images of the current ``task``, of the
            ``first_task`` (as in the authors' code), or the same as any other's: ``uniform``.
        personal: what of its model a client keeps to itself from round to round instead of the average: ``nothing``;
            BatchNorm's running ``statistics`` (as in the authors' code); or the whole ``model``.
        evaluation: ``server``: the global model is tested on all images; ``clients``: each client's model on a share of
            its own, dealt out as the training images are (as in the authors' code).
        restart: start every task as if it were the first, with the initial model and nothing that a method has kept:
            independent training, whose figure is the learning accuracy.
        executor: ``graphed`` captures each client's step in a CUDA graph, and runs clients at once; ``eager`` is plain
            PyTorch, one client after another; ``auto`` is ``graphed`` on CUDA with optimizers that can be captured,
            as most can, and nets that draw no random numbers, as dropout does.
        concurrency: clients of one GPU that run at once when graphed; each takes memory of its own.
        deterministic: whether to keep to algorithms that repeat bit for bit on CUDA, at some cost; on the CPU every
            run does.
        threads: threads of each rank on the CPU; there, part of the result, as sums are split among them.
        root: folder of all runs.
        name: the run's name; one made of data set, method and seed by default.
        logger: a tracking service to report to besides the run folder.
        on_client_error: ``raise`` ends the run when a client's step or hook raises; ``skip`` leaves the client out of
            the round, its state as before, and says so.
        on_nonfinite: ``raise`` ends the run when a client's update has infinite or undefined numbers; ``drop`` leaves
            the client out of the round, its state as before, and says so. A round without a usable update keeps the
            model.
        console: how much to print.
        checkpoint_every: rounds from one checkpoint to the next; one is written at the end of every task in any case.
        grace: seconds a run has to come to the end of its round when it is asked to stop; after them it ends at once,
            and goes on later from the checkpoint before.
        start_method: how ranks are started: ``popen`` runs the same command again, ``fork`` is quicker, as everything
            is imported; ``auto`` is ``fork`` on one Linux machine, unless this process has used CUDA, else ``popen``.
        timeout: seconds without any progress after which a rank that others wait for counts as hung, which ends the
            run.
    """

    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    devices: Count | Literal["auto"] = "auto"
    num_nodes: Count | Literal["auto"] = "auto"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    rounds: Count = 10
    epochs: Count = 5
    participation: Share = 1.0
    weighting: Weighting = "task"
    personal: Personal = "nothing"
    evaluation: Literal["server", "clients"] = "server"
    restart: bool = False
    executor: Literal["auto", "eager", "graphed"] = "auto"
    concurrency: Count = 5
    deterministic: bool = False
    threads: Count = 1
    root: str = "runs"
    name: str | None = None
    logger: WandbLogger | None = None
    on_client_error: Literal["raise", "skip"] = "raise"
    on_nonfinite: Literal["raise", "drop"] = "raise"
    console: Level = "normal"
    checkpoint_every: Count = 1
    grace: Positive = 25.0
    start_method: Literal["auto", "popen", "fork"] = "auto"
    timeout: Positive = 45.0

    config: dict[str, Any] = field(default_factory=dict, init=False)
    config_text: str = field(default="", init=False)
    complete: Complete = field(default=dict, init=False)
    started: float = field(default=0.0, init=False)
    _start: Start | None = field(default=None, init=False)

    def fit(self, model: Learner, datamodule: FederatedData, ckpt_path: str | None = None) -> dict[str, Any]:
        """Train on all tasks and write a run folder.

        Args:
            model: method, net and optimizer.
            datamodule: tasks and clients.
            ckpt_path: a run to go on with: its folder, or a checkpoint in it. ``last`` is the newest run of this
                configuration, one that has not finished if there is any; of a trainer with a ``name``, and without a
                config file it needs one, the run so called. ``auto`` is the same, or a new run if there is none. A run
                that has finished is left as it is.

        Returns:
            What ``summary.json`` holds.

        Raises:
            Interrupted: it was asked to stop, and has saved what it had done.
        """
        self.started = time.perf_counter()
        run = self._find(ckpt_path) if ckpt_path and is_first() else None
        with ExitStack() as held, passed_on():
            result: dict[str, Any] | Interrupted = self._launch(
                "fit", self._fit, model, datamodule, lambda: self._begin(model, datamodule, run, ckpt_path, held)
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
        return self._evaluate("validate", model, datamodule, ckpt_path, datamodule.evaluated_on)

    def test(self, model: Learner, datamodule: FederatedData, ckpt_path: str) -> dict[str, Any]:
        """Evaluate a run's model on the test images.

        Args:
            model: says which net the weights are for.
            datamodule: the data the run used.
            ckpt_path: a run folder, or the ``model.ckpt`` in it.

        Returns:
            ``average_accuracy`` and the ``accuracy`` of each task, fractions.
        """
        return self._evaluate("test", model, datamodule, ckpt_path, "test")

    @_threads_put_back()
    def _launch(
        self, command: str, job: Job, learner: Learner, data: FederatedData, prepare: Callable[[], None]
    ) -> Any:
        """Start the ranks and run a job on each; the result is the first rank's."""
        if not self.config:
            check_arguments(self, "trainer")
            _check_part(learner, Learner, "model")
            _check_part(data, FederatedData, "data")
        fabric = make_fabric(
            self.accelerator, self.devices, self.num_nodes, self.precision, self.start_method, data.num_clients
        )
        if self.executor == "graphed" and fabric.device.type != "cuda":
            raise InputError("trainer.executor: graphed needs a CUDA device; choose auto or eager")
        torch.set_num_threads(1)  # a pool of threads does not survive the forking of ranks
        # Before there are other ranks: only one may download, and a mistake is reported once.
        if is_first_of_machine():
            data.prepare_data()
            data.setup()
            assert data.spec is not None
            learner.method.check(data.spec, data.num_clients)
            _check_cumulative(learner, data)
        if is_first():
            prepare()
        on_rank = partial(self._on_rank, job=job, learner=learner, data=data)
        return guard.launch(fabric, on_rank, f"fedqcl {command}", self.timeout)

    def _on_rank(self, fabric: Fabric, job: Job, learner: Learner, data: FederatedData) -> Any:
        torch.set_num_threads(self.threads)
        data.setup()
        try:
            with deterministic_algorithms() if self.deterministic else nullcontext():
                return job(fabric, learner, data)
        except torch.OutOfMemoryError as error:
            raise explain_memory(error, fabric.device) from error

    def _fit(self, fabric: Fabric, learner: Learner, data: FederatedData) -> dict[str, Any] | Interrupted:
        start: Start = gather([self._start])[0]
        return Fitting(self, fabric, learner, data, start).run()

    def _find(self, ckpt_path: str) -> RunFolder | None:
        """The run to go on with; one of another configuration is refused before images are downloaded for it."""
        run = find_run(ckpt_path, self.root, self.name, self.config, self.complete)
        if run and self.config:
            check_same(run, {"config": run.read_config()}, {"config": self.config}, self.complete)
        return run

    def _begin(
        self, learner: Learner, data: FederatedData, run: RunFolder | None, ckpt_path: str | None, held: ExitStack
    ) -> None:
        """Hold the run's folder, or a new one, and find out where the run starts; for the first rank alone."""
        if ckpt_path and run:
            held.enter_context(run.held())
            self._start = go_on(run, ckpt_path, self._made_with(learner, data), self.complete)
            return
        name = f"{data.source.name}-{type(learner.method).__name__}-seed{data.seed}"
        run = RunFolder.create(self.root, self.name, name, self.config_text)
        held.enter_context(run.held())
        run.write_made_with(self._made_with(learner, data))
        self._start = Start(run.path, secrets.token_hex(4), new=True)

    def _made_with(self, learner: Learner, data: FederatedData) -> dict[str, Any]:
        """What a run's results depend on, in plain numbers and words; without a config file the most of it."""
        assert data.spec is not None
        made = {} if self.config else self._describe(learner, data)
        return {
            "config": self.config,
            "made": made,
            "problem": describe_problem(data.spec, data.labels),
            "evaluated_on": data.evaluated_on,
            "images": digest(data.train, data.test),
        }

    def _describe(self, learner: Learner, data: FederatedData) -> dict[str, Any]:
        """What the parts of a run were made with, as far as they tell; in the place of a config file."""
        optimizer = learner.sample_optimizer()
        settings = {name: in_plain_words(value) for name, value in optimizer.defaults.items()}
        return {
            "trainer": description(self, without=CIRCUMSTANCES),
            "model": description(learner),
            "optimizer": {"class_path": type(optimizer).__name__, "init_args": settings},
            "data": description(data),
        }

    def _evaluate(
        self, command: str, learner: Learner, data: FederatedData, ckpt_path: str, part: Literal["validation", "test"]
    ) -> dict[str, Any]:
        def job(fabric: Fabric, learner: Learner, data: FederatedData) -> dict[str, Any]:
            assert data.spec is not None
            net = learner.make_net(data.spec, data.seed)
            PULSE.follow(net)
            load_model(ckpt_path, net, data.spec, data.labels)
            evaluator = Evaluator(fabric, data.evaluation_pool(fabric.device, part), data.spec)
            correct, total = evaluator.count(net.to(fabric.device).eval(), data.spec.num_tasks)
            accuracy = correct / total
            figures = {"average_accuracy": accuracy.nanmean().item(), "accuracy": accuracy.tolist()}
            if fabric.is_global_zero:
                console = Console(self.console)
                if self.evaluation == "clients":
                    console.warn("this is the global model; the run was measured on those of its clients")
                console.evaluation(figures, part)
            return figures

        def check() -> None:
            assert data.spec is not None
            load_model(ckpt_path, learner.make_net(data.spec, data.seed), data.spec, data.labels)

        if self.config and is_first():
            check_model(ckpt_path, self.config, self.complete)
        result: dict[str, Any] = self._launch(command, job, learner, data, check)
        return result


def _check_part(part: object, cls: type, key: str) -> None:
    """Check what a script has given as a part of a run, and all that it was made with."""
    if not isinstance(part, cls):
        raise InputError(f"{key}: is of the class {type(part).__name__}; give a {cls.__name__}")
    check_arguments(part, key)


def _check_cumulative(learner: Learner, data: FederatedData) -> None:
    """Refuse clients that have old images for a method that would store them as the current task's."""
    if data.cumulative and learner.method.replay_batch:
        raise InputError(
            f"data.cumulative: clients keep old images, and {type(learner.method).__name__} would store them as the "
            "current task's; choose a method without a memory, such as FedAvg"
        )
