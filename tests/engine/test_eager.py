from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from fedqcl.engine.eager import EagerExecutor
from fedqcl.methods import FedAvg
from fedqcl.models import Net
from tests.helpers.toy import copied, same, toy_data, toy_engine, toy_learner


def test_it_takes_every_step_of_the_stream_with_an_optimizer_of_its_own() -> None:
    data = toy_data(batch_size=5)
    learner = toy_learner(FedAvg(), momentum=0.5)
    engine = toy_engine(learner, data, epochs=2)
    start = copied(engine.server.net)
    by_hand = learner.make_net(data.spec, data.seed)

    for _ in range(2):  # the second time from the same weights: a momentum kept from the first would show
        for (local,) in engine.broadcast([1], task=0):
            engine.local_steps([local], round=0)
            report, trained, stream = local.report(), copied(local.net), local.stream
        by_hand.load_state_dict(start)
        velocity = {name: torch.zeros_like(p) for name, p in by_hand.named_parameters()}
        total = 0.0
        for step in range(len(stream)):
            x, y, columns = engine.pool.gather(stream.index[step])
            logits = by_hand(x).masked_fill(~columns, float("-inf"))
            loss = torch.nn.functional.cross_entropy(logits, y)
            gradients = torch.autograd.grad(loss, list(by_hand.parameters()))
            total += loss.item()
            with torch.no_grad():
                for (name, p), g in zip(by_hand.named_parameters(), gradients, strict=True):
                    velocity[name].mul_(0.5).add_(g)
                    p.sub_(0.0625 * velocity[name])
        assert len(stream) == -(-2 * len(data.shards[0][1]) // 5)
        assert report.client == 1
        assert report.steps == len(stream)
        torch.testing.assert_close(report.loss, torch.tensor(total), rtol=1e-5, atol=0)
        for name, value in by_hand.state_dict().items():
            torch.testing.assert_close(trained[name], value, rtol=0, atol=1e-6)
    assert not same(trained, start)
    assert same(start, copied(engine.server.net))


class Dropping(Net):
    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__(nn.Sequential(nn.Flatten(), nn.Dropout(0.5)), 16 * in_channels, num_classes)


def test_what_a_net_draws_is_keyed_and_leaves_other_draws_alone() -> None:
    learner, data = toy_learner(FedAvg(), net=Dropping), toy_data(num_clients=2, alpha="iid")

    def trained(clients: Sequence[int], round: int, seed: int) -> list[dict[str, torch.Tensor]]:
        engine = toy_engine(learner, data)
        torch.manual_seed(seed)
        nets = []
        for client in clients:
            for seated in engine.broadcast([client], task=0):
                engine.local_steps(seated, round)
                nets.append(copied(seated[0].net))
        assert torch.initial_seed() == seed
        return nets

    one, two = trained([0, 1], round=0, seed=1)
    again_two, again_one = trained([1, 0], round=0, seed=2)
    assert same(one, again_one)
    assert same(two, again_two)
    assert not same(one, trained([0], round=1, seed=1)[0])


def test_forward_passes_run_in_the_precision_given() -> None:
    learner = toy_learner(FedAvg())
    engine = toy_engine(learner, toy_data(alpha="iid"))
    entered = []

    @contextlib.contextmanager
    def precision() -> Iterator[None]:
        entered.append(torch.is_grad_enabled())
        yield

    engine.executor = EagerExecutor(learner, precision)
    for seated in engine.broadcast([0], task=0):
        engine.local_steps(seated, round=0)
        assert entered == [True] * seated[0].report().steps
        assert len(entered) > 1
