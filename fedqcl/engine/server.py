"""The server: the global model and what the method keeps beside it. Every rank holds the same copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedqcl.engine.rules import Personal


def federated_entries(net: nn.Module) -> dict[str, Tensor]:
    """What the server averages, by name: the parameters and BatchNorm's running statistics."""
    entries = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    return {name: value.detach() for name, value in entries.items() if value.is_floating_point()}


def personal_entries(net: nn.Module, personal: Personal) -> dict[str, Tensor]:
    """The entries of a net that clients keep to themselves, by name.

    Args:
        net: the net.
        personal: ``statistics``: BatchNorm's running statistics; ``model``: everything.
    """
    if personal == "nothing":
        return {}
    entries = federated_entries(net)
    parameters = dict(net.named_parameters())
    kept: dict[str, list[str]] = {
        "statistics": [name for name in entries if name not in parameters],
        "model": list(entries),
    }
    return {name: entries[name] for name in kept[personal]}


@dataclass
class Server:
    """The global model ``net`` and the method's own ``state``, a module of buffers."""

    net: nn.Module
    state: nn.Module

    def weights(self) -> dict[str, Tensor]:
        """The global model's averaged entries, by name: views, not copies."""
        return federated_entries(self.net)

    @torch.no_grad()
    def load(self, weights: dict[str, Tensor]) -> None:
        """Take over new weights.

        Raises:
            TypeError: they are not those of the net.
        """
        mine = self.weights()
        if not isinstance(weights, Mapping) or weights.keys() != mine.keys():
            raise TypeError(
                "server_round must return all entries of the model by name, such as the average it is given"
            )
        copy_entries(mine, weights)


def num_values(entries: Mapping[str, Tensor]) -> int:
    """How many numbers there are in all entries."""
    return sum(value.numel() for value in entries.values())


def num_bytes(values: Iterable[Tensor]) -> int:
    """Bytes that tensors take."""
    return sum(value.numel() * value.element_size() for value in values)


@torch.no_grad()
def copy_entries(target: dict[str, Tensor], source: dict[str, Tensor]) -> None:
    """Copy values entry by entry, in few kernels."""
    if target:
        torch._foreach_copy_(list(target.values()), [source[name] for name in target], non_blocking=True)
