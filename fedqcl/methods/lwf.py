"""Learning without forgetting (Li and Hoiem, 2016; aimagelab/fed-mammoth ``lwf.py``) averaged by FedAvg."""

from __future__ import annotations

import copy
from itertools import accumulate, pairwise
from typing import Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Held, Method, Stats
from fedqcl.parts import Batch, Spec
from fedqcl.parts.losses import cross_entropy
from fedqcl.types import NonNegative, Positive


class Teacher(nn.Module):
    """The global model as it was at the end of the last task, frozen and in eval mode.

    Args:
        net: the initial global model, to be copied.
        spec: the problem.
    """

    def __init__(self, net: nn.Module, spec: Spec) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).eval().requires_grad_(False)
        self.spec = spec


class LwF(Method):
    """From the second task on a step minimises ``cross-entropy + alpha * distillation``.

    The distillation is the mean over the current images of ``- sum_c q_c log p_c``, where ``q`` and ``p`` are the
    softmax of the teacher's and the client's logits over a temperature. Task-incremental: the sum of one such term for
    the head of each past task; class-incremental: one term over the columns of all past classes.

    Args:
        alpha: weight of the distillation.
        temperature: divides the logits; above 1 it brings out what the teacher holds for unlikely.
        kd_scope: what is distilled. ``old``: the past classes' columns; ``current``: the current task's, which the
            teacher has never trained (fed-mammoth; little better than no distillation).
        ce_scope: in the class-incremental scenario, whether all classes ``seen`` compete in the cross-entropy or those
            of the ``current`` task alone.
    """

    def __init__(
        self,
        alpha: NonNegative = 0.5,
        temperature: Positive = 2.0,
        kd_scope: Literal["old", "current"] = "old",
        ce_scope: Literal["seen", "current"] = "current",
    ) -> None:
        self.alpha = alpha
        self.temperature = temperature
        self.kd_scope = kd_scope
        self.ce_scope = ce_scope

    def server_state(self, spec: Spec, net: nn.Module) -> Teacher:
        """A teacher that has yet to learn."""
        return Teacher(net, spec)

    def clients_hold(self, server: nn.Module) -> Held:
        """The teacher, the model that the task began with."""
        return {"never": server}

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Mean cross-entropy of the current samples and the distillation, ``[]``."""
        logits = net(batch.x)
        loss = cross_entropy(logits, batch.y, batch.competing(self.ce_scope)).mean()
        if batch.task == 0:
            return loss
        teacher = cast(Teacher, server)
        with torch.no_grad():
            target = teacher.net(batch.x)
        return loss + self.alpha * sum(
            F.cross_entropy(logits[:, head] / self.temperature, (target[:, head] / self.temperature).softmax(1))
            for head in self._heads(teacher.spec, batch.task)
        )

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        """The global model is the next task's teacher."""
        cast(Teacher, server).net.load_state_dict(net.state_dict())

    def _heads(self, spec: Spec, task: int) -> list[slice]:
        """The columns over which each softmax is taken while ``task`` is learned."""
        ends = [0, *accumulate(spec.classes)]
        if self.kd_scope == "current":
            return [slice(ends[task], ends[task + 1])]
        if spec.scenario == "class":
            return [slice(0, ends[task])]
        return [slice(start, end) for start, end in pairwise(ends[: task + 1])]
