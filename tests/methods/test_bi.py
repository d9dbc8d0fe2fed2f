from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedqcl.data.module import ClientShard, FederatedData
from fedqcl.methods import BI
from fedqcl.methods.bi import RankedMemory, bregman_information, scores
from fedqcl.models import SmallResNet
from fedqcl.parts import Spec
from tests.helpers.toy import (
    Linear,
    Toy,
    copied,
    odds_net,
    pixel_batch,
    same,
    toy_data,
    toy_fit,
    toy_learner,
)

SPEC = Spec(channels=1, size=(1, 1), classes=(2, 2))
CURRENT, REPLAYED = log(5 / 4) + log(5) + log(5), log(4 / 3) + log(4)


def shard_of(data: FederatedData, task: int, client: int = 0) -> ClientShard:
    return ClientShard(client, task, data.shards[task][client], data.train_pool(torch.device("cpu")), data.seed)


def small_net() -> SmallResNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SmallResNet(1, 6, width=4).train()


def everything(*size: int) -> Tensor:
    return torch.ones(*size, dtype=torch.bool)


def test_bregman_information_by_hand() -> None:
    """Odds of 3 : 1 and of 1 : 1; their geometric mean is sqrt(3) : 1."""
    z = torch.tensor([[[log(3), 0.0]], [[0.0, 0.0]]])
    expected = (log(4) + log(2)) / 2 - log(sqrt(3) + 1)
    assert bregman_information(z, everything(1, 2)).item() == pytest.approx(expected)
    assert expected > 0.03


def test_columns_that_do_not_compete_have_no_say() -> None:
    z = torch.randn(12, 4, 6, generator=torch.Generator().manual_seed(0))
    columns = everything(4, 6)
    columns[:, 2:5] = False
    torch.testing.assert_close(
        bregman_information(z, columns), bregman_information(z[..., [0, 1, 5]], everything(4, 3))
    )


def test_bregman_information_is_not_negative_and_zero_where_views_agree() -> None:
    z = 5 * torch.randn(12, 50, 6, generator=torch.Generator().manual_seed(0))
    assert (bregman_information(z, everything(50, 6)) > 0).all()
    alike = z[:1].expand(12, -1, -1)
    torch.testing.assert_close(bregman_information(alike, everything(50, 6)), torch.zeros(50, dtype=torch.float64))
    # A shift of all logits is no answer.
    shifted = alike + torch.arange(12.0)[:, None, None]
    shares = bregman_information(shifted, everything(50, 6))
    torch.testing.assert_close(shares, torch.zeros(50, dtype=torch.float64), rtol=0, atol=1e-5)


def stored(memory: RankedMemory) -> list[tuple[int, int]]:
    used = memory.index >= 0
    assert ((memory.label >= 0) == used).all()
    return list(zip(memory.index[used].tolist(), memory.label[used].tolist(), strict=True))


def test_memory_is_shared_by_classes_and_trimmed_from_the_end() -> None:
    memory = RankedMemory(7, num_classes=4)
    memory.store(torch.tensor([10, 20, 11, 12, 13, 14]), torch.tensor([0, 1, 0, 0, 0, 0]))
    assert stored(memory) == [(10, 0), (20, 1), (11, 0), (12, 0), (13, 0), (14, 0)]
    # Of class 1 there is but one; the other two share 6 places.
    memory.store(torch.tensor([30, 31, 32, 33]), torch.tensor([2, 2, 2, 2]))
    assert stored(memory) == [(10, 0), (20, 1), (11, 0), (12, 0), (30, 2), (31, 2), (32, 2)]
    memory.store(torch.tensor([40, 41, 42]), torch.tensor([3, 3, 3]))
    assert stored(memory) == [(10, 0), (20, 1), (11, 0), (30, 2), (31, 2), (40, 3), (41, 3)]
    assert len(memory.index) == 7


def test_memory_smaller_than_the_number_of_classes() -> None:
    memory = RankedMemory(2, num_classes=3)
    memory.store(torch.arange(6), torch.arange(6) % 3)
    assert stored(memory) == [(1, 1), (2, 2)]


def test_loss_by_hand() -> None:
    method = BI(memory=10, replay_batch=2)
    batch = pixel_batch(SPEC, current=[2, 3, 3], replayed=[[0, 1]], present=[1])
    loss = method.loss(odds_net(3, 1, 4, 1), batch, method.client_state(SPEC), nn.Module())
    assert loss.item() == pytest.approx((CURRENT + REPLAYED) / 5)
    stood_in = pixel_batch(SPEC, current=[2, 3, 3], replayed=[[2, 2]], present=[0])
    loss = method.loss(odds_net(3, 1, 4, 1), stood_in, method.client_state(SPEC), nn.Module())
    assert loss.item() == pytest.approx(CURRENT / 3)


