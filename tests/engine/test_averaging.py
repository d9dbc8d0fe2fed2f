from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedqcl.engine import averaging
from fedqcl.engine.averaging import WeightedAverage, gather, sum_stats, take_from_first
from fedqcl.engine.server import Server, federated_entries
from fedqcl.methods import Stats
from fedqcl.models import SmallResNet
from tests.helpers.toy import copied, same

CPU = torch.device("cpu")


def nets(count: int, scale: float = 1.0) -> list[nn.Module]:
    """Nets with BatchNorm, all different, buffers included; the first is the global model they started from."""
    made = []
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        net = SmallResNet(1, 4, width=2)
        for value in federated_entries(net).values():
            value.copy_(scale * torch.randn(value.shape, generator=generator))
        made.append(net)
    return made


def averaged(start: nn.Module, clients: Sequence[tuple[nn.Module, int]]) -> dict[str, Tensor] | None:
    average = WeightedAverage(start, num_clients=8)
    for client, (net, weight) in enumerate(clients):
        average.add(client, net, weight)
    values, diverged = average.reduce()
    assert diverged == []
    return values


def averaged_over_ranks(
    start: nn.Module, ranks: Sequence[Sequence[tuple[nn.Module, int]]], monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Tensor] | None]:
    """What each of several ranks gets: their all-reduce is played by adding up what each would send."""
    sent: list[Tensor] = []
    with monkeypatch.context() as patch:
        patch.setattr(averaging, "all_reduce", lambda value: sent.append(value.clone()))
        for clients in ranks:
            averaged(start, clients)
        patch.setattr(averaging, "all_reduce", lambda value: value.copy_(torch.stack(sent).sum(0)))
        return [averaged(start, clients) for clients in ranks]


def test_weighted_mean_of_every_entry_in_float64() -> None:
    start, *clients = nets(4)
    weights = [3, 50, 7]
    average = averaged(start, list(zip(clients, weights, strict=True)))
    assert average is not None
    assert average.keys() == federated_entries(start).keys()
    for name, value in average.items():
        terms = [w * federated_entries(net)[name].double() for net, w in zip(clients, weights, strict=True)]
        torch.testing.assert_close(value, sum(terms) / 60, rtol=0, atol=1e-7)


