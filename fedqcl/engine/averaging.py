"""The server's aggregation: weighted sums over clients, joined by one all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fedqcl.engine.pulse import meeting
from fedqcl.engine.server import federated_entries
from fedqcl.methods import Stats

# Terms are rounded to multiples of 2^-28. Sums of such numbers are exact in float64 up to 2^25, so the result does not
# depend on their order: not on which rank holds which client. The average is off by at most 2^-29, far below float32's
# resolution of any weight that matters, and what no client changed stays as it was.
GRID = 2.0**28


class WeightedAverage:
    """``sum_i p_i w_i`` with ``p_i = n_i / sum_j n_j`` over the clients of all ranks, as ``w + sum_i p_i (w_i - w)``.

    A client that brings a number that is not finite gets no weight. Which ones do is found out on the device, and read
    together with the sum of the weights.

    Args:
        net: the global model ``w`` that the clients started from.
        num_clients: ``N``.
    """

    def __init__(self, net: nn.Module, num_clients: int) -> None:
        self._shapes = {name: value.shape for name, value in federated_entries(net).items()}
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        self._start = _flat(net)
        # The sums of the entries, of the weights, and for each client 1 if it diverged: one vector, one all-reduce.
        self._sum = self._start.new_zeros(len(self._start) + 1 + num_clients)
        self._entries, self._weight, self._diverged = self._sum.split([len(self._start), 1, num_clients])

    def add(self, client: int, net: nn.Module, weight: int, stats: Stats | None = None) -> None:
        """Add a client's model.

        Args:
            client: client id.
            net: its model ``w_i``.
            weight: ``n_i``, its number of samples.
            stats: what else it sends, which must be finite too.
        """
        change = _flat(net).sub_(self._start)
        finite = torch.isfinite(change).all()
        for value in (stats or {}).values():
            finite = finite & torch.isfinite(value).all()
        self._entries += torch.where(finite, change.mul_(weight * GRID).round_().div_(GRID), 0.0)
        self._weight += weight * finite
        self._diverged[client] += ~finite

    def reduce(self) -> tuple[dict[str, Tensor] | None, list[int]]:
        """Add up the ranks' sums in one all-reduce and divide.

        Returns:
            The average of each entry, float64, or None if no client has weight; and the ids of those that diverged,
            sorted, the same on every rank.
        """
        all_reduce(self._sum)
        weight, *diverged = self._sum[len(self._entries) :].tolist()
        clients = [client for client, count in enumerate(diverged) if count]
        if weight == 0:
            return None, clients
        values = (self._start + self._entries / weight).split(self._sizes)
        return {name: v.view(shape) for (name, shape), v in zip(self._shapes.items(), values, strict=True)}, clients


def _flat(net: nn.Module) -> Tensor:
    """A net's averaged entries end to end, ``[P]`` float64."""
    return torch.cat([value.reshape(-1) for value in federated_entries(net).values()]).double()


def sum_stats(stats: Sequence[Stats], device: torch.device) -> dict[str, Tensor]:
    """Add up what clients report, over this rank's clients and then over ranks.

    As for weights, terms are rounded to a grid, here 2^-40 of the largest of all: the sum does not depend on order.

    Args:
        stats: one mapping a client; all with the same names and shapes, on any device. A rank may have none.
        device: where the sums are made.

    Returns:
        The sum of each entry, float64.

    Raises:
        TypeError: clients report different names or shapes.
    """
    shapes = _common_shapes(stats)
    return {name: _exact_sum([client[name] for client in stats], shape, device) for name, shape in shapes.items()}


def _common_shapes(stats: Sequence[Stats]) -> dict[str, torch.Size]:
    """The shapes of what every client of every rank reports, by name."""
    mine = _distinct([{name: value.shape for name, value in client.items()} for client in stats])
    first, *others = _distinct(gather(mine)) or [{}]
    if others:
        told = " and ".join(str({name: list(shape) for name, shape in kind.items()}) for kind in (first, others[0]))
        raise TypeError(f"a hook of the method must report the same for every client, and reports {told}")
    return first


def _distinct(kinds: list[dict[str, torch.Size]]) -> list[dict[str, torch.Size]]:
    found: list[dict[str, torch.Size]] = []
    for kind in kinds:
        if kind not in found:
            found.append(kind)
    return found


def _exact_sum(values: Sequence[Tensor], shape: torch.Size, device: torch.device) -> Tensor:
    largest = torch.zeros((), dtype=torch.float64, device=device)
    for value in values if shape.numel() else ():
        largest = torch.maximum(largest, value.to(device).abs().max())
    all_reduce(largest, "max")
    grid = torch.ldexp(torch.ones_like(largest), 40 - torch.frexp(largest.clamp_min(1e-200)).exponent)
    total = torch.zeros(shape, dtype=torch.float64, device=device)
    for value in values:
        total += (value.to(device).double() * grid).round_() / grid
    all_reduce(total)
    return total


@torch.no_grad()
def take_from_first(module: nn.Module) -> None:
    """Give a module on every rank the values it has on the first; nothing changes where they are the same."""
    values = [*module.parameters(), *module.buffers()]
    if not values or not dist.is_initialized():
        return
    flat = torch.cat([value.reshape(-1).double() for value in values])
    with meeting():
        dist.broadcast(flat, 0)
    for value, new in zip(values, flat.split([value.numel() for value in values]), strict=True):
        value.copy_(new.view(value.shape))


def all_reduce(value: Tensor, operation: Literal["sum", "max"] = "sum") -> None:
    """Combine over ranks, in place."""
    if dist.is_initialized():
        with meeting():
            dist.all_reduce(value, dist.ReduceOp.SUM if operation == "sum" else dist.ReduceOp.MAX)


def gather(items: list[Any]) -> list[Any]:
    """Join the ranks' lists of small objects, in rank order; every rank gets the whole."""
    if not dist.is_initialized():
        return items
    parts: list[list[Any]] = [[] for _ in range(dist.get_world_size())]
    with meeting():
        dist.all_gather_object(parts, items)
    return [item for part in parts for item in part]
