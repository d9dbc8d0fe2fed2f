from __future__ import annotations

import time
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedqcl.data.partition import deal, describe, equalise, heterogeneity
from fedqcl.errors import InputError

alphas = st.one_of(st.just("iid"), st.floats(-6, 5).map(lambda e: 10.0**e), st.sampled_from([1e-6, 1e5, 1e300]))


def balanced(num_classes: int, per_class: int) -> np.ndarray:
    return np.repeat(np.arange(num_classes), per_class)


@given(
    y=st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array),
    num_clients=st.integers(1, 12),
    alpha=alphas,
    seed=st.integers(0, 2**32),
)
def test_every_sample_goes_to_exactly_one_client(
    y: np.ndarray, num_clients: int, alpha: float | Literal["iid"], seed: int
) -> None:
    shards = deal(y, num_clients, alpha, np.random.default_rng(seed))
    assert len(shards) == num_clients
    assert sorted(np.concatenate(shards).tolist()) == list(range(len(y)))
    assert all(s.dtype == np.int64 and (np.diff(s) > 0).all() for s in shards)
    again = deal(y, num_clients, alpha, np.random.default_rng(seed))
    assert all((a == b).all() for a, b in zip(shards, again, strict=True))


def test_there_must_be_an_image_for_every_client() -> None:
    shards = [np.array([0]), np.array([1]), np.array([], np.int64)]
    with pytest.raises(InputError, match=r"^data\.equalise: 3 clients cannot get equal parts of 2 images of a task, "):
        equalise(shards, 2, np.random.default_rng(0))


@pytest.mark.parametrize("alpha", ["iid", 0.1])
def test_of_no_samples_every_client_gets_none(alpha: float | Literal["iid"]) -> None:
    rng = np.random.default_rng(0)
    shards = equalise(deal(np.zeros(0, np.int64), 3, alpha, rng), 0, rng)
    assert [(len(shard), shard.dtype) for shard in shards] == [(0, np.int64)] * 3


def test_iid_shares_every_class_equally() -> None:
    y = balanced(10, 1000)
    for shard in deal(y, 5, "iid", np.random.default_rng(0)):
        assert np.bincount(y[shard]).tolist() == [200] * 10


@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 99))
def test_iid_shares_differ_by_one_at_most(n: int, num_clients: int, seed: int) -> None:
    y = np.append(np.zeros(n, int), 1)
    counts = [(y[s] == 0).sum() for s in deal(y, num_clients, "iid", np.random.default_rng(seed))]
    assert max(counts) - min(counts) <= 1


def test_odd_samples_do_not_all_go_to_the_same_clients() -> None:
    y = balanced(100, 11)
    sizes = [len(s) for s in deal(y, 10, "iid", np.random.default_rng(0))]
    # Each of 100 classes gives one client an eleventh sample: 10 a client, with deviation 3.
    assert max(sizes) - min(sizes) < 20


def test_a_large_alpha_is_nearly_iid() -> None:
    y = balanced(10, 1000)
    for shard in deal(y, 5, 1e5, np.random.default_rng(0)):
        # A share is 1/5 with deviation sqrt(0.16 / 5e5) = 0.0006: 200 samples, give or take 0.6 and the rounding.
        assert np.abs(np.bincount(y[shard], minlength=10) - 200).max() <= 4


def test_heterogeneity_grows_as_alpha_falls() -> None:
    y = balanced(20, 100)
    found = [heterogeneity(y, deal(y, 5, a, np.random.default_rng(0))) for a in (1e5, 10, 1, 0.1, 1e-3)]
    assert found == sorted(found)
    assert found[0] < 0.02
    # At a vanishing alpha every class has one owner: clients share none, and each has about a fifth of them.
    assert 0.7 < found[-1] < 0.9


@pytest.mark.parametrize("alpha", [1e-6, 1e-300])
def test_at_a_vanishing_alpha_every_class_has_one_owner(alpha: float) -> None:
    y = balanced(50, 20)
    shards = deal(y, 5, alpha, np.random.default_rng(0))
    assert sum(len(np.unique(y[s])) for s in shards) == 50
    assert len([s for s in shards if len(s)]) == 5


