"""The trainer: ranks, run folder and results around the loop."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from lightning.fabric import Fabric
from torch import nn

from fedqcl import loop
from fedqcl.data import FederatedData
from fedqcl.engine import Engine, FederatedStrategy
from fedqcl.errors import InputError
from fedqcl.evaluate import Evaluator
from fedqcl.learner import Learner
from fedqcl.parts import Spec
from fedqcl.run.console import Console
from fedqcl.run.folder import RunFolder
from fedqcl.run.log import RunLog
from fedqcl.run.records import RunInfo
from fedqcl.run.wandb import WandbLogger
from fedqcl.schedule import Schedule
from fedqcl.tracker import Tracker
from fedqcl.types import Count, Share
from fedqcl.version import __version__

Job = Callable[[Fabric, Learner, FederatedData], Any]


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
        threads: threads of each rank on the CPU; part of the result, as sums are split among them.
        root: folder of all runs.
        name: the run's name; one made of data set, method and seed by default.
        logger: a tracking service to report to besides the run folder.
        console: how much to print.
        seed: decides everything random.
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
        threads: Count = 1,
        root: str = "runs",
        name: str | None = None,
        logger: WandbLogger | None = None,
        console: Literal["quiet", "normal", "verbose"] = "normal",
        seed: int = 0,
        start_method: Literal["popen", "fork", "spawn"] = "popen",
    ) -> None:
        self.accelerator = accelerator
        self.devices = devices
        self.num_nodes = num_nodes
        self.precision = precision
        self.rounds = rounds
        self.epochs = epochs
        self.participation = participation
        self.threads = threads
        self.root = root
        self.name = name
        self.logger = logger
        self.console = console
        self.seed = seed
        self.start_method = start_method
        self.config: dict[str, Any] = {}
        self.config_text = ""

    def fit(self, model: Learner, datamodule: FederatedData) -> dict[str, Any]:
        """Train on all tasks and write a run folder.

        Returns:
            What ``summary.json`` holds.
        """
        result: dict[str, Any] = self._launch(self._fit, model, datamodule)
        return result

    def validate(self, model: Learner, datamodule: FederatedData, ckpt_path: str) -> dict[str, Any]:
        """Evaluate a run's model on the images the run was measured on.

        Args:
            ckpt_path: a run folder, or the ``model.ckpt`` in it.

        Returns:
            ``average_accuracy`` and the ``accuracy`` of each task, fractions.
        """
        return self._evaluate(model, datamodule, ckpt_path, datamodule.evaluated_on)

    def test(self, model: Learner, datamodule: FederatedData, ckpt_path: str) -> dict[str, Any]:
        """Evaluate a run's model on the test images.

        Args:
            ckpt_path: a run folder, or the ``model.ckpt`` in it.

        Returns:
            ``average_accuracy`` and the ``accuracy`` of each task, fractions.
        """
        return self._evaluate(model, datamodule, ckpt_path, "test")

    def _launch(self, job: Job, learner: Learner, data: FederatedData) -> Any:
        """Start the ranks and run a job on each; the result is the first rank's."""
        cuda = self.accelerator == "cuda" or (self.accelerator == "auto" and torch.cuda.is_available())
        devices = self._num_devices(cuda, data.num_clients)
        strategy = FederatedStrategy(start_method=self.start_method, timeout=timedelta(minutes=30))
        fabric = Fabric(
            accelerator="cuda" if cuda else "cpu",
            devices=devices,
            num_nodes=self.num_nodes,
            precision=self.precision,
            strategy=strategy if devices * self.num_nodes > 1 else "auto",
        )
        if int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))) == 0:
            # Before other ranks exist: only one may download, and a mistake in the data is reported once.
            data.prepare_data()
            data.setup()
        return fabric.launch(partial(self._on_rank, job=job, learner=learner, data=data))

    def _on_rank(self, fabric: Fabric, job: Job, learner: Learner, data: FederatedData) -> Any:
        if fabric.device.type == "cpu":
            torch.set_num_threads(self.threads)
        data.setup()
        return job(fabric, learner, data)

    def _num_devices(self, cuda: bool, num_clients: int) -> int:
        available = torch.cuda.device_count() if cuda else os.cpu_count() or 1
        if self.devices == "auto":
            return max(1, min(available, num_clients))
        if cuda and self.devices > available:
            raise InputError(f"trainer.devices: {self.devices} GPUs were asked for and {available} are visible")
        return self.devices

    def _fit(self, fabric: Fabric, learner: Learner, data: FederatedData) -> dict[str, Any]:
        assert data.spec is not None
        started = time.perf_counter()
        engine = Engine(fabric, learner, data, self.epochs)
        schedule = Schedule(data.spec.num_tasks, self.rounds, data.num_clients, self.participation, self.seed)
        log = self._open_log(fabric, learner, data)
        pool = data.evaluation_pool(fabric.device, data.evaluated_on)
        tracker = Tracker(
            Evaluator(fabric, pool, data.spec),
            log,
            schedule.num_tasks,
            schedule.rounds,
            engine.average().bytes_per_client,
        )
        loop.fit(learner.method, engine, schedule, tracker)
        summary = {
            **tracker.summary(),
            "evaluated_on": data.evaluated_on,
            "wall_seconds": time.perf_counter() - started,
            "device": _describe(fabric),
            "seed": self.seed,
            "versions": _versions(),
        }
        if log.folder is not None:
            save_model(log.folder.checkpoint, engine.server.net, data.spec)
            log.finish(summary)
        fabric.barrier()
        return summary

    def _open_log(self, fabric: Fabric, learner: Learner, data: FederatedData) -> RunLog:
        """Make the run folder and say what is run; the other ranks stay silent."""
        if not fabric.is_global_zero:
            return RunLog.silent()
        method = type(learner.method).__name__
        folder = RunFolder.create(self.root, self.name, f"{data.source.name}-{method}-seed{self.seed}")
        folder.config.write_text(self.config_text, encoding="utf-8")
        log = RunLog(folder, Console(self.console), [self.logger] if self.logger else [])
        info = RunInfo(
            name=folder.path.name,
            dataset=data.source.name,
            method=method,
            seed=self.seed,
            num_clients=data.num_clients,
            tasks=data.task_classes(),
            rounds=self.rounds,
            devices=_describe(fabric),
            config=self.config,
            split=data.split,
            versions=_versions(),
        )
        log.start(info)
        return log

    def _evaluate(
        self, learner: Learner, data: FederatedData, ckpt_path: str, part: Literal["validation", "test"]
    ) -> dict[str, Any]:
        def job(fabric: Fabric, learner: Learner, data: FederatedData) -> dict[str, Any]:
            assert data.spec is not None
            net = learner.make_net(data.spec, self.seed)
            load_model(ckpt_path, net, data.spec)
            evaluator = Evaluator(fabric, data.evaluation_pool(fabric.device, part), data.spec)
            correct, total = evaluator.count(net.to(fabric.device).eval(), data.spec.num_tasks)
            accuracy = correct / total
            figures = {"average_accuracy": accuracy.nanmean().item(), "accuracy": accuracy.tolist()}
            if fabric.is_global_zero:
                Console(self.console).evaluation(figures, part)
            return figures

        result: dict[str, Any] = self._launch(job, learner, data)
        return result


