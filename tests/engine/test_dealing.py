from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedqcl.engine.dealing import deal_clients

Loads = list[list[int]]


def lasts(loads: Loads, ranks: list[list[int]]) -> int:
    """How long a round of each task lasts, all together."""
    return sum(max(sum(task[client] for client in rank) for rank in ranks) for task in loads)


def test_by_hand() -> None:
    # 40 -> rank 0; 30 -> rank 1; 20 -> rank 1, as 50 is less than 60; 10 -> rank 0; 5 -> rank 0, as both have two
    # clients and 50 samples, and the first wins. No swap makes the larger of 55 and 50 smaller.
    assert deal_clients([[10, 40, 20, 30, 5]], num_ranks=2) == [[0, 1, 4], [2, 3]]


def test_more_ranks_than_clients() -> None:
    assert deal_clients([[3, 3]], num_ranks=4) == [[0], [1], [], []]


def test_ranks_finish_every_task_together_and_not_just_the_run() -> None:
    loads = [[90, 90, 1, 1], [1, 1, 90, 90]]  # all four have 91 to do in the run
    assert lasts(loads, deal_clients(loads, num_ranks=2)) == 2 * 91


def test_close_to_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        loads = rng.integers(0, 100, (3, 6)).tolist()
        halves = [(list(half), [i for i in range(6) if i not in half]) for half in itertools.combinations(range(6), 3)]
        best = min(lasts(loads, list(half)) for half in halves)
        assert lasts(loads, deal_clients(loads, num_ranks=2)) <= 1.1 * best


@given(
    st.integers(0, 20).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 1000), min_size=n, max_size=n), min_size=1, max_size=3)
    ),
    st.integers(1, 8),
)
def test_every_client_once_and_ranks_alike(loads: Loads, num_ranks: int) -> None:
    ranks = deal_clients(loads, num_ranks)
    assert sorted(client for rank in ranks for client in rank) == list(range(len(loads[0])))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1
