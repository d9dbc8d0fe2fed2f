from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedqcl.methods import FedAvg, LwF
from fedqcl.methods.base import ClientState
from fedqcl.models import SmallResNet
from fedqcl.parts import Batch, Spec
from tests.helpers.toy import Normed, copied, odds_net, pixel_batch, same, toy_data, toy_fit, toy_learner

CLASSES = (2, 3, 2)
STUDENT, TEACHER = odds_net(9, 1, 4, 9, 1, 4, 1), odds_net(1, 4, 16, 1, 1, 1, 9)
# The student's cross-entropy on classes 5 and 6 among themselves.
CURRENT = log(25 / 4) / 2
# At temperature 2 odds are square roots: the student's 3 : 1 and 2 : 3 : 1, the teacher's 1 : 2 and 4 : 1 : 1.
FIRST = (1 / 3) * log(4 / 3) + (2 / 3) * log(4)
SECOND = (4 / 6) * log(6 / 2) + (1 / 6) * log(6 / 3) + (1 / 6) * log(6)
# Together 3 : 1 : 2 : 3 : 1 and 1 : 2 : 4 : 1 : 1.
BOTH = (log(10 / 3) + 2 * log(10) + 4 * log(10 / 2) + log(10 / 3) + log(10)) / 9
# Of the current task 2 : 1 and 1 : 3.
NEW = (1 / 4) * log(3 / 2) + (3 / 4) * log(3)


def third_task(spec: Spec) -> Batch:
    batch = pixel_batch(spec, [5, 6])
    seen = spec.seen()[2].expand(2, -1) if spec.scenario == "class" else batch.columns
    return replace(batch, task=2, columns=seen)


def spec_of(scenario: str) -> Spec:
    return Spec(channels=1, size=(1, 1), classes=CLASSES, scenario=scenario)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(
    ("scenario", "kd_scope", "expected"),
    [
        ("task", "old", FIRST + SECOND),
        ("class", "old", BOTH),
        ("task", "current", NEW),
        ("class", "current", NEW),
    ],
)
def test_loss_by_hand(scenario: str, kd_scope: str, expected: float, alpha: float) -> None:
    method, spec = LwF(alpha=alpha, kd_scope=kd_scope), spec_of(scenario)
    loss = method.loss(STUDENT, third_task(spec), ClientState(), method.server_state(spec, TEACHER))
    assert loss.item() == pytest.approx(CURRENT + alpha * expected)


def test_temperature() -> None:
    method, spec = LwF(alpha=1.0, temperature=1.0), Spec(1, (1, 1), (2, 2))
    batch = replace(pixel_batch(spec, [2]), task=1)
    server = method.server_state(spec, odds_net(1, 4, 1, 1))
    loss = method.loss(odds_net(9, 1, 3, 1), batch, ClientState(), server)
    assert loss.item() == pytest.approx(log(4 / 3) + 1 / 5 * log(10 / 9) + 4 / 5 * log(10))


def test_all_seen_classes_may_compete() -> None:
    method, spec = LwF(alpha=0.0, ce_scope="seen"), spec_of("class")
    loss = method.loss(STUDENT, third_task(spec), ClientState(), method.server_state(spec, TEACHER))
    assert loss.item() == pytest.approx((log(29 / 4) + log(29)) / 2)


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_distillation_leaves_the_new_head_alone(scenario: str) -> None:
    spec = spec_of(scenario)

    def gradient(alpha: float) -> Tensor:
        method = LwF(alpha=alpha)
        loss = method.loss(STUDENT, third_task(spec), ClientState(), method.server_state(spec, TEACHER))
        return torch.autograd.grad(loss, STUDENT.parameters())[0][:, 0]

    with_it, without = gradient(3.0), gradient(0.0)
    assert torch.equal(with_it[5:], without[5:])
    assert not without[:5].any()
    assert with_it[:5].all()
    if scenario == "task":
        # alpha / 2 times the difference of the softmaxes: 3/4 - 1/3 in the first column.
        assert with_it[0].item() == pytest.approx(3 / 2 * 5 / 12)


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_a_student_like_its_teacher_is_not_pulled(scenario: str) -> None:
    method, spec = LwF(alpha=3.0), spec_of(scenario)
    loss = method.loss(STUDENT, third_task(spec), ClientState(), method.server_state(spec, STUDENT))
    (gradient,) = torch.autograd.grad(loss, STUDENT.parameters())
    torch.testing.assert_close(gradient[:5], torch.zeros(5, 1), rtol=0, atol=1e-6)


