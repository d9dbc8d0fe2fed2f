from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedqcl.engine.dealing import deal_clients


def test_by_hand() -> None:
    # 40 -> rank 0; 30 -> rank 1; 20 -> rank 1, with 30 the less loaded of one client each; 10 -> rank 0; 5 -> rank 0,
    # as both have two clients and 50 samples, and the first wins.
    assert deal_clients([10, 40, 20, 30, 5], num_ranks=2) == [[0, 1, 4], [2, 3]]


def test_more_ranks_than_clients() -> None:
    assert deal_clients([3, 3], num_ranks=4) == [[0], [1], [], []]


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_every_client_once_and_ranks_alike(loads: list[int], num_ranks: int) -> None:
    ranks = deal_clients(loads, num_ranks)
    assert sorted(client for rank in ranks for client in rank) == list(range(len(loads)))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1
