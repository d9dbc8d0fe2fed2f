"""FedProto (Tan et al., 2022) with a shared model: features are drawn to the classes' means over all clients."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Held, Method, Stats, Weights
from fedqcl.methods.replay import evaluating
from fedqcl.parts import Batch, Shard, Spec
from fedqcl.parts.losses import cross_entropy
from fedqcl.parts.moments import FeatureNet, feature_sums
from fedqcl.types import NonNegative


class Prototypes(nn.Module):
    """The server's mean feature of each class of the current task.

    Args:
        num_classes: ``K``.
        width: ``D``, the number of features.

    Attributes:
        value: ``[K, D]`` float32 buffer.
        known: ``[K]`` bool buffer, the classes that have one.
    """

    value: Tensor
    known: Tensor

    def __init__(self, num_classes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(num_classes, width))
        self.register_buffer("known", torch.zeros(num_classes, dtype=torch.bool))


class FedProto(Method):
    """Cross-entropy plus ``weight`` times the squared distance of features from the global prototypes.

    After the local steps a client sends its classes' mean features, and the server averages them by their samples.
    They count from the task's second round on. The model is averaged too, as in aimagelab/fed-mammoth; the original
    (yuetan031/FedProto) leaves each client its own, as ``trainer.personal: model`` does; to test these, give
    ``trainer.evaluation: clients`` too.

    Args:
        weight: ``lambda``. Fed-Mammoth has 0.1; the original, with ``samples``, 1.
        distance: from a prototype, always the mean over features. ``class_means``: of the mean feature of each class
            in the batch, summed over these classes (Fed-Mammoth); ``samples``: of each sample's feature, averaged over
            the batch (the original). A class without a prototype adds nothing.
        ce_scope: the classes that compete in the class-incremental scenario: all seen, or the current task's.
    """

    def __init__(
        self,
        weight: NonNegative = 0.1,
        distance: Literal["class_means", "samples"] = "class_means",
        ce_scope: Literal["seen", "current"] = "current",
    ) -> None:
        self.weight = weight
        self.distance = distance
        self.ce_scope = ce_scope

    def server_state(self, spec: Spec, net: nn.Module) -> Prototypes:
        """No prototypes yet."""
        return Prototypes(spec.num_classes, cast(FeatureNet, net).head.in_features)

    def clients_hold(self, server: nn.Module) -> Held:
        """The prototypes."""
        return {"round": server}

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """``mean cross-entropy + weight * distance``, ``[]``."""
        model = cast(FeatureNet, net)
        features = model.features(batch.x)
        columns = batch.competing(self.ce_scope)
        current = cross_entropy(model.head(features), batch.y, columns).mean()
        return current + self.weight * self._distance(features, batch.y, cast(Prototypes, server))

    def _distance(self, features: Tensor, y: Tensor, prototypes: Prototypes) -> Tensor:
        target, known = prototypes.value[y], prototypes.known[y]
        if self.distance == "samples":
            return torch.where(known, (features.float() - target).square().mean(1), 0.0).mean()
        same = (y[:, None] == y).double()  # autocast lets float64 be
        count = same.sum(1)
        class_mean = (same @ features.double()) / count[:, None]
        # A class of ``count`` samples comes up that often.
        return torch.where(known, (class_mean - target).square().mean(1) / count, 0.0).sum().float()

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Sums of the features by class, under the client's own model."""
        classes = range(len(cast(Prototypes, server).known))
        with evaluating(net):
            return feature_sums(cast(FeatureNet, net), shard, classes)

    def server_round(self, weights: Weights, average: Weights, stats: Stats, server: nn.Module) -> Weights:
        """Average the clients' prototypes, weighted by samples; a class that nobody has gets none."""
        prototypes = cast(Prototypes, server)
        count = stats["count"]
        prototypes.value.copy_(stats["sum"] / count.clamp_min(1)[:, None])
        prototypes.known.copy_(count > 0)
        return average

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        """Forget the prototypes: the next task has other classes."""
        cast(Prototypes, server).known.zero_()