def test_min_samples_is_reached() -> None:
    y = balanced(10, 30)
    smallest = [min(map(len, deal(y, 5, 0.3, np.random.default_rng(seed)))) for seed in range(20)]
    assert min(smallest) < 25
    smallest = [min(map(len, deal(y, 5, 0.3, np.random.default_rng(seed), min_samples=25))) for seed in range(20)]
    assert min(smallest) >= 25


@pytest.mark.parametrize(
    ("min_samples", "samples"),
    [(11, 1000), (40, 5000)],  # more than there are; and as good as never drawn at alpha 0.1
)
def test_an_impossible_min_samples_is_found_out_soon(min_samples: int, samples: int) -> None:
    y = balanced(10, samples // 10)
    started = time.perf_counter()
    with pytest.raises(InputError, match=r"^data.min_samples: ") as error:
        deal(y, 100, 0.1, np.random.default_rng(0), min_samples)
    assert time.perf_counter() - started < 2
    assert "\n" not in str(error.value)
    for part in (f"{min_samples} samples", f"{samples} samples", "100 clients", "data.num_clients", "alpha 0.1"):
        assert part in str(error.value)


def test_heterogeneity_by_hand() -> None:
    y = np.array([0, 0, 1, 1])
    assert heterogeneity(y, [np.array([0, 2]), np.array([1, 3])]) == 0
    assert heterogeneity(y, [np.array([0, 1]), np.array([2, 3]), np.array([], int)]) == 0.5
    # Three samples at 2/3 : 1/3 are 1/6 away from 1/2 : 1/2, the fourth's client 1/2.
    assert heterogeneity(y, [np.array([0, 1, 2]), np.array([3])]) == pytest.approx((3 / 6 + 1 / 2) / 4)


def test_description() -> None:
    y = [np.array([5, 5, 6, 6]), np.array([7, 7])]
    shards = [[np.array([0, 1]), np.array([2, 3])], [np.array([0, 1]), np.array([], int)]]
    # Heterogeneity 1/2 on four samples, 0 on two.
    assert describe(y, shards) == (
        "shards of 0 / 2 / 2 samples (min / median / max, 1 empty), 1.0 classes in a shard, "
        "heterogeneity 0.33 (0 alike, 1 disjoint)"
    )


@given(n=st.integers(5, 60), num_clients=st.integers(1, 5), seed=st.integers(0, 99))
def test_equalised_shards_are_of_one_size(n: int, num_clients: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = deal(rng.integers(0, 3, n), num_clients, 0.1, rng)
    after = equalise(before, n, rng)
    assert [len(shard) for shard in after] == [n // num_clients] * num_clients
    for old, new in zip(before, after, strict=True):
        assert np.isin(new, np.arange(n)).all()
        if len(old) >= len(new):  # it has only lost some
            assert np.isin(new, old).all()
            assert len(set(new)) == len(new)
        else:  # it has lost none
            assert np.isin(old, new).all()
    assert all((shard == np.sort(shard)).all() for shard in after)


@pytest.mark.parametrize(
    ("classes", "per_class", "alpha", "filled", "unused"),
    [
        (20, 500, 0.001, 0.18, 0.14),
        (2, 5000, 0.001, 0.63, 0.31),
        (20, 500, 0.1, 0.16, None),
        (2, 5000, 0.1, 0.50, None),
    ],
)
def test_equalising_is_as_mild_as_in_the_authors_code(
    classes: int, per_class: int, alpha: float, filled: float, unused: float | None
) -> None:
    """The shares of a shard that come from the whole task, and of images in no shard, as simulated elsewhere."""
    y, shares = balanced(classes, per_class), []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        before = deal(y, 5, alpha, rng)
        after = equalise(before, len(y), rng)
        short = sum(max(0, len(y) // 5 - len(shard)) for shard in before)
        shares.append((short / len(y), 1 - len(set(np.concatenate(after))) / len(y)))
    found = np.mean(shares, axis=0)
    assert found[0] == pytest.approx(filled, abs=0.06)
    assert unused is None or found[1] == pytest.approx(unused, abs=0.06)
