"""Online EWC (Kirkpatrick et al., 2017; Schwarz et al., 2018; aimagelab/fed-mammoth ``ewc.py``) averaged by FedAvg."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedqcl.methods.base import ClientState, Held, Method, Stats
from fedqcl.methods.replay import evaluating
from fedqcl.parts import Batch, Shard, Spec
from fedqcl.parts.losses import cross_entropy
from fedqcl.parts.weights import WeightBuffers, squared_distance, trained_weights
from fedqcl.types import NonNegative, Positive, Share

# Samples whose gradients are held at once; each is as large as the net.
CHUNK = 32


class Fisher(WeightBuffers):
    """How much each trained weight matters, ``F``; not at all before the first task ends.

    Args:
        net: has the weights.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        for buffer in self.buffers():
            buffer.zero_()

    def take_in(self, stats: Stats, gamma: float, clip: float | None) -> None:
        """``F <- gamma * F + sum / samples``, no more than ``clip``."""
        for name, value in self.by_name().items():
            mean = stats[f"fisher.{name}"] / stats["samples"].clamp_min(1)
            value.mul_(gamma).add_(mean).clamp_(max=clip or torch.inf)


class OwnFisher(ClientState):
    """A client that measures for itself how much each weight matters."""

    fisher: Fisher

    def start(self, client: int, net: nn.Module) -> None:
        """Nothing matters yet."""
        self.fisher = Fisher(net)


class Anchor(nn.Module):
    """What the past tasks ask for.

    Args:
        net: the initial global model.
        spec: the problem.

    Attributes:
        weights: ``theta*``, the global model at the end of the last task.
        fisher: ``F``, of all clients' samples.
        own: row ``c``: the columns of class ``c``'s own task. ``[K, K]`` bool.
    """

    own: Tensor

    def __init__(self, net: nn.Module, spec: Spec) -> None:
        super().__init__()
        self.weights = WeightBuffers(net)
        self.fisher = Fisher(net)
        self.register_buffer("own", spec.head())


class EWC(Method):
    """From the second task on a step minimises ``cross-entropy + strength * sum_j F_j (theta_j - theta*_j)^2``.

    When a task ends, every client sums ``p(y|x) * (d log p(y|x) / d theta)^2`` over its samples of the task, with the
    true label ``y``, on the global model in eval mode; the server sets ``F <- gamma * F + sum / samples``. (Fed-mammoth
    and mammoth measure the same in train mode, on one image at a time.) As there, the penalty has no factor 1/2.

    Args:
        strength: ``lambda``. Plain SGD diverges where ``2 * strength * F_j * lr`` exceeds 2.
        gamma: what an older task's Fisher information keeps when a task ends.
        clip: bound of every ``F_j``; None for none.
        fisher: ``server``: one ``F``, of all clients' samples, which the server adds up and sends; ``local``: every
            client keeps an ``F`` of its own samples, and nothing is sent, as the paper has it.
        ce_scope: in the class-incremental scenario, whether all classes ``seen`` compete, in the cross-entropy and in
            ``p(y|x)``, or those of the ``current`` task alone.
    """

    def __init__(
        self,
        strength: NonNegative = 1.0,
        gamma: Share = 0.9,
        clip: Positive | None = None,
        fisher: Literal["server", "local"] = "server",
        ce_scope: Literal["seen", "current"] = "current",
    ) -> None:
        self.strength = strength
        self.gamma = gamma
        self.clip = clip
        self.fisher = fisher
        self.ce_scope = ce_scope

    def client_state(self, spec: Spec) -> ClientState:
        """The client's own ``F``, if it is to have one."""
        return OwnFisher() if self.fisher == "local" else ClientState()

    def server_state(self, spec: Spec, net: nn.Module) -> Anchor:
        """No weight matters yet."""
        return Anchor(net, spec)

    def clients_hold(self, server: nn.Module) -> Held:
        """The model of the last task, and ``F`` unless it is their own."""
        anchor = cast(Anchor, server)
        if self.fisher == "local":
            return {"never": anchor.weights}
        return {"never": anchor.weights, "task": anchor.fisher}

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Mean cross-entropy of the current samples and the penalty, ``[]``."""
        loss = cross_entropy(net(batch.x), batch.y, batch.competing(self.ce_scope)).mean()
        if batch.task == 0:
            return loss
        anchor = cast(Anchor, server)
        fisher = client.fisher if isinstance(client, OwnFisher) else anchor.fisher
        return loss + self.strength * squared_distance(net, anchor.weights, fisher)

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Report what the client's samples add to ``F``, or keep it."""
        stats = self._fisher_sums(net, shard, cast(Anchor, server))
        if not isinstance(client, OwnFisher):
            return stats
        client.fisher.take_in(stats, self.gamma, self.clip)
        return {}

    def _fisher_sums(self, net: nn.Module, shard: Shard, anchor: Anchor) -> Stats:
        """The client's sum for ``F`` by parameter name, in float32 whatever the run's precision, and ``samples``."""
        own = anchor.own

        def log_likelihood(weights: dict[str, Tensor], x: Tensor, y: Tensor, columns: Tensor) -> Tensor:
            logits = functional_call(net, weights, (x[None],))
            return -cross_entropy(logits, y[None], columns[None]).squeeze(0)

        each = vmap(grad_and_value(log_likelihood), in_dims=(None, 0, 0, 0))
        weights = trained_weights(net)
        fisher = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        index = torch.from_numpy(shard.index).to(own.device)
        with evaluating(net), torch.autocast(own.device.type, enabled=False):
            for part in index.split(CHUNK) if len(shard) else ():
                x, y, columns = shard.samples(part)
                gradients, log_p = each(weights, x, y, own[y] if self.ce_scope == "current" else columns)
                for name, gradient in gradients.items():
                    fisher[name] += torch.tensordot(log_p.exp(), gradient.square(), dims=1)
        return {"samples": own.new_full((), len(shard), dtype=torch.float32)} | {
            f"fisher.{name}": value for name, value in fisher.items()
        }

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        """Add the task to ``F``, and keep the global model as ``theta*``."""
        anchor = cast(Anchor, server)
        if self.fisher == "server":
            anchor.fisher.take_in(stats, self.gamma, self.clip)
        anchor.weights.load(trained_weights(net))
