from __future__ import annotations

import numpy as np
import pytest
import torch

from fedqcl.data.module import ClientShard
from fedqcl.data.pool import Pool
from fedqcl.models import SmallResNet
from fedqcl.parts import moments
from fedqcl.parts.moments import Covariance, Gaussians, class_sums, feature_sums
from tests.helpers.toy import copied, same, toy_data

X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 5.0]])
Y = torch.tensor([0, 0, 2])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_class_sums_by_hand() -> None:
    sums = class_sums(X, Y, 3, "full")
    assert sums["count"].tolist() == [2, 0, 1]
    assert sums["sum"].tolist() == [[4, 6], [0, 0], [0, 5]]
    # (1, 2) and (3, 4): 1 + 9, 2 + 12, 4 + 16.
    assert sums["products"].tolist() == [[[10, 14], [14, 20]], [[0, 0], [0, 0]], [[0, 0], [0, 25]]]
    assert class_sums(X, Y, 3, "diagonal")["products"].tolist() == [[10, 20], [0, 0], [0, 25]]
    assert class_sums(X, Y, 3).keys() == {"count", "sum"}
    assert all(value.dtype == torch.float64 for value in sums.values())


def test_sums_of_parts_add_up_to_those_of_the_whole() -> None:
    x = torch.randint(-1000, 1000, (50, 3), generator=generator()).float()
    y = torch.randint(0, 4, (50,), generator=generator())
    whole, parts = class_sums(x, y, 4, "full"), [class_sums(x[i::7], y[i::7], 4, "full") for i in range(7)]
    for name, value in whole.items():
        assert torch.equal(sum(part[name] for part in parts), value)


def test_autocast_takes_no_digit() -> None:
    x = torch.randn(40, 3, generator=generator())
    y = torch.arange(40) % 2
    plain = class_sums(x, y, 2, "full")
    with torch.autocast("cpu", torch.bfloat16):
        assert all(torch.equal(value, plain[name]) for name, value in class_sums(x, y, 2, "full").items())


def shard_of_a_task(task: int) -> tuple[ClientShard, Pool]:
    data = toy_data(num_clients=1)
    pool = data.train_pool(torch.device("cpu"))
    return ClientShard(0, task, data.shards[task][0], pool, seed=0), pool


def test_feature_sums_are_over_the_whole_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, pool = shard_of_a_task(1)
    net = SmallResNet(1, 6, width=4).eval()
    x, y, _ = pool.gather(torch.from_numpy(shard.index))
    expected = class_sums(net.features(x), y - 2, 2, "full")
    assert expected["count"].tolist() == [12, 12]
    monkeypatch.setattr(moments, "CHUNK", 5)
    before = copied(net)
    sums = feature_sums(net, shard, range(2, 4), "full")
    for name, value in expected.items():
        torch.testing.assert_close(sums[name], value.detach(), rtol=1e-6, atol=1e-6)
        assert not sums[name].requires_grad
    assert same(before, copied(net))


def test_an_empty_shard_has_sums_of_the_same_shapes() -> None:
    shard, pool = shard_of_a_task(1)
    nobody = ClientShard(0, 1, np.array([], np.int64), pool, seed=0)
    net = SmallResNet(1, 6, width=4).eval()
    sums, some = (feature_sums(net, s, range(2, 4), "full") for s in (nobody, shard))
    assert {name: (v.shape, v.dtype) for name, v in sums.items()} == {n: (v.shape, v.dtype) for n, v in some.items()}
    assert all((value == 0).all() for value in sums.values())


def fitted(x: torch.Tensor, covariance: Covariance = "full", shrinkage: float = 1e-4) -> Gaussians:
    """The second of three classes fitted to samples."""
    gaussians = Gaussians(3, x.shape[1], covariance)
    gaussians.fit(range(1, 2), class_sums(x, torch.zeros(len(x), dtype=torch.int64), 1, covariance), shrinkage)
    return gaussians