@pytest.mark.parametrize("spread", [1.0, 1e-1, 1e-2])
def test_the_sum_is_exact_so_order_and_grouping_do_not_matter(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where clients differ by so many orders of magnitude that float64 would round some of their sums."""
    start, *others = nets(8)
    for power, net in enumerate(others):
        for value in federated_entries(net).values():
            value.mul_(spread**power)
    clients = list(zip(others, [1, 400, 13, 2000, 77, 9, 31], strict=True))
    expected = averaged(start, clients)
    assert expected is not None
    groupings = [
        [clients[::-1]],
        [clients[:1], clients[1:]],
        [clients[0::3], clients[1::3], clients[2::3]],
        [clients[0::5], clients[1::5], clients[2::5], clients[3::5], clients[4::5]],
        [[], clients[2:], [], clients[:2]],
    ]
    for ranks in groupings:
        for average in averaged_over_ranks(start, ranks, monkeypatch):
            assert average is not None
            assert all(torch.equal(average[name], expected[name]) for name in expected)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=6))
def test_clients_that_did_not_move_leave_the_global_model_as_it_is(weights: list[int]) -> None:
    """Bit for bit, BatchNorm's statistics included."""
    (net,) = nets(1, scale=0.05)
    before = copied(net)
    average = averaged(net, [(net, w) for w in weights])
    assert average is not None
    Server(net, nn.Module()).load(average)
    after = copied(net)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_averaging_equal_clients_gives_their_model() -> None:
    start, net = nets(2)
    average = averaged(start, [(net, 5), (net, 11)])
    assert average is not None
    for name, value in federated_entries(net).items():
        torch.testing.assert_close(average[name], value.double(), rtol=0, atol=1e-7)


def test_no_clients_no_average() -> None:
    assert averaged(nets(1)[0], []) is None


NOT_FINITE = [float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("entry", ["head.bias", "running_var"])
def test_a_model_that_diverged_has_no_weight(value: float, entry: str) -> None:
    start, *good, bad = nets(4)
    next(v for n, v in federated_entries(bad).items() if n.endswith(entry))[1] = value
    average = WeightedAverage(start, 5)
    for client, net in ((0, good[0]), (3, bad), (4, good[1])):
        average.add(client, net, client + 2)
    values, diverged = average.reduce()
    assert diverged == [3]
    expected = averaged(start, [(good[0], 2), (good[1], 6)])
    assert values is not None
    assert expected is not None
    assert all(torch.equal(values[name], expected[name]) for name in expected)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_what_a_client_sends_beside_its_model_must_be_finite_too(value: float) -> None:
    start, net, other = nets(3)
    average = WeightedAverage(start, 2)
    average.add(0, net, 3, {"n": torch.tensor(3), "sums": torch.tensor([1.0, value])})
    average.add(1, other, 3, {"n": torch.tensor(3), "sums": torch.tensor([1.0, 2.0])})
    values, diverged = average.reduce()
    assert diverged == [0]
    assert values is not None
    for name, entry in federated_entries(other).items():
        torch.testing.assert_close(values[name], entry.double(), rtol=0, atol=1e-7)


def test_if_all_diverge_there_is_no_average() -> None:
    start, net = nets(2)
    federated_entries(net)["head.bias"][0] = float("nan")
    average = WeightedAverage(start, 2)
    average.add(1, net, 3)
    assert average.reduce() == (None, [1])


def test_every_rank_learns_who_diverged_on_another() -> None:
    start, good, bad = nets(3)
    federated_entries(bad)["head.bias"][0] = float("inf")

    def on_rank(average: WeightedAverage) -> None:
        average.add(2, bad, 3) if ranks.local.rank else average.add(1, good, 3)

    ranks = Ranks(2)
    (first, second), (also, diverged) = ranks.reduce(lambda: WeightedAverage(start, 3), on_rank)
    assert first is not None
    assert also is not None
    assert second == diverged == [2]
    assert same(first, also)


def test_sum_of_stats() -> None:
    stats = [
        {"a": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)},
        {"a": torch.tensor([10.0, 20.0]), "n": torch.tensor(4)},
    ]
    total = sum_stats(stats, CPU)
    assert total["a"].tolist() == [11, 22]
    assert total["n"].item() == 7
    assert all(value.dtype == torch.float64 for value in total.values())
    assert sum_stats([], CPU) == {}
    assert sum_stats([{}, {}], CPU) == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [({"a": torch.ones(3)}, {"a": torch.ones(1)}), ({}, {"a": torch.ones(1)}), ({"a": torch.ones(1)}, {})],
)
def test_clients_that_report_different_things(one: Stats, other: Stats) -> None:
    with pytest.raises(TypeError, match=r"^a hook of the method must report the same for every client, and reports \{"):
        sum_stats([one, other], CPU)
    with pytest.raises(TypeError, match="must report the same for every client"):
        Ranks(2).sum_stats([[one], [other]])


def test_a_rank_without_clients_takes_part_in_the_sums_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank must join every all-reduce, or the others would wait for it forever."""
    reduced: list[tuple[list[int], torch.dtype, str]] = []

    def all_reduce(value: Tensor, operation: str = "sum") -> None:
        reduced.append((list(value.shape), value.dtype, operation))
        if operation == "max":
            value.fill_(4.0)  # another rank's

    layout = {"a": torch.Size([2]), "n": torch.Size([])}
    monkeypatch.setattr(averaging, "gather", lambda items: [*items, layout])
    monkeypatch.setattr(averaging, "all_reduce", all_reduce)
    total = sum_stats([], CPU)
    assert {name: value.tolist() for name, value in total.items()} == {"a": [0, 0], "n": 0}
    once = [
        ([], torch.float64, "max"),
        ([2], torch.float64, "sum"),
        ([], torch.float64, "max"),
        ([], torch.float64, "sum"),
    ]
    assert reduced == once


class Ranks:
    """Plays ranks by threads that meet in the collectives."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.slots: list[Any] = [None] * count
        self.barrier = threading.Barrier(count, timeout=10)
        self.local = threading.local()

    def exchange(self, item: Any) -> list[Any]:
        self.slots[self.local.rank] = item
        self.barrier.wait()
        items = list(self.slots)
        self.barrier.wait()
        return items

    def gather(self, items: list[Any]) -> list[Any]:
        return [item for part in self.exchange(items) for item in part]

    def all_reduce(self, value: Tensor, operation: str = "sum") -> None:
        values = torch.stack(self.exchange(value.clone()))
        value.copy_(values.amax(0) if operation == "max" else values.sum(0))

    def reduce(
        self, make: Callable[[], WeightedAverage], add: Callable[[WeightedAverage], None]
    ) -> list[tuple[dict[str, Tensor] | None, list[int]]]:
        """What each rank gets of an average to which it has added its own."""

        def on_rank(rank: int) -> tuple[dict[str, Tensor] | None, list[int]]:
            self.local.rank = rank
            average = make()
            add(average)
            return average.reduce()

        with patch.object(averaging, "all_reduce", self.all_reduce), ThreadPoolExecutor(self.count) as threads:
            return list(threads.map(on_rank, range(self.count)))

    def sum_stats(self, ranks: Sequence[Sequence[Stats]]) -> list[dict[str, Tensor]]:
        """What each rank gets."""

        def on_rank(rank: int) -> dict[str, Tensor]:
            self.local.rank = rank
            return sum_stats(ranks[rank], CPU)

        with (
            patch.object(averaging, "gather", self.gather),
            patch.object(averaging, "all_reduce", self.all_reduce),
            ThreadPoolExecutor(self.count) as threads,
        ):
            return list(threads.map(on_rank, range(self.count)))


