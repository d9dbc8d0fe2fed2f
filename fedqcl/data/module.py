"""From an image source to tasks, clients and shards."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from fedqcl.data.augment import Augment
from fedqcl.data.partition import deal, describe, equalise
from fedqcl.data.pool import Pool
from fedqcl.data.sources import Images, Source
from fedqcl.data.sources.base import shortlist
from fedqcl.data.tasks import order_classes, split_classes
from fedqcl.errors import InputError
from fedqcl.parts import Spec
from fedqcl.rng import Purpose, generator
from fedqcl.types import Count, Fraction, Index, Positive


@dataclass(frozen=True)
class ClientShard:
    """One client's samples of one task (see :class:`fedqcl.parts.Shard`)."""

    client: int
    task: int
    index: np.ndarray
    pool: Pool
    seed: int
    last_round: bool = True
    stored: int | None = None

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.index)

    def memory_generator(self) -> np.random.Generator:
        """Keyed by seed, client and task."""
        return generator(self.seed, Purpose.MEMORY, client=self.client, task=self.task)

    def seed_of_steps(self, round: int) -> int:
        """For what a net draws in a round's local steps; keyed by seed, client, task and round."""
        keyed = generator(self.seed, Purpose.STEPS, client=self.client, task=self.task, round=round)
        return int(keyed.integers(2**63))

    def samples(self, index: Tensor, newest: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Gather images without augmentation; a negative index stands for any image."""
        return self.pool.gather(index.clamp_min(0), self.task if newest is None else newest)


@dataclass(eq=False)
class FederatedData(LightningDataModule):
    """A data set cut into tasks by class, and each task dealt out to the clients.

    Args:
        source: where the images come from.
        num_clients: ``N``.
        tasks: the number of tasks ``T``, as equal as can be; or the number of classes of each task.
        class_order: ``natural``, ``random`` (by the seed), or every label in the order in which tasks take them.
        alpha: Dirichlet concentration of a class over the clients, above 0: small is heterogeneous; ``iid`` for
            equal shares.
        min_samples: samples that every client must get of every task.
        equalise: make all shards of a task the same size, as the authors' code does: a client with more loses random
            samples, one with less gets random ones of the whole task, whoever else has them.
        cumulative: clients keep the images of earlier tasks and train on all of them, each under its own task's head:
            with FedAvg the joint training that no continual method is expected to beat.
        batch_size: ``B``, images of the current task in a local step.
        sampling: ``shuffled``: an epoch is a shuffle of the client's images; ``balanced``: as many draws with
            replacement, all classes equally likely, the last incomplete batch left out, as in the authors' code.
        scenario: ``task`` (incremental): an image's task is known and only its classes compete; ``class``
            (incremental): all classes seen so far compete.
        augment: how training images are augmented; none by default.
        validation: share of every class's training images held out from all clients. If above 0, a run reports on
            these and leaves the test set alone, for choosing settings honestly.
        seed: the run's seed.
    """

    source: Source
    num_clients: Count = 5
    tasks: Count | list[Count] = 5
    class_order: Literal["natural", "random"] | list[int] = "natural"
    alpha: Positive | Literal["iid"] = 10.0
    min_samples: Index = 0
    equalise: bool = False
    cumulative: bool = False
    batch_size: Count = 13
    sampling: Literal["shuffled", "balanced"] = "shuffled"
    scenario: Literal["task", "class"] = "task"
    augment: Augment | None = None
    validation: Fraction = 0.0
    seed: int = 0

    spec: Spec | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__init__()

    def prepare_data(self) -> None:
        """Download what is missing; for one process of a machine."""
        self.source.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Load the images and deal them out; does nothing the second time.

        Raises:
            InputError: images or settings that do not fit, or settings that have been changed since the first time.
        """
        if self.spec is not None:
            self._check_unchanged()
            return
        self._dealt_with = self._dealing()
        images = self.source.load()
        labels = order_classes(np.unique(images.train.y), self.class_order, self.seed)
        self.labels = labels.tolist()
        self.class_names = [images.names.get(int(c), str(c)) for c in labels]
        self.train, self.test = (_in_columns(part, labels) for part in (images.train, images.test))
        self.spec = Spec(
            channels=images.train.x.shape[3],
            size=(images.train.x.shape[1], images.train.x.shape[2]),
            classes=split_classes(len(labels), self.tasks),
            scenario=self.scenario,
        )
        self.held_out = self._hold_out()
        self._deal()

    def _dealing(self) -> dict[str, str]:
        """What tasks and shards depend on, by name, in words."""
        later = ("batch_size", "sampling", "augment")
        return {f.name: repr(getattr(self, f.name)) for f in fields(self) if f.init and f.name not in later}

    def _check_unchanged(self) -> None:
        for name, now in self._dealing().items():
            if now != self._dealt_with[name]:
                raise InputError(
                    f"data.{name}: changed from {self._dealt_with[name]} to {now} when the images had been dealt out; "
                    "make a new FederatedData"
                )

    def _hold_out(self) -> np.ndarray:
        """The validation images: a share of every class, ``[N]`` bool over the training images."""
        rng = generator(self.seed, Purpose.VALIDATION)
        held_out = np.zeros(len(self.train.y), bool)
        for c, name in enumerate(self.class_names if self.validation > 0 else []):
            members = rng.permutation(np.flatnonzero(self.train.y == c))
            count = round(self.validation * len(members))
            if not 0 < count < len(members):
                raise InputError(
                    f"data.validation: {self.validation} of the {len(members)} images of class {name} is {count}; "
                    "every class must have some held out and some left"
                )
            held_out[members[:count]] = True
        return held_out

    def _deal(self) -> None:
        """Make ``shards[task][client]``: indices of training images."""
        assert self.spec is not None
        tasks = range(self.spec.num_tasks)
        task_of = self.spec.task_of_column().numpy()[self.train.y]
        members = [np.flatnonzero((task_of == t) & ~self.held_out) for t in tasks]
        labels = [self.train.y[m] for m in members]
        positions = [self._positions(y, t, Purpose.PARTITION, self.min_samples) for t, y in enumerate(labels)]
        self.split = describe(labels, positions)
        self.shards = [[m[p] for p in task] for m, task in zip(members, positions, strict=True)]
        if self.cumulative:
            self.shards = [
                [np.concatenate([self.shards[k][i] for k in range(t + 1)]) for i in range(self.num_clients)]
                for t in tasks
            ]

    def _positions(self, y: np.ndarray, task: int, purpose: Purpose, min_samples: int = 0) -> list[np.ndarray]:
        """Deal one task's images out to the clients, given their classes."""
        rng = generator(self.seed, purpose, task=task)
        shards = deal(y, self.num_clients, self.alpha, rng, min_samples)
        return equalise(shards, len(y), rng) if self.equalise else shards

    @property
    def evaluated_on(self) -> Literal["validation", "test"]:
        """Which images a run's accuracies are measured on."""
        return "validation" if self.validation > 0 else "test"

    def cautions(self) -> list[str]:
        """What makes a run, or its accuracies, mean less than it seems to, a line each."""
        assert self.spec is not None
        part = self.evaluated_on
        counts = np.bincount(self._evaluated(part).y, minlength=self.spec.num_classes)
        untested = [name for name, count in zip(self.class_names, counts, strict=True) if not count]
        alone = [str(task) for task, classes in enumerate(self.spec.classes, start=1) if classes == 1]
        lines = [f"no {part} images of class {shortlist(untested)}: left out of accuracies"] if untested else []
        if alone and self.scenario == "task":
            lines.append(f"only one class in task {shortlist(alone)}: no image can be wrong where its task is known")
        size = int(np.median([len(shard) for task in self.shards for shard in task if len(shard)]))
        if self.batch_size > 2 * size:
            lines.append(
                f"data.batch_size: {self.batch_size} is more than twice the median shard's size, {size}: most of a "
                "batch is the same images again; lower it"
            )
        return lines

    def task_classes(self) -> list[list[str]]:
        """The class names of each task."""
        assert self.spec is not None
        ends = np.cumsum(self.spec.classes)[:-1]
        return [list(map(str, names)) for names in np.split(np.array(self.class_names), ends)]

    def train_pool(self, device: torch.device) -> Pool:
        """All training images on a device, padded for crops."""
        pool = self._pool(self.train, self.augment.crop if self.augment else 0, device)
        if self.augment and self.augment.frozen:
            pool.freeze(self.augment.draw((len(self.train.y),), generator(self.seed, Purpose.AUGMENT)).to(device))
        return pool

    def evaluation_pool(self, device: torch.device, part: Literal["validation", "test"]) -> Pool:
        """The held-out or the test images on a device."""
        return self._pool(self._evaluated(part), 0, device)

    def evaluation_shards(self, part: Literal["validation", "test"]) -> list[list[np.ndarray]]:
        """The held-out or the test images dealt out to the clients, in a split of its own.

        Returns:
            ``[task][client]``: positions in :meth:`evaluation_pool`.
        """
        assert self.spec is not None
        y = self._evaluated(part).y
        task_of = self.spec.task_of_column().numpy()[y]
        members = [np.flatnonzero(task_of == t) for t in range(self.spec.num_tasks)]
        return [[m[p] for p in self._positions(y[m], t, Purpose.EVALUATION)] for t, m in enumerate(members)]

    def _evaluated(self, part: Literal["validation", "test"]) -> Images:
        return self.test if part == "test" else Images(self.train.x[self.held_out], self.train.y[self.held_out])

    @cached_property
    def _statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the training images; counted once, as it takes a while on many."""
        return _channel_statistics(self.train.x)

    def _pool(self, images: Images, padding: int, device: torch.device) -> Pool:
        assert self.spec is not None
        return Pool(images.x, images.y, self.spec, *self._statistics, padding, device)


def _in_columns(images: Images, labels: np.ndarray) -> Images:
    """Replace label ids by output columns: the position in ``labels``."""
    order = np.argsort(labels)
    return Images(images.x, order[np.searchsorted(labels[order], images.y)].astype(np.int64))


def _channel_statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every channel, images in 0..1: ``[C]`` float64 each; a flat channel has std 1."""
    counts = np.stack([_histogram(x[..., c]) for c in range(x.shape[3])]).astype(np.float64)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(1)
    std = np.sqrt(np.maximum(counts @ values**2 / counts.sum(1) - mean**2, 0))
    return mean, np.where(std > 0, std, 1.0)


def _histogram(x: np.ndarray) -> np.ndarray:
    """How often each of the 256 values occurs; NumPy's own would first make 64-bit numbers of them."""
    return torch.bincount(torch.from_numpy(x).flatten(), minlength=256).numpy()
