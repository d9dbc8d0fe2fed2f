"""Small problems: made images that a small net can tell apart, and what it takes to run the loop on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fedqcl import loop
from fedqcl.data import FederatedData
from fedqcl.data.sources.base import ImageSet, Source
from fedqcl.engine import Engine
from fedqcl.engine.replica import Report
from fedqcl.learner import Learner
from fedqcl.methods import Method
from fedqcl.models import Net
from fedqcl.parts import Batch, Spec
from fedqcl.schedule import Schedule


class Toy(Source):
    """Every class is a random pattern, every image its class's pattern with noise; the same in every run.

    Args:
        labels: the label ids.
        per_class: training images of each class; half as many, and at least one, for testing.
        size: image height and width.
        channels: image channels.
        noise: its deviation, in grey levels; much of it makes tasks hard and easy to forget.
    """

    def __init__(
        self,
        labels: Sequence[int] = range(6),
        per_class: int = 12,
        size: int = 4,
        channels: int = 1,
        noise: float = 40,
    ) -> None:
        self.labels = labels
        self.per_class = per_class
        self.shape = (size, size, channels)
        self.noise = noise

    def load(self) -> ImageSet:
        rng = np.random.default_rng(1)
        patterns = rng.integers(0, 256, (len(self.labels), *self.shape))

        def draw(per_class: int) -> tuple[np.ndarray, np.ndarray]:
            x = np.repeat(patterns, per_class, axis=0)
            x = x + rng.normal(0, self.noise, x.shape)
            return np.clip(np.rint(x), 0, 255).astype(np.uint8), np.repeat(np.array(self.labels), per_class)

        return ImageSet.of(*draw(self.per_class), *draw(max(1, self.per_class // 2)))


class Given(Source):
    """Arrays as they are, the same for training and testing."""

    def __init__(self, x: np.ndarray, y: Sequence[int]) -> None:
        self.x = x
        self.y = np.array(y)

    def load(self) -> ImageSet:
        return ImageSet.of(self.x, self.y, self.x, self.y)


class Linear(Net):
    """4x4 images through a linear map that all tasks share, so that one can spoil another's, to linear heads."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(16 * in_channels, 5)), 5, num_classes)


class Normed(Net):
    """As :class:`Linear`, behind a BatchNorm."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        layers = nn.BatchNorm2d(in_channels), nn.Flatten(), nn.Linear(16 * in_channels, 5)
        super().__init__(nn.Sequential(*layers), 5, num_classes)


def toy_data(source: Source | None = None, **options: Any) -> FederatedData:
    """A data set, set up: three tasks of two classes on three clients unless said otherwise."""
    options = {"num_clients": 3, "tasks": 3, "alpha": 1.0, "batch_size": 5, **options}
    data = FederatedData(source or Toy(), **options)
    data.setup()
    return data


def toy_learner(
    method: Method, net: Callable[[int, int], Net] = Linear, lr: float = 0.0625, momentum: float = 0.0
) -> Learner:
    """A learner with SGD."""
    return Learner(method, net, lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=momentum))


def toy_engine(
    learner: Learner,
    data: FederatedData,
    epochs: int = 1,
    accelerator: str = "cpu",
    precision: Literal["32-true", "bf16-mixed"] = "32-true",
    **options: Any,
) -> Engine:
    """An engine of one rank in this process."""
    fabric = Fabric(accelerator=accelerator, devices=1, precision=precision)
    return Engine(fabric, learner, data, epochs, **options)


@dataclass
class Moment:
    """The state of a run at the end of a round: the global model and every client's buffers, copied."""

    task: int
    round: int
    weights: dict[str, Tensor]
    clients: dict[int, dict[str, Tensor]]
    reports: list[Report]


@dataclass
class Recorder:
    """Stands in for the tracker."""

    moments: list[Moment] = field(default_factory=list)

    def start_round(self) -> None:
        """There is no clock."""

    def end_round(self, task: int, round: int, engine: Engine, reports: Sequence[Report]) -> None:
        clients = {i: copied(state) for i, state in engine.clients.items()}
        self.moments.append(Moment(task, round, copied(engine.server.net), clients, list(reports)))

    def end_task(self, task: int, engine: Engine) -> None:
        """The rounds say it all."""


def copied(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters and buffers, copied."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two sets of tensors are equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def toy_fit(
    learner: Learner, data: FederatedData, rounds: int = 2, epochs: int = 1, participation: float = 1.0, **options: Any
) -> tuple[list[Moment], Engine]:
    """Run the loop in this process; options are the engine's.

    Returns:
        A moment for every round, and the engine as the loop left it.
    """
    assert data.spec is not None
    engine, recorder = toy_engine(learner, data, epochs, **options), Recorder()
    schedule = Schedule(data.spec.num_tasks, rounds, data.num_clients, participation, data.seed)
    loop.fit(learner.method, engine, schedule, recorder)  # type: ignore[arg-type]
    return recorder.moments, engine


def odds_net(*odds: float) -> nn.Module:
    """A net on one pixel. At pixel value 1 the classes' odds are the given ones, so that losses are logs of fractions.

    At value 2 they are the squares, and so on.
    """
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, len(odds), bias=False))
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor(odds).log()[:, None])
    return net


def pixel_batch(
    spec: Spec, current: Sequence[int], replayed: Sequence[Sequence[int]] = (), present: Sequence[float] = ()
) -> Batch:
    """A batch of one-pixel images, all of value 1, with the given classes."""
    y = torch.tensor([*current, *(c for group in replayed for c in group)])
    return Batch(
        x=torch.ones(len(y), 1, 1, 1),
        y=y,
        columns=spec.head()[y],
        own=spec.head()[y],
        index=torch.arange(len(y)),
        task=len(replayed),
        size=len(current),
        present=torch.tensor([*present]),
    )
