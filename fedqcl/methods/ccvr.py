"""CCVR (Luo et al., 2021): classifier calibration with virtual representations, at the end of every task."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Method, Stats
from fedqcl.methods.replay import evaluating
from fedqcl.parts import Batch, Shard, Spec
from fedqcl.parts.losses import cross_entropy
from fedqcl.parts.moments import Covariance, FeatureNet, Gaussians, feature_sums
from fedqcl.types import Count, Fraction, Positive


class FeatureModel(nn.Module):
    """The server's Gaussian of each class's features, as they were when its task ended.

    Args:
        spec: the problem.
        gaussians: of all classes, none of them known yet.
    """

    def __init__(self, spec: Spec, gaussians: Gaussians) -> None:
        super().__init__()
        self.spec = spec
        self.gaussians = gaussians

    def columns(self, task: int) -> range:
        """The classes of a task."""
        start = sum(self.spec.classes[:task])
        return range(start, start + self.spec.classes[task])

    def competing(self, task: int) -> list[int]:
        """The classes to tell apart when a task ends, as far as known: its own or, class-incrementally, all seen."""
        own = self.columns(task)
        classes = own if self.spec.scenario == "task" else range(own.stop)
        return [c for c in classes if self.gaussians.known[c]]


class CCVR(Method):
    """FedAvg; when a task ends, the output layer is trained on features drawn from a Gaussian of each class.

    The Gaussians are of all clients' features together, under the global model in eval mode. In the task-incremental
    scenario the finished task's head is calibrated and the others stay; in the class-incremental one the whole layer,
    the earlier classes by the Gaussians of their time.

    Args:
        virtual_features: features drawn of each class.
        epochs: passes over the drawn features.
        lr: learning rate of the SGD that trains the layer.
        momentum: of that SGD.
        batch_size: features in a step of that SGD.
        covariance: what clients report: between all features, or each feature's own variance only.
        shrinkage: share of the mean variance that is added to each.
        ce_scope: the classes that compete in the class-incremental scenario while clients train: all seen, or the
            current task's.
    """

    def __init__(
        self,
        virtual_features: Count = 500,
        epochs: Count = 10,
        lr: Positive = 0.01,
        momentum: Fraction = 0.9,
        batch_size: Count = 256,
        covariance: Covariance = "full",
        shrinkage: Positive = 1e-4,
        ce_scope: Literal["seen", "current"] = "current",
    ) -> None:
        self.virtual_features = virtual_features
        self.epochs = epochs
        self.lr = lr
        self.momentum = momentum
        self.batch_size = batch_size
        self.covariance = covariance
        self.shrinkage = shrinkage
        self.ce_scope = ce_scope

    def server_state(self, spec: Spec, net: nn.Module) -> FeatureModel:
        """No class is known yet."""
        width = cast(FeatureNet, net).head.in_features
        return FeatureModel(spec, Gaussians(spec.num_classes, width, self.covariance))

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Mean cross-entropy of the current samples, ``[]``."""
        return cross_entropy(net(batch.x), batch.y, batch.competing(self.ce_scope)).mean()

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Sums of the features and of their products, by class of the finished task."""
        columns = cast(FeatureModel, server).columns(shard.task)
        with evaluating(net):
            return feature_sums(cast(FeatureNet, net), shard, columns, self.covariance)

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        """Make the finished task's Gaussians, draw features and calibrate the output layer."""
        state = cast(FeatureModel, server)
        state.gaussians.fit(state.columns(task), stats, self.shrinkage)
        classes = state.competing(task)
        if classes:
            device = state.gaussians.mean.device
            generator = torch.Generator(device).manual_seed(int(rng.integers(2**63)))
            x = torch.cat([state.gaussians.draw(c, self.virtual_features, generator) for c in classes])
            self._calibrate(cast(FeatureNet, net).head, classes, x, generator)

    def _calibrate(self, head: nn.Linear, classes: list[int], x: Tensor, generator: torch.Generator) -> None:
        """Train the rows of ``classes``, and no other, on features in the order of these classes."""
        y = torch.arange(len(classes), device=x.device).repeat_interleave(self.virtual_features)
        rows = [entry[classes].detach().clone().requires_grad_() for entry in (head.weight, head.bias)]
        optimizer = torch.optim.SGD(rows, lr=self.lr, momentum=self.momentum)
        with torch.enable_grad():
            for _ in range(self.epochs):
                order = torch.randperm(len(x), generator=generator, device=x.device)
                for part in order.split(self.batch_size):
                    optimizer.zero_grad()
                    F.cross_entropy(F.linear(x[part], *rows), y[part]).backward()
                    optimizer.step()
        with torch.no_grad():
            head.weight[classes], head.bias[classes] = rows
