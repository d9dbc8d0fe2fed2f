from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log

import pytest
import torch
from torch import Tensor, nn

from fedqcl.methods import FedAvg
from fedqcl.models import SmallResNet
from fedqcl.parts import Spec
from tests.helpers.toy import Toy, copied, odds_net, pixel_batch, toy_data, toy_engine, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(1, 1), classes=(2, 2))


def test_loss_by_hand() -> None:
    method = FedAvg()
    batch = pixel_batch(SPEC, current=[2, 3, 3])
    loss = method.loss(odds_net(3, 1, 4, 1), batch, method.client_state(SPEC), nn.Module())
    # 4 of 5, 1 of 5, 1 of 5: the mean of ln 5/4, ln 5, ln 5.
    assert loss.item() == pytest.approx(log(5**3 / 4) / 3)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (FedAvg(), log(5**3 / 4) / 3),
        # All four classes compete: 4 of 9, 1 of 9, 1 of 9.
        (FedAvg(ce_scope="seen"), log(9**3 / 4) / 3),
    ],
)
def test_which_classes_compete_in_the_class_incremental_scenario(method: FedAvg, expected: float) -> None:
    batch = pixel_batch(SPEC, current=[2, 3, 3])
    batch = replace(batch, columns=torch.ones(3, 4).bool())
    loss = method.loss(odds_net(3, 1, 4, 1), batch, method.client_state(SPEC), nn.Module())
    assert loss.item() == pytest.approx(expected)


def test_it_remembers_nothing() -> None:
    state = FedAvg().client_state(SPEC)
    assert not state.state_dict()
    assert state.replay(1) == []
    assert state.diagnostics() == {}


def rows_moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[bool]:
    """Which rows of the output layer differ, bias or weights: ``[K]``."""
    parts = [(after[name] != before[name]).reshape(6, -1).any(1) for name in ("head.weight", "head.bias")]
    return (parts[0] | parts[1]).tolist()


def test_a_clients_steps_leave_the_heads_of_other_tasks_alone() -> None:
    engine = toy_engine(toy_learner(FedAvg()), toy_data(), epochs=3)
    before = copied(engine.server.net)
    for seated in engine.broadcast([0], task=1):
        engine.local_steps(seated, round=0)
        assert rows_moved(before, copied(seated[0].net)) == [False, False, True, True, False, False]


def test_a_task_leaves_the_heads_of_other_tasks_alone() -> None:
    """Bit for bit, on the global model: the average must not touch what no client has changed."""
    data, learner = toy_data(Toy(per_class=2), num_clients=1), toy_learner(FedAvg(), net=SmallResNet)
    moments, _ = toy_fit(learner, data, rounds=1)
    states = [copied(learner.make_net(data.spec, data.seed)), *(m.weights for m in moments)]
    assert [rows_moved(*pair) for pair in pairwise(states)] == [
        [True, True, False, False, False, False],
        [False, False, True, True, False, False],
        [False, False, False, False, True, True],
    ]