def test_the_covariance_is_that_of_the_pooled_samples() -> None:
    """By the paper's formula, from the means and covariances of two clients with 30 and 11 samples."""
    x = torch.randn(41, 4, generator=generator()) @ torch.randn(4, 4, generator=generator(1)) + 3
    parts = [part.double() for part in x.split([30, 11])]
    n, mu = 41, x.double().mean(0)
    sigma = -n / (n - 1) * mu.outer(mu)
    for part in parts:
        m = len(part)
        sigma = sigma + (m - 1) / (n - 1) * part.T.cov() + m / (n - 1) * part.mean(0).outer(part.mean(0))
    expected = sigma + 0.01 * sigma.trace() / 4 * torch.eye(4)
    gaussians = fitted(x, shrinkage=0.01)
    factor = gaussians.factor[1].double()
    torch.testing.assert_close(factor @ factor.T, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gaussians.mean[1].double(), mu, rtol=1e-6, atol=1e-6)
    assert (factor.triu(1) == 0).all()


def test_a_diagonal_covariance_is_variances() -> None:
    # Variances of (0, 0), (2, 6): 2 and 18, of which a tenth of the mean is added.
    gaussians = fitted(torch.tensor([[0.0, 0.0], [2.0, 6.0]]), "diagonal", shrinkage=0.1)
    torch.testing.assert_close(gaussians.factor[1], torch.tensor([3.0, 19.0]).sqrt())
    assert gaussians.mean[1].tolist() == [1, 3]


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(
    "x",
    [torch.zeros(5, 8), torch.full((5, 8), 1 / 3), torch.randn(3, 8, generator=generator()).relu(), torch.ones(2, 8)],
    ids=["dead", "constant", "fewer-than-features", "two"],
)
def test_poor_features_still_make_a_gaussian(x: torch.Tensor, covariance: Covariance) -> None:
    gaussians = fitted(x, covariance)
    assert gaussians.known.tolist() == [False, True, False]
    drawn = gaussians.draw(1, 100, generator())
    assert drawn.isfinite().all()
    torch.testing.assert_close(drawn.mean(0), x.mean(0), rtol=0, atol=0.5)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_class_of_one_sample_or_none_is_unknown(covariance: Covariance) -> None:
    gaussians = Gaussians(3, 2, covariance)
    gaussians.fit(range(3), class_sums(X, Y, 3, covariance), 1e-4)
    assert gaussians.known.tolist() == [True, False, False]


def test_fitting_leaves_other_classes_and_the_buffers_in_place() -> None:
    gaussians = fitted(X)
    before, places = copied(gaussians), {name: v.data_ptr() for name, v in gaussians.named_buffers()}
    gaussians.fit(range(2, 3), class_sums(X, torch.zeros(3, dtype=torch.int64), 1, "full"), 1e-4)
    assert {name: v.data_ptr() for name, v in gaussians.named_buffers()} == places
    assert all(torch.equal(v[:2], before[name][:2]) for name, v in gaussians.named_buffers())
    assert torch.equal(gaussians.factor[2], gaussians.factor[1])


@pytest.mark.parametrize(("covariance", "rho"), [("full", 0.6), ("diagonal", 0.0)])
def test_drawn_features_have_the_moments(covariance: Covariance, rho: float) -> None:
    x = torch.randn(5000, 2, generator=generator()) @ torch.tensor([[1.0, 0.6], [0.0, 0.8]]) + torch.tensor([5.0, -1.0])
    drawn = fitted(x, covariance).draw(1, 20000, generator(1))
    torch.testing.assert_close(drawn.mean(0), torch.tensor([5.0, -1.0]), rtol=0, atol=0.06)
    torch.testing.assert_close(drawn.T.cov(), torch.tensor([[1.0, rho], [rho, 1.0]]), rtol=0, atol=0.08)


def test_draws_are_the_generators() -> None:
    gaussians = fitted(X)
    a, b, c = (gaussians.draw(1, 6, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