def save_model(path: Path, net: nn.Module, spec: Spec) -> None:
    """Write a trained global model: weights and the problem they are for, loadable without running code."""
    weights = {name: value.cpu() for name, value in net.state_dict().items()}
    torch.save({"net": weights, "spec": asdict(spec)}, path)


def load_model(path: str, net: nn.Module, spec: Spec) -> None:
    """Load a trained global model into a net.

    Args:
        path: a run folder, or the ``model.ckpt`` in it.
        net: takes the weights.
        spec: the problem the net was made for.

    Raises:
        InputError: no such file, not a model of ours, or one for another problem or net.
    """
    file = Path(path, "model.ckpt") if Path(path).is_dir() else Path(path)
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
        if saved["spec"] != asdict(spec):
            raise InputError(f"--ckpt_path: {file} was trained on {saved['spec']}, and the data are {asdict(spec)}")
        net.load_state_dict(saved["net"])
    except FileNotFoundError:
        raise InputError(f"--ckpt_path: {file} does not exist; a finished run's folder holds model.ckpt") from None
    except (RuntimeError, KeyError, TypeError, EOFError, UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--ckpt_path: {file} cannot be loaded into {type(net).__name__}: {reason}") from None


def _describe(fabric: Fabric) -> str:
    """What a run runs on, in words."""
    count = fabric.world_size
    if fabric.device.type == "cuda":
        return f"{count} x {torch.cuda.get_device_name(fabric.device)}"
    return f"{count} CPU rank{'s' if count > 1 else ''} of {torch.get_num_threads()} thread(s)"


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "fedqcl": __version__,
        **{name: version(name) for name in ("torch", "lightning", "numpy")},
    }
