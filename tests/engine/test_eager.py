from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fedqcl.engine.eager import EagerExecutor
from fedqcl.methods import FedAvg
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
