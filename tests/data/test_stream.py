from __future__ import annotations

from math import ceil
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedqcl.data.augment import Augment
from fedqcl.data.stream import Sampler, Stream, cycle
from tests.helpers.toy import toy_data

NONE = torch.tensor([], dtype=torch.int64)


def draw(
    shard: np.ndarray,
    B: int = 4,
    R: int = 1,
    b: int = 2,
    groups: tuple[torch.Tensor, ...] = (),
    augment: Augment | None = None,
    key: tuple[int, int, int] = (0, 0, 0),
    seed: int = 0,
) -> Stream:
    return Sampler(seed, B, b, R, augment).draw(*key, shard, list(groups))


@given(n=st.integers(1, 40), B=st.integers(1, 15), R=st.integers(1, 4), seed=st.integers(0, 9))
def test_every_sample_comes_R_times_and_a_tail_fills_the_last_batch(n: int, B: int, R: int, seed: int) -> None:
    shard = 100 + np.arange(n)
    stream = draw(shard, B, R, seed=seed)
    assert len(stream) == ceil(R * n / B)
    assert stream.index.shape == (len(stream), B)
    flat = stream.index.flatten()
    for epoch in flat[: R * n].reshape(R, n):
        assert sorted(epoch.tolist()) == shard.tolist()
    tail = flat[R * n :].tolist()
    assert len(tail) < B
    assert set(tail) <= set(shard.tolist())
    if n >= B:
        assert len(set(tail)) == len(tail)


def test_a_shard_of_one_image() -> None:
    stream = draw(np.array([7]), B=4, R=3)
    assert stream.index.tolist() == [[7, 7, 7, 7]]


def test_epochs_are_shuffled_afresh() -> None:
    first, second = draw(np.arange(20), B=20, R=2).index.tolist()
    assert first != second
    assert first != sorted(first)


def test_replay_comes_from_each_group_evenly() -> None:
    groups = torch.tensor([50, 51, 52]), torch.tensor([60])
    stream = draw(np.arange(12), B=4, b=2, groups=groups)
    assert stream.index.shape == (3, 4 + 2 + 2)
    assert sorted(stream.index[:, :4].flatten().tolist()) == list(range(12))
    assert sorted(stream.index[:, 4:6].flatten().tolist()) == [50, 50, 51, 51, 52, 52]
    assert stream.index[:, 6:].unique().tolist() == [60]
    assert stream.present.tolist() == [1, 1]
    assert stream.size == 4


def test_an_empty_group_gets_stand_ins_from_the_shard() -> None:
    stream = draw(np.arange(12), B=4, b=2, groups=(NONE, torch.tensor([60])))
    assert set(stream.index[:, 4:6].flatten().tolist()) <= set(range(12))
    assert stream.present.tolist() == [0, 1]


def test_parts_are_the_sizes_of_the_current_batch_and_the_groups() -> None:
    assert draw(np.arange(12), B=4, b=2).parts == (4,)
    assert draw(np.arange(12), B=4, b=2, groups=(NONE, torch.tensor([60]), NONE)).parts == (4, 2, 2, 2)


KEYS = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]


def test_a_draw_depends_on_its_key_alone() -> None:
    sampler = Sampler(0, 4, 2, 1, Augment(crop=2, flip=True))
    shard, groups = np.arange(16), [torch.arange(30, 40)]
    alone = [draw(shard, groups=tuple(groups), augment=sampler.augment, key=key) for key in KEYS]
    backwards = [sampler.draw(*key, shard, groups) for key in reversed(KEYS)][::-1]
    np.random.default_rng(0).random()
    torch.rand(3)
    for a, b in zip(alone, backwards, strict=True):
        assert torch.equal(a.index, b.index)
        assert a.views is not None
        assert b.views is not None
        assert torch.equal(a.views.top, b.views.top)
        assert torch.equal(a.views.flip, b.views.flip)
    for parts in ([s.index[:, :4] for s in alone], [s.index[:, 4:] for s in alone], [s.views.top for s in alone]):
        assert len({tuple(p.flatten().tolist()) for p in parts}) == len(KEYS)
    assert not torch.equal(draw(shard, seed=1).index, draw(shard, seed=0).index)


def test_what_is_replayed_does_not_change_the_current_batches() -> None:
    shard = np.arange(16)
    alone = draw(shard)
    beside = draw(shard, groups=(torch.arange(30, 40), NONE))
    assert torch.equal(alone.index, beside.index[:, :4])


def test_every_image_of_a_stream_has_a_view_of_its_own() -> None:
    stream = draw(np.arange(16), groups=(torch.arange(30, 40),), augment=Augment(crop=3, jitter=0.4))
    assert stream.views is not None
    assert stream.views.top.shape == stream.index.shape == (4, 6)
    assert stream.views.jitter is not None
    assert stream.views.jitter.shape == (4, 6, 3)


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_batch(scenario: Literal["task", "class"]) -> None:
    data = toy_data(augment=Augment(crop=1), scenario=scenario)
    pool = data.train_pool(torch.device("cpu"))
    shard = data.shards[1][0]
    stream = draw(shard, groups=(torch.from_numpy(data.shards[0][0]),), augment=data.augment, key=(0, 1, 0))
    batch = stream.to(torch.device("cpu")).batch(pool, 1)
    assert stream.views is not None
    assert torch.equal(batch.x, pool.normalise(pool.look(stream.index[1], stream.views[1])))
    assert torch.equal(batch.index, stream.index[1])
    assert torch.equal(batch.y, pool.y[stream.index[1]])
    own = [[c // 2 == int(y) // 2 for c in range(6)] for y in batch.y]
    assert batch.own.tolist() == own
    # In the second of three tasks the classes of the third are not known yet.
    assert batch.columns.tolist() == (own if scenario == "task" else [[True] * 4 + [False] * 2] * 6)
    assert (batch.task, batch.size) == (1, 4)
    assert batch.present.tolist() == [1]
    assert {int(c) // 2 for c in batch.y[:4]} == {1}
    assert {int(c) // 2 for c in batch.y[4:]} == {0}


@pytest.mark.parametrize(("count", "passes"), [(3, [3]), (5, [5]), (12, [5, 5, 2])])
def test_cycle(count: int, passes: list[int]) -> None:
    drawn = cycle(np.arange(5), count, np.random.default_rng(0))
    assert len(drawn) == count
    for part, size in zip(np.split(drawn, np.cumsum(passes)[:-1]), passes, strict=True):
        assert len(set(part.tolist())) == size


def test_balanced_batches_have_all_classes_alike() -> None:
    labels = np.repeat([0, 1, 2], [4, 60, 16])  # of which the shard has the last two, 60 to 10
    shard = np.arange(4, 74)
    sampler = Sampler(0, 8, 2, 30, None, labels)
    stream = sampler.draw(0, 0, 0, shard, [])
    assert stream.index.shape == (30 * (70 // 8), 8)  # an epoch's last six draws are left out
    drawn = stream.index.flatten().numpy()
    assert set(drawn) <= set(shard)
    assert (labels[drawn] == 2).mean() == pytest.approx(0.5, abs=0.04)  # 1920 draws, deviation 0.011
    assert len(set(drawn[:70])) < 60  # with replacement
    assert len(sampler.draw(0, 0, 0, shard[:3], []).index) == 1
    assert not torch.equal(stream.index, sampler.draw(0, 0, 1, shard, []).index)


def test_frozen_images_need_no_views() -> None:
    assert draw(np.arange(16), augment=Augment(crop=3, flip=True, frozen=True)).views is None
