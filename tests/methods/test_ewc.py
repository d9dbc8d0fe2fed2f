from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.data.module import ClientShard
from fedqcl.methods import EWC, FedAvg, ewc
from fedqcl.methods.base import ClientState, Stats
from fedqcl.models import SmallResNet
from fedqcl.parts import Spec
from fedqcl.parts.losses import cross_entropy
from tests.helpers.toy import Given, Toy, copied, odds_net, pixel_batch, same, toy_data, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(1, 1), classes=(2, 2))
CURRENT = log(5**3 / 4) / 3
RNG = np.random.default_rng(0)


def set_fisher(server: ewc.Anchor, values: list[float]) -> None:
    (fisher,) = server.fisher.buffers()
    fisher.copy_(torch.tensor(values)[:, None])


def measured(method: EWC, net: nn.Module, samples: int | None = None, **options: object) -> Stats:
    """What the first client reports of the second task, as the engine calls it."""
    data = toy_data(num_clients=1, **options)
    shard = ClientShard(0, 1, data.shards[1][0][:samples], data.train_pool(torch.device("cpu")), seed=0)
    with torch.no_grad():
        return method.client_task(net, shard, ClientState(), method.server_state(data.spec, net))


def small_net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = SmallResNet(1, 6, width=4)
        for _ in range(3):
            net(torch.randn(8, 1, 4, 4))
    return net


@pytest.mark.parametrize("strength", [0.0, 0.5, 3.0])
def test_loss_by_hand(strength: float) -> None:
    method = EWC(strength=strength)
    server = method.server_state(SPEC, odds_net(1, 1, 4, 2))
    set_fisher(server, [2.0, 5.0, 7.0, 0.5])
    batch = replace(pixel_batch(SPEC, [2, 3, 3]), task=1)
    loss = method.loss(odds_net(3, 1, 4, 1), batch, ClientState(), server)
    # The weights are logs of odds: ln 3 and -ln 2 apart in two places.
    assert loss.item() == pytest.approx(CURRENT + strength * (2 * log(3) ** 2 + 0.5 * log(2) ** 2))


def test_penalty_gradient_is_that_of_autograd() -> None:
    method, net = EWC(strength=3.0), odds_net(3, 1, 4, 1)
    server = method.server_state(SPEC, odds_net(1, 1, 4, 2))
    set_fisher(server, [2.0, 5.0, 7.0, 0.5])
    batch = replace(pixel_batch(SPEC, [2, 3, 3]), task=1)
    (theta,), (anchor,), (fisher,) = net.parameters(), server.weights.buffers(), server.fisher.buffers()
    penalty = 3.0 * (fisher * (theta - anchor).square()).sum()
    plain = FedAvg().loss(net, batch, ClientState(), nn.Module()) + penalty
    found = torch.autograd.grad(method.loss(net, batch, ClientState(), server), theta)
    torch.testing.assert_close(found, torch.autograd.grad(plain, theta))


def test_the_first_task_has_no_penalty() -> None:
    method = EWC(strength=3.0)
    server = method.server_state(SPEC, odds_net(1, 1, 4, 2))
    assert all((value == 0).all() for value in server.fisher.buffers())
    set_fisher(server, [2.0, 5.0, 7.0, 0.5])
    loss = method.loss(odds_net(3, 1, 4, 1), pixel_batch(SPEC, [2, 3, 3]), ClientState(), server)
    assert loss.item() == pytest.approx(CURRENT)