def test_the_first_task_has_no_teacher() -> None:
    method, spec = LwF(alpha=3.0), Spec(1, (1, 1), (2, 2))
    loss = method.loss(odds_net(3, 1, 4, 1), pixel_batch(spec, [0]), ClientState(), nn.Module())
    assert loss.item() == pytest.approx(log(4 / 3))


def test_the_teacher_is_frozen_and_in_eval_mode() -> None:
    method, spec = LwF(), Spec(1, (4, 4), (2, 2))
    net = SmallResNet(1, 4, width=4).train()
    server = method.server_state(spec, net)
    assert not any(module.training for module in server.net.modules())
    assert not any(p.requires_grad for p in server.parameters())
    batch = replace(pixel_batch(spec, [2, 3]), task=1, x=torch.randn(2, 1, 4, 4))
    before = copied(server)
    method.loss(net, batch, ClientState(), server).backward()
    assert same(before, copied(server))


def test_at_the_end_of_a_task_the_global_model_becomes_the_teacher_in_place() -> None:
    method = LwF()
    first, second = SmallResNet(1, 4, width=4), SmallResNet(1, 4, width=4)
    second(torch.randn(8, 1, 4, 4))
    server = method.server_state(Spec(1, (4, 4), (2, 2)), first)
    addresses = [value.data_ptr() for value in server.state_dict().values()]
    method.server_task(second, {}, server, 0, np.random.default_rng(0))
    assert same(copied(server.net), copied(second))
    assert [value.data_ptr() for value in server.state_dict().values()] == addresses
    assert not any(p.requires_grad for p in server.parameters())


def test_loss_under_autocast() -> None:
    method, spec = LwF(alpha=0.5), spec_of("task")
    server = method.server_state(spec, TEACHER)
    with torch.autocast("cpu", torch.bfloat16):
        loss = method.loss(STUDENT, third_task(spec), ClientState(), server)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(CURRENT + 0.5 * (FIRST + SECOND), rel=0.02)


def test_without_alpha_it_is_fedavg() -> None:
    data = toy_data()
    runs = [toy_fit(toy_learner(m, net=Normed), data)[0] for m in (LwF(alpha=0.0), FedAvg())]
    for a, b in zip(*runs, strict=True):
        assert same(a.weights, b.weights)


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_a_run_keeps_what_old_heads_say(scenario: str) -> None:
    """Of the second task's images, about the first task's classes: the models before and after the second task."""
    data = toy_data(scenario=scenario)
    learner = toy_learner(LwF())
    net = learner.make_net(data.spec, 0)
    x, _, _ = data.train_pool(torch.device("cpu")).gather(torch.from_numpy(np.concatenate(data.shards[1])))
    changes = []
    for alpha in (0.0, 2.0, 8.0):
        moments, engine = toy_fit(toy_learner(LwF(alpha=alpha, ce_scope="seen")), data, epochs=3)
        says = []
        for moment in moments[1:4:2]:
            net.load_state_dict(moment.weights)
            says.append(net(x)[:, :2].softmax(1).detach())
        changes.append((says[1] - says[0]).abs().mean().item())
        assert same(copied(engine.server.state.net), moments[-1].weights)
    assert changes[0] > 1.5 * changes[1] > 1.5**2 * changes[2]
