from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedqcl.data.module import ClientShard, FederatedData
from fedqcl.errors import InputError
from fedqcl.methods import FOT, FedAvg
from fedqcl.methods.fot import Subspaces, with_frozen_norms
from fedqcl.models import Net, SmallResNet
from fedqcl.parts import Batch, Spec
from tests.helpers.toy import Linear, Toy, copied, odds_net, pixel_batch, same, toy_data, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(4, 4), classes=(2, 2, 2))


def small_net(in_channels: int = 1, num_classes: int = 6) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SmallResNet(in_channels, num_classes, width=4).train()


def shard_of(data: FederatedData, task: int) -> ClientShard:
    return ClientShard(0, task, data.shards[task][0], data.train_pool(torch.device("cpu")), data.seed)


def batch_of(data: FederatedData, task: int) -> Batch:
    pool = data.train_pool(torch.device("cpu"))
    index = torch.from_numpy(data.shards[task][0])
    return pool.batch(pool.look(index), index, task, len(index), torch.zeros(0))


def test_it_is_refused_in_the_class_incremental_scenario() -> None:
    FOT().check(SPEC, num_clients=3)
    with pytest.raises(InputError, match=r"model\.method: .*choose data\.scenario task"):
        FOT().check(Spec(channels=1, size=(4, 4), classes=(2, 2), scenario="class"), num_clients=3)


@pytest.mark.parametrize("layer", [nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(2, 2, 3, padding="same")])
def test_it_is_refused_on_convolutions_that_it_cannot_project(layer: nn.Module) -> None:
    with pytest.raises(InputError, match=r"model\.net: .* change 0"):
        FOT().server_state(SPEC, nn.Sequential(layer))


@pytest.mark.parametrize("bn", ["free", "freeze_after_first_task"])
def test_the_loss_is_fedavgs(bn: Literal["free", "freeze_after_first_task"]) -> None:
    spec = Spec(channels=1, size=(1, 1), classes=(2, 2))
    for batch in (pixel_batch(spec, [2, 3, 3]), pixel_batch(spec, [2, 3, 3], [[]], [])):
        net = odds_net(3, 1, 4, 1)
        losses = [m.loss(net, batch, m.client_state(spec), nn.Module()) for m in (FOT(bn=bn), FedAvg())]
        assert losses[0].item() == losses[1].item()


def test_frozen_norms_use_their_running_statistics_and_learn_nothing() -> None:
    data, net = toy_data(num_clients=1), small_net()
    with torch.no_grad():
        net(batch_of(data, 0).x)  # Statistics unlike the initial ones.
    before, batch = copied(net), batch_of(data, 1)
    FOT().loss(net, batch, FOT().client_state(SPEC), nn.Module()).backward()
    assert same(before, copied(net))
    assert all(module.training for module in net.modules())
    learning = {name for name, p in net.named_parameters() if p.grad is not None}
    assert learning == {name for name, _ in net.named_parameters() if "norm" not in name}
    frozen = with_frozen_norms(net, batch.x)
    torch.testing.assert_close(frozen, net.eval()(batch.x), rtol=0, atol=1e-6)
    assert torch.equal(with_frozen_norms(net, batch.x), frozen)
    assert not any(module.training for module in net.modules())
    assert (frozen - net.train()(batch.x)).abs().max() > 0.01


@pytest.mark.parametrize(("bn", "task"), [("freeze_after_first_task", 0), ("free", 1)])
def test_otherwise_norms_are_trained(bn: Literal["free", "freeze_after_first_task"], task: int) -> None:
    net = small_net()
    before = copied(net)
    FOT(bn=bn).loss(net, batch_of(toy_data(num_clients=1), task), FOT().client_state(SPEC), nn.Module()).backward()
    assert not same(before, copied(net))
    assert all(p.grad is not None for p in net.parameters())


def test_the_averaged_update_is_projected_layer_by_layer() -> None:
    method, net = FOT(epsilon=1.0), Linear(1, 6)
    server = method.server_state(SPEC, net)
    weights = {name: value.detach() for name, value in net.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    average = {name: value.double() + torch.randn(value.shape, generator=generator) for name, value in weights.items()}
    assert same(method.server_round(weights, average, {}, server), average)

    past = torch.randn(3, 16, generator=generator, dtype=torch.float64)
    stats = {"backbone.1": past.T @ past}
    method.server_task(net, stats, server, 0, np.random.default_rng(0))
    new = method.server_round(weights, average, {}, server)
    assert new.keys() == average.keys()
    for name in ("backbone.1.bias", "head.weight", "head.bias"):
        assert torch.equal(new[name], average[name])
    # What is left is orthogonal to the past inputs; what was taken away is made of them.
    left = new["backbone.1.weight"] - weights["backbone.1.weight"]
    torch.testing.assert_close(left @ past.T, torch.zeros(5, 3).double(), rtol=0, atol=1e-5)
    taken = average["backbone.1.weight"] - new["backbone.1.weight"]
    solution = torch.linalg.lstsq(past.T, taken.T).solution
    torch.testing.assert_close(past.T @ solution, taken.T, rtol=0, atol=1e-5)
    assert left.norm() > 1
    assert taken.norm() > 1


def test_a_convolutions_rows_are_its_kernels_end_to_end() -> None:
    method, net = FOT(epsilon=1.0), nn.Sequential(nn.Conv2d(2, 3, 2, bias=False)).to(memory_format=torch.channels_last)
    server = method.server_state(SPEC, net)
    x = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(0))  # Four patches of eight numbers.
    patches = torch.stack([x[0, :, i : i + 2, j : j + 2].flatten() for i in (0, 1) for j in (0, 1)]).double()
    method.server_task(net, {"0": patches.T @ patches}, server, 0, np.random.default_rng(0))
    weights = {"0.weight": net[0].weight.detach()}
    new = method.server_round(weights, {"0.weight": torch.ones(3, 2, 2, 2).double()}, {}, server)["0.weight"]
    torch.testing.assert_close(torch.conv2d(x, new.float()), net(x).detach())
    assert (new - weights["0.weight"]).abs().max() > 0.01


