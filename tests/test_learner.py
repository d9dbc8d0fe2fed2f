from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from fedqcl.errors import InputError
from fedqcl.learner import Learner
from fedqcl.methods import ER, FedAvg, FedQCL, Method
from fedqcl.models import Net, ResNet18, SmallResNet
from fedqcl.models.norm import BatchNormReLU
from fedqcl.parts import Spec
from tests.helpers.toy import copied, odds_net, pixel_batch, same, toy_data, toy_fit, toy_learner

SPEC = Spec(channels=1, size=(8, 8), classes=(2, 2))


def test_the_initial_net_depends_on_the_seed_alone() -> None:
    learner = toy_learner(FedAvg(), net=SmallResNet)
    first = copied(learner.make_net(SPEC, 0))
    torch.manual_seed(99)
    torch.rand(7)
    assert same(copied(learner.make_net(SPEC, 0)), first)
    assert not same(copied(learner.make_net(SPEC, 1)), first)


def test_making_a_net_leaves_other_randomness_alone() -> None:
    before = torch.get_rng_state()
    toy_learner(FedAvg(), net=SmallResNet).make_net(SPEC, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_net_fits_the_problem() -> None:
    net = toy_learner(FedAvg(), net=SmallResNet).make_net(Spec(3, (8, 8), (2, 3, 4)), 0)
    assert net(torch.zeros(2, 3, 8, 8)).shape == (2, 9)


def test_defaults_are_the_papers() -> None:
    learner = Learner(FedQCL())
    with torch.device("meta"):
        net = learner.make_net(Spec(3, (32, 32), (20,) * 5), 0)
    assert isinstance(net, ResNet18)
    optimizer = learner.make_optimizer(net)
    assert isinstance(optimizer, torch.optim.SGD)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.005, 0, 0)
    assert [id(p) for p in group["params"]] == [id(p) for p in net.parameters()]


class Sharp(torch.optim.SGD):
    """Works out the loss anew, as sharpness-aware minimisation does."""

    def step(self, closure: Callable[[], Any]) -> None:  # type: ignore[override]
        super().step(closure)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (torch.optim.LBFGS, "LBFGS works out the loss several times a step, which a client does once; choose another"),
        (Sharp, "Sharp works out the loss several times a step, which a client does once; choose another"),
        (torch.optim.SparseAdam, "SparseAdam takes sparse gradients, and these are dense; choose another"),
        (lambda parameters: torch.optim.SGD(parameters, lr=-1), "Invalid learning rate: -1"),
        (lambda parameters: torch.optim.SGD(parameters, speed=1), "SGD.__init__() got an unexpected keyword"),
    ],
)
def test_an_optimizer_that_will_not_do_is_refused_before_there_is_a_run(make: Any, why: str) -> None:
    with pytest.raises(InputError) as refused:
        Learner(FedAvg(), SmallResNet, make)
    assert str(refused.value).startswith(f"model.optimizer: {why}")


def test_checking_the_optimizer_leaves_randomness_alone() -> None:
    before = torch.get_rng_state()
    Learner(FedAvg())
    assert torch.equal(torch.get_rng_state(), before)


def test_loss_is_the_methods() -> None:
    method = FedAvg()
    spec = Spec(1, (1, 1), (2, 2))
    inputs = odds_net(3, 1, 4, 1), pixel_batch(spec, [0, 3]), method.client_state(spec), torch.nn.Module()
    assert torch.equal(Learner(method).loss(*inputs), method.loss(*inputs))


def test_replay_statistics_decide_what_batchnorm_takes_together() -> None:
    for choice, parts in (("joint", ()), ("per_task", (5, 2, 2))):
        learner = Learner(FedAvg(), net=SmallResNet, replay_statistics=choice)  # type: ignore[arg-type]
        net = learner.make_net(SPEC, 0)
        learner.arrange(net, (5, 2, 2))
        norms = [module.parts for module in net.modules() if isinstance(module, BatchNormReLU)]
        assert norms
        assert set(norms) == {parts}


class Apart(SmallResNet):
    """Runs the current batch of 7 and each replay group of 3 through the net by itself."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        return torch.cat([super(Apart, self).forward(part) for part in (x[:7], *x[7:].split(3))])


def test_BatchNorms_that_per_task_has_no_effect_on_are_warned_of() -> None:
    ours, plain = SmallResNet(1, 6), nn.BatchNorm2d(1)
    replaying = Learner(FedQCL())
    (line,) = replaying.cautions(plain)
    assert line.startswith("model.replay_statistics: per_task has no effect on this net's BatchNorms")
    assert replaying.cautions(ours) == Learner(FedAvg()).cautions(plain) == []
    assert Learner(FedQCL(), replay_statistics="joint").cautions(plain) == []


@pytest.mark.parametrize("method", [FedQCL(V=4, delta=-0.5, memory=9, replay_batch=3), ER(memory=9, replay_batch=3)])
def test_statistics_per_task_are_those_of_separate_forward_passes(method: Method) -> None:
    def weights(net: type[Net], choice: Literal["joint", "per_task"]) -> list[dict[str, Tensor]]:
        learner = Learner(method, net, lambda parameters: torch.optim.SGD(parameters, lr=1 / 64), choice)
        moments, _ = toy_fit(learner, toy_data(num_clients=2, alpha="iid", batch_size=7), rounds=1, epochs=2)
        return [moment.weights for moment in moments]

    runs = weights(SmallResNet, "per_task"), weights(Apart, "joint"), weights(SmallResNet, "joint")
    for per_task, apart in zip(*runs[:2], strict=True):
        for name, value in per_task.items():
            torch.testing.assert_close(value, apart[name], rtol=1e-4, atol=1e-5)
    per_task, joint = runs[0][-1], runs[2][-1]
    assert max((per_task[name] - joint[name]).abs().max().item() for name in per_task) > 0.01