def test_it_replays_from_all_past_tasks_together() -> None:
    state = BI(memory=6, replay_batch=2).client_state(SPEC)
    assert state.replay(0) == []
    assert [group.tolist() for group in state.replay(1)] == [[]]
    state.store(torch.tensor([7, 8]), torch.tensor([0, 1]))
    assert [group.tolist() for group in state.replay(2)] == [[7, 8]]


@pytest.mark.parametrize("scenario", ["task", "class"])
@pytest.mark.parametrize("keep", ["bottom", "top"])
def test_a_class_keeps_its_best_samples(keep: str, scenario: str) -> None:
    data, net = toy_data(num_clients=1, scenario=scenario), small_net()
    shard = shard_of(data, 1)
    state = BI(memory=6, keep=keep).client_state(data.spec)  # type: ignore[arg-type]
    BI(memory=6, keep=keep).client_task(net, shard, state, nn.Module())  # type: ignore[arg-type]
    value, y = scores(net, shard, torch.from_numpy(shard.index))
    kept = torch.isin(torch.from_numpy(shard.index), state.index)
    for c in (2, 3):
        inside, outside = value[kept & (y == c)], value[~kept & (y == c)]
        assert (len(inside), len(outside)) == (3, 9)
        assert inside.max() < outside.min() if keep == "bottom" else inside.min() > outside.max()


def test_samples_of_equal_score_are_kept_in_their_order() -> None:
    data, net = toy_data(num_clients=1), Linear(1, 6)
    for p in net.parameters():
        nn.init.zeros_(p)
    state = BI(memory=4).client_state(data.spec)
    BI(memory=4).client_task(net, shard_of(data, 0), state, nn.Module())
    index, y = data.shards[0][0], data.train.y[data.shards[0][0]]
    assert set(state.index.tolist()) == {*index[y == 0][:2].tolist(), *index[y == 1][:2].tolist()}


@pytest.mark.parametrize(("scenario", "compete"), [("task", {2, 3}), ("class", {0, 1, 2, 3})])
def test_scores_are_among_the_columns_of_the_scenario(scenario: str, compete: set[int]) -> None:
    data, net = toy_data(num_clients=1, scenario=scenario), small_net()
    shard = shard_of(data, 1)
    index = torch.from_numpy(shard.index)
    before, y = scores(net, shard, index)
    assert y.tolist() == data.train.y[shard.index].tolist()
    heard = set()
    for c in range(6):
        other = small_net()
        with torch.no_grad():
            other.head.weight[c] *= 3
        if not torch.equal(scores(other, shard, index)[0], before):
            heard.add(c)
    assert heard == compete


def test_scoring_leaves_the_net_as_it_is() -> None:
    data, net = toy_data(num_clients=1), small_net()
    before = copied(net)
    first, _ = scores(net, shard_of(data, 0), torch.from_numpy(data.shards[0][0]))
    assert same(before, copied(net))
    assert net.training
    assert torch.equal(scores(net.eval(), shard_of(data, 0), torch.from_numpy(data.shards[0][0]))[0], first)


def test_a_client_without_samples_keeps_what_it_has() -> None:
    data = toy_data(num_clients=1)
    method, net = BI(memory=4), small_net()
    state = method.client_state(data.spec)
    method.client_task(net, shard_of(data, 0), state, nn.Module())
    before = copied(state)
    data.shards[1][0] = np.array([], np.int64)
    assert method.client_task(net, shard_of(data, 1), state, nn.Module()) == {}
    assert same(before, copied(state))


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_a_run_fills_memories_by_class_from_the_clients_own_shards(scenario: str) -> None:
    data = toy_data(Toy(per_class=16), num_clients=2, alpha="iid", scenario=scenario)
    _, engine = toy_fit(toy_learner(BI(memory=13, replay_batch=2), net=SmallResNet), data, rounds=1)
    for client, state in engine.clients.items():
        assert torch.bincount(state.label).tolist() == [2, 2, 2, 2, 2, 3]
        own = {int(i) for task in range(3) for i in data.shards[task][client]}
        assert set(state.index.tolist()) <= own
        assert data.train.y[state.index.numpy()].tolist() == state.label.tolist()


def test_replay_makes_a_difference() -> None:
    runs = [toy_fit(toy_learner(BI(memory=M, replay_batch=2)), toy_data())[0] for M in (1, 12)]
    assert torch.equal(runs[0][1].weights["head.weight"], runs[1][1].weights["head.weight"])
    assert (runs[0][-1].weights["head.weight"] - runs[1][-1].weights["head.weight"]).abs().max() > 0.01