@pytest.mark.parametrize(("task", "expected"), [(0, 1), (1, 2), (9, 3)])
def test_epsilon_grows_from_task_to_task_up_to_one(task: int, expected: int) -> None:
    net = nn.Sequential(nn.Linear(3, 1))
    server = Subspaces(net)
    gram = torch.tensor([80.0, 15.0, 5.0], dtype=torch.float64).diag()
    FOT(epsilon=0.75, eps_inc=0.125).server_task(net, {"0": gram}, server, task, np.random.default_rng(0))
    assert server.spaces[0].projection.trace().item() == pytest.approx(expected)


def test_clients_send_sums_over_their_samples_in_eval_mode() -> None:
    data, net, method = toy_data(num_clients=1), small_net(), FOT()
    state, server = method.client_state(data.spec), method.server_state(data.spec, net)
    before = copied(net)

    def sent(index: np.ndarray) -> dict[str, Tensor]:
        data.shards[0][0] = index
        return dict(method.client_task(net, shard_of(data, 0), state, server))

    index = data.shards[0][0]
    whole, first, rest, none = sent(index), sent(index[:5]), sent(index[5:]), sent(index[:0])
    assert list(whole) == server.names
    for name, gram in whole.items():
        torch.testing.assert_close(gram, first[name] + rest[name])
        assert gram.shape == none[name].shape
        assert not none[name].any()
    assert same(before, copied(net))
    assert net.training


def answers(data: FederatedData, weights: dict[str, Tensor], task: int) -> Tensor:
    """A net's logits of a task's training images, those of the task's own head: ``[n, 2]``."""
    net = small_net().eval()
    net.load_state_dict(weights)
    with torch.no_grad():
        return net(batch_of(data, task).x)[:, 2 * task : 2 * task + 2]


@pytest.mark.parametrize(("method", "kept"), [(FOT(epsilon=1.0), True), (FOT(epsilon=1.0, bn="free"), False)])
def test_a_run_keeps_the_answers_of_past_tasks(method: FOT, kept: bool) -> None:
    """With all directions held that few images have, and BatchNorm frozen, nothing changes for them."""
    data = toy_data(Toy(per_class=1), num_clients=1, batch_size=2)
    moments, engine = toy_fit(toy_learner(method, net=small_net), data, epochs=4)
    held = [space.projection.trace().item() / len(space.projection) for _, space in engine.server.state.items()]
    assert 0 < min(held) < 0.9
    last = {task: [answers(data, m.weights, task) for m in moments if m.task >= task][1:] for task in (0, 1)}
    moved = max((now - then[0]).abs().max().item() for then in last.values() for now in then[1:])
    assert moved < 2e-3 if kept else moved > 0.05
    changed = [
        not torch.equal(moments[1].weights[f"{n}.weight"], moments[-1].weights[f"{n}.weight"])
        for n in engine.server.state.names
    ]
    assert any(changed)
    norms = [name for name in moments[0].weights if "norm" in name and "num_batches" not in name]
    assert all(torch.equal(moments[1].weights[n], moments[-1].weights[n]) for n in norms) == kept


def test_the_first_task_is_fedavgs() -> None:
    runs = [toy_fit(toy_learner(m, net=small_net), toy_data())[0] for m in (FOT(), FedAvg())]
    assert all(same(a.weights, b.weights) for a, b in zip(runs[0][:2], runs[1][:2], strict=True))
    assert not same(runs[0][2].weights, runs[1][2].weights)


def test_inputs_of_past_tasks_give_what_they_gave() -> None:
    """Whatever the update: a layer's outputs for inputs in its subspace stay the same."""
    method, net = FOT(epsilon=1.0), Linear(1, 6)
    server, generator = method.server_state(SPEC, net), torch.Generator().manual_seed(1)
    past = torch.randn(4, 16, generator=generator, dtype=torch.float64)
    method.server_task(net, {"backbone.1": past.T @ past}, server, 0, np.random.default_rng(0))
    weights = {name: value.detach().double() for name, value in net.named_parameters()}
    average = {name: value + torch.randn(value.shape, generator=generator) for name, value in weights.items()}
    new = method.server_round(weights, average, {}, server)["backbone.1.weight"]
    inside = torch.randn(9, 4, generator=generator, dtype=torch.float64) @ past
    torch.testing.assert_close(inside @ new.T, inside @ weights["backbone.1.weight"].T, rtol=0, atol=1e-4)
    outside = torch.randn(9, 16, generator=generator, dtype=torch.float64)
    assert (outside @ (new - weights["backbone.1.weight"]).T).abs().max() > 1