@st.composite
def reported(draw: st.DrawFn) -> tuple[list[dict[str, Tensor]], list[list[int]]]:
    """What some clients report, of any sizes beside each other, and a grouping of them in any order on some ranks."""
    size = st.builds(lambda m, e: m * 10.0**e, st.floats(1, 10), st.integers(-20, 20))
    number = st.builds(lambda x, sign: x * sign, size, st.sampled_from([1, -1]))
    count = draw(st.integers(1, 8))
    stats = [
        {
            "loss": torch.tensor(draw(number), dtype=torch.float64),
            "sums": torch.tensor([draw(number), draw(number)]),
            "samples": torch.tensor(draw(st.integers(1, 3000))),
        }
        for _ in range(count)
    ]
    ranks: list[list[int]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for client in draw(st.permutations(range(count))):
        ranks[draw(st.integers(0, len(ranks) - 1))].append(client)
    return stats, ranks


@given(reported())
def test_order_and_grouping_do_not_matter_to_sums(case: tuple[list[dict[str, Tensor]], list[list[int]]]) -> None:
    stats, ranks = case
    expected = sum_stats(stats, CPU)
    for total in Ranks(len(ranks)).sum_stats([[stats[i] for i in rank] for rank in ranks]):
        assert same(total, expected)
    for name, value in expected.items():
        terms = torch.stack([s[name] for s in stats]).double()
        exact = torch.tensor([math.fsum(column) for column in terms.reshape(len(stats), -1).T.tolist()])
        torch.testing.assert_close(
            value.reshape(-1), exact.double(), rtol=1e-7, atol=len(stats) * float(terms.abs().max()) * 2**-40
        )
    assert int(expected["samples"]) == sum(int(s["samples"]) for s in stats)


def test_sums_of_nothing_but_zeros() -> None:
    total = sum_stats([{"a": torch.zeros(2), "n": torch.tensor(0)}] * 2, CPU)
    assert {name: value.tolist() for name, value in total.items()} == {"a": [0, 0], "n": 0}


def test_every_rank_takes_over_what_the_first_has(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = nets(2)
    for name, value in first.named_buffers():
        if name.endswith("num_batches_tracked"):
            value += 7
    sent: list[Tensor] = []

    def broadcast(flat: Tensor, source: int) -> None:
        assert source == 0
        flat.copy_(sent[0]) if sent else sent.append(flat.clone())

    monkeypatch.setattr(averaging.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(averaging.dist, "broadcast", broadcast)
    before = copied(first)
    assert not same(before, copied(second))
    take_from_first(first)
    take_from_first(second)
    assert same(copied(first), before)
    assert same(copied(second), before)


def test_a_lone_rank_keeps_what_it_has() -> None:
    (net,) = nets(1)
    before = copied(net)
    take_from_first(net)
    take_from_first(nn.Module())
    assert same(copied(net), before)


def test_a_lone_rank_gathers_its_own() -> None:
    assert gather([1, "a"]) == [1, "a"]