@pytest.mark.parametrize(
    ("scenario", "ce_scope", "expected"),
    [
        # Odds of 4 : 1. Class 2: p = 4/5, gradient (1/5, -1/5); class 3: p = 1/5, gradient (-4/5, 4/5). In both
        # columns 4/5 * 1/25 + 1/5 * 16/25.
        ("task", "seen", [0, 0, 20 / 125, 20 / 125]),
        ("class", "current", [0, 0, 20 / 125, 20 / 125]),
        # Odds of 3 : 1 : 4 : 1. Class 2: p = 4/9, gradient (-3, -1, 5, -1) / 9. Class 3: p = 1/9, (-3, -1, -4, 8) / 9.
        ("class", "seen", [(4 * 9 + 9) / 729, (4 + 1) / 729, (4 * 25 + 16) / 729, (4 + 64) / 729]),
    ],
)
def test_fisher_by_hand(scenario: str, ce_scope: str, expected: list[float]) -> None:
    # One image of each class. Pixels come out as -1 and 1, and at 1 the odds are the net's; classes 2 and 3 are at 1.
    images = np.array([0, 0, 255, 255], np.uint8).reshape(4, 1, 1, 1)
    stats = measured(
        EWC(ce_scope=ce_scope), odds_net(3, 1, 4, 1), source=Given(images, [0, 1, 2, 3]), tasks=2, scenario=scenario
    )
    assert stats["samples"] == 2
    assert stats["fisher.1.weight"][:, 0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("chunk", [3, 32])
def test_fisher_is_that_of_a_loop_over_samples(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(ewc, "CHUNK", chunk)
    net, data = small_net(), toy_data(num_clients=1, scenario="class")
    stats = measured(EWC(ce_scope="seen"), net, samples=7, scenario="class")
    expected = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    x, y, columns = data.train_pool(torch.device("cpu")).gather(torch.from_numpy(data.shards[1][0][:7]), 1)
    net.eval()
    for i in range(7):
        log_p = -cross_entropy(net(x[i : i + 1]), y[i : i + 1], columns[i : i + 1]).sum()
        gradients = torch.autograd.grad(log_p, list(net.parameters()))
        for value, gradient in zip(expected.values(), gradients, strict=True):
            value += log_p.detach().exp() * gradient.square()
    assert stats.keys() == {"samples", *(f"fisher.{name}" for name in expected)}
    for name, value in expected.items():
        assert value.any()
        torch.testing.assert_close(stats[f"fisher.{name}"], value, rtol=1e-4, atol=1e-7)


def test_measuring_leaves_the_net_as_it_is() -> None:
    net = small_net().train()
    before = copied(net)
    measured(EWC(), net)
    assert net.training
    assert same(before, copied(net))
    assert all(p.grad is None for p in net.parameters())


def test_fisher_is_measured_in_float32_under_autocast() -> None:
    net = small_net()
    plain = measured(EWC(), net)
    with torch.autocast("cpu", torch.bfloat16):
        assert same(dict(plain), dict(measured(EWC(), net)))


def test_a_client_without_samples_reports_zeros_of_the_same_shapes() -> None:
    full, empty = (measured(EWC(), small_net(), samples) for samples in (5, 0))
    assert {k: (v.shape, v.dtype) for k, v in full.items()} == {k: (v.shape, v.dtype) for k, v in empty.items()}
    assert not any(value.any() for value in empty.values())


@pytest.mark.parametrize(("clip", "expected"), [(None, [0.5 * 2 + 3, 0.5 * 4 + 1]), (2.5, [0.5 * 2 + 1.5, 2.25])])
def test_older_tasks_fade_and_the_anchor_is_the_new_model(clip: float | None, expected: list[float]) -> None:
    method = EWC(gamma=0.5, clip=clip)
    server = method.server_state(SPEC, odds_net(1, 1))
    for task, (total, samples) in enumerate([([8.0, 16.0], 4), ([30.0, 10.0], 10)]):
        fisher = torch.tensor(total, dtype=torch.float64)[:, None]
        net = odds_net(2, 3 + task)
        stats = {"samples": torch.tensor(samples, dtype=torch.float64), "fisher.1.weight": fisher}
        method.server_task(net, stats, server, task, RNG)
    # 8/4 and 16/4, the second bounded by 2.5; then 30/10 and 10/10 beside half of what there was.
    if clip is not None:
        expected = [2.5, 0.5 * 2.5 + 1]
    assert server.fisher.by_name()["1.weight"][:, 0].tolist() == expected
    assert server.weights.by_name()["1.weight"][:, 0].tolist() == pytest.approx([log(2), log(4)])
    assert not any(value.requires_grad for value in server.buffers())


def test_without_strength_it_is_fedavg() -> None:
    data = toy_data()
    for a, b in zip(*(toy_fit(toy_learner(m), data)[0] for m in (EWC(strength=0.0), FedAvg())), strict=True):
        assert same(a.weights, b.weights)


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_a_run_stays_nearer_to_where_the_last_task_ended(scenario: str) -> None:
    data = toy_data(Toy(noise=100), scenario=scenario)
    moves = []
    for strength in (0.0, 40.0):
        moments, engine = toy_fit(toy_learner(EWC(strength=strength, ce_scope="seen")), data, epochs=3)
        first, second, last = (m.weights["backbone.1.weight"] for m in moments[1::2])
        moves.append((second - first).norm().item())
        assert torch.equal(engine.server.state.weights.by_name()["backbone.1.weight"], last)
    assert moves[1] < 0.7 * moves[0]
    assert all((value >= 0).all() for value in engine.server.state.fisher.buffers())
    assert all(value.any() for value in engine.server.state.fisher.buffers())


def test_a_fisher_of_one_s_own_is_what_a_lone_client_s_server_has() -> None:
    data = toy_data()
    _, engine = toy_fit(toy_learner(EWC(fisher="local", gamma=0.5)), data)
    _, shared = toy_fit(toy_learner(EWC(strength=0.0, gamma=0.5)), data)
    assert not any(value.any() for value in engine.server.state.fisher.buffers())
    assert all(value.any() for value in shared.server.state.fisher.buffers())
    method, state = EWC(fisher="local", gamma=0.5, clip=1e-3), ewc.OwnFisher()
    net = small_net()
    state.start(0, net)
    data = toy_data(num_clients=1)
    shard = ClientShard(0, 1, data.shards[1][0], data.train_pool(torch.device("cpu")), seed=0)
    expected = measured(EWC(), net)
    for share in (1.0, 1.5):
        with torch.no_grad():
            assert method.client_task(net, shard, state, method.server_state(data.spec, net)) == {}
        for name, value in state.fisher.by_name().items():
            mean = expected[f"fisher.{name}"] / expected["samples"]
            once = mean.clamp(max=1e-3)
            torch.testing.assert_close(value, once if share == 1 else (0.5 * once + mean).clamp(max=1e-3))


def test_the_penalty_is_the_client_s_own() -> None:
    method, state = EWC(strength=3.0, fisher="local"), ewc.OwnFisher()
    state.start(0, odds_net(1, 1, 4, 2))
    (fisher,) = state.fisher.buffers()
    fisher.copy_(torch.tensor([2.0, 5.0, 7.0, 0.5])[:, None])
    batch = replace(pixel_batch(SPEC, [2, 3, 3]), task=1)
    loss = method.loss(odds_net(3, 1, 4, 1), batch, state, method.server_state(SPEC, odds_net(1, 1, 4, 2)))
    assert loss.item() == pytest.approx(CURRENT + 3 * (2 * log(3) ** 2 + 0.5 * log(2) ** 2))
