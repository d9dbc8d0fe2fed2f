from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedqcl.engine import averaging
from fedqcl.engine.averaging import WeightedAverage, gather, sum_stats
from fedqcl.engine.server import Server, federated_entries
from fedqcl.errors import InputError
from fedqcl.models import SmallResNet
from tests.helpers.toy import copied

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
    average = WeightedAverage(start)
    for net, weight in clients:
        average.add(net, weight)
    return average.reduce()


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


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_model_that_diverged_is_refused(value: float) -> None:
    start, net = nets(2)
    federated_entries(net)["head.bias"][1] = value
    with pytest.raises(InputError, match=r"^model: training diverged"):
        averaged(start, [(start, 3), (net, 3)])


def test_statistics_that_diverged_are_refused() -> None:
    start, net = nets(2)
    next(v for n, v in federated_entries(net).items() if n.endswith("running_var")).fill_(float("inf"))
    with pytest.raises(InputError, match=r"^model: training diverged"):
        averaged(start, [(net, 3)])


def test_sum_of_stats() -> None:
    stats = [
        {"a": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)},
        {"a": torch.tensor([10.0, 20.0]), "n": torch.tensor(4)},
    ]
    total = sum_stats(stats, CPU)
    assert total["a"].tolist() == [11, 22]
    assert total["n"].item() == 7
    assert total["n"].dtype == torch.int64
    assert sum_stats([], CPU) == {}
    assert sum_stats([{}, {}], CPU) == {}


def test_a_rank_without_clients_takes_part_in_the_sums_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank must join every all-reduce, or the others would wait for it forever."""
    reduced: list[tuple[list[int], torch.dtype]] = []
    layout = {"a": (torch.Size([2]), torch.float32), "n": (torch.Size([]), torch.int64)}
    monkeypatch.setattr(averaging, "gather", lambda items: [*items, layout])
    monkeypatch.setattr(averaging, "all_reduce", lambda value: reduced.append((list(value.shape), value.dtype)))
    total = sum_stats([], CPU)
    assert {name: value.tolist() for name, value in total.items()} == {"a": [0, 0], "n": 0}
    assert reduced == [([2], torch.float32), ([], torch.int64)]


def test_a_lone_rank_gathers_its_own() -> None:
    assert gather([1, "a"]) == [1, "a"]
