"""Which rank hosts which client."""

from __future__ import annotations

from collections.abc import Sequence


def deal_clients(loads: Sequence[int], num_ranks: int) -> list[list[int]]:
    """Deal clients to ranks so that the ranks finish at about the same time.

    The client with most to do goes first, each to the rank with the fewest clients, of these to the least loaded.
    So no rank hosts more than one client more than another, which matters where clients run side by side.

    Args:
        loads: what each client has to do in the whole run, such as its number of samples.
        num_ranks: how many ranks, 1 or more.

    Returns:
        Client ids of every rank, sorted.

    Example:
        >>> deal_clients([10, 40, 20, 30, 5], num_ranks=2)
        [[0, 1, 4], [2, 3]]
    """
    ranks: list[list[int]] = [[] for _ in range(num_ranks)]
    for client in sorted(range(len(loads)), key=lambda i: -loads[i]):
        min(ranks, key=lambda rank: (len(rank), sum(loads[i] for i in rank))).append(client)
    return [sorted(rank) for rank in ranks]
