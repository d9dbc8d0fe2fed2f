"""Replay of samples chosen by their Bregman information (online-FCL, 2025; MLO-lab/online-FCL), in rounds."""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Method, Stats
from fedqcl.methods.replay import evaluating, joint_loss
from fedqcl.parts import Batch, Shard, Spec
from fedqcl.parts.views import views
from fedqcl.types import Count

# Images scored at once.
IMAGES = 500


class RankedMemory(ClientState):
    """At most ``M`` samples, shared equally by the classes seen, the best of each class first.

    Args:
        M: places in all.
        num_classes: ``K``.

    Attributes:
        index: ``[M]`` int64 buffer; -1 marks an empty place.
        label: ``[M]`` int64 buffer, class columns.
    """

    index: Tensor
    label: Tensor

    def __init__(self, M: int, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.register_buffer("index", torch.full((M,), -1, dtype=torch.int64))
        self.register_buffer("label", torch.full((M,), -1, dtype=torch.int64))

    def replay(self, task: int) -> list[Tensor]:
        """One group: everything stored, once there is a past task."""
        return [self.index[self.index >= 0]] if task > 0 else []

    def store(self, index: Tensor, label: Tensor) -> None:
        """Take in samples of new classes, trimming the older classes from their ends to make room.

        The places go round: the best of every class, the second best, and so on, from the newest class to the oldest.

        Args:
            index: ``[n]`` int64, the best first.
            label: class columns, ``[n]`` int64.
        """
        old = self.index >= 0
        index, label = torch.cat([self.index[old], index]), torch.cat([self.label[old], label])
        rank = F.one_hot(label, self.num_classes).cumsum(0).gather(1, label[:, None]).squeeze(1)
        turn = rank * self.num_classes - label
        kept = turn.argsort()[: len(self.index)].sort().values
        for buffer, values in ((self.index, index[kept]), (self.label, label[kept])):
            buffer.fill_(-1)
            buffer[: len(values)] = values


class BI(Method):
    """ER whose memory is balanced by class and holds the samples on whose views the model agrees most.

    The original takes in samples as they stream by, scored by a local model; here, as in all methods, a client keeps
    the data of its task, and the global model scores them when the task ends.

    Args:
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples in a step.
        keep: ``bottom`` stores the samples of the smallest Bregman information, as the original does by default;
            ``top`` those of the largest, the uncertain ones.
    """

    def __init__(
        self, memory: Count = 500, replay_batch: Count = 13, keep: Literal["bottom", "top"] = "bottom"
    ) -> None:
        self.memory = memory
        self.replay_batch = replay_batch
        self.keep = keep

    def client_state(self, spec: Spec) -> RankedMemory:
        """An empty memory."""
        return RankedMemory(self.memory, spec.num_classes)

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Mean cross-entropy of the current and the replayed samples together, ``[]``."""
        return joint_loss(net, batch)

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Score the finished task's samples and store the best of each class."""
        if len(shard):
            index = torch.from_numpy(shard.index).to(next(net.parameters()).device)
            score, label = scores(net, shard, index)
            best = score.argsort(descending=self.keep == "top", stable=True)
            cast(RankedMemory, client).store(index[best], label[best])
        return {}


def scores(net: nn.Module, shard: Shard, index: Tensor) -> tuple[Tensor, Tensor]:
    """Bregman information of samples under a net in eval mode, ``[n]`` float64, and their class columns, ``[n]``."""
    found, labels = [], []
    with torch.no_grad(), evaluating(net), torch.autocast(index.device.type, enabled=False):
        for part in index.split(IMAGES):
            x, y, columns = shard.samples(part)
            logits = torch.stack([net(view) for view in views(x)])
            found.append(bregman_information(logits, columns))
            labels.append(y)
    return torch.cat(found), torch.cat(labels)


def bregman_information(logits: Tensor, columns: Tensor) -> Tensor:
    """How much the answers to an image's views differ: ``mean_p LSE(z_p) - LSE(mean_p z_p)``, at least 0.

    Args:
        logits: ``z``, ``[P, n, K]``.
        columns: the columns that compete for each image, ``[n, K]`` bool.

    Returns:
        ``[n]`` float64.

    Example:
        >>> agree, differ = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> bregman_information(torch.stack([agree, differ], dim=1), torch.ones(2, 2, dtype=torch.bool))
        tensor([0.0000, 0.4338], dtype=torch.float64)
    """
    z = logits.double().masked_fill(~columns, float("-inf"))
    return z.logsumexp(-1).mean(0) - z.mean(0).logsumexp(-1)
