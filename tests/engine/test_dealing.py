from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedqcl.engine.dealing import SLACK, deal_clients


def slowest(loads: list[int], ranks: list[list[int]]) -> int:
    """What the rank with most to do has to do."""
    return max(sum(loads[client] for client in rank) for rank in ranks)


def test_by_hand() -> None:
    # 40 -> rank 0; 30 -> rank 1; 20 -> rank 1, as 30 is less than 40; 10 -> rank 0, which has fewer clients; 5 -> rank
    # 0, as both have two clients and 50 to do, and the first wins. No swap makes 55 smaller.
    assert deal_clients([10, 40, 20, 30, 5], num_ranks=2) == [[0, 1, 4], [2, 3]]


def test_a_swap_helps() -> None:
    # One after another: 9, 6 and 5 on rank 0, 8, 7 and 1 on rank 1. Then 9 and 7 change places, and both have 18.
    assert slowest([9, 8, 7, 6, 5, 1], deal_clients([9, 8, 7, 6, 5, 1], num_ranks=2)) == 18


def test_more_ranks_than_clients() -> None:
    assert deal_clients([3, 3], num_ranks=4) == [[0], [1], [], []]


def test_close_to_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        loads = rng.integers(0, 100, 6).tolist()
        halves = [[list(half), [i for i in range(6) if i not in half]] for half in itertools.combinations(range(6), 3)]
        best = min(slowest(loads, half) for half in halves)
        assert slowest(loads, deal_clients(loads, num_ranks=2)) <= max(1.05 * best, (1 + SLACK) * sum(loads) / 2)


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(1, 8))
def test_every_client_once_and_ranks_alike(loads: list[int], num_ranks: int) -> None:
    ranks = deal_clients(loads, num_ranks)
    assert sorted(client for rank in ranks for client in rank) == list(range(len(loads)))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1
