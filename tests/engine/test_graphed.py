"""Captured steps against plain ones, on a GPU; and which optimizers can be captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, optim
from torch.optim import Optimizer

from fedqcl.engine import graphed
from fedqcl.engine.determinism import deterministic_algorithms
from fedqcl.learner import Learner
from fedqcl.methods import EWC, FedAvg, FedQCL, Method
from fedqcl.models import SmallResNet
from tests.helpers.methods import method_classes, skip_if_refused, small_method
from tests.helpers.toy import Moment, Toy, same, toy_data, toy_engine, toy_fit

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "momentum": lambda parameters: optim.SGD(parameters, lr=0.01, momentum=0.5),
    # Capturable in both: Adam rounds otherwise where its counter is on the device, and training magnifies that.
    "Adam": lambda parameters: optim.Adam(parameters, lr=3e-3, eps=1e-2, capturable=torch.cuda.is_available()),
}


@pytest.fixture
def _repeatable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same algorithms for both, in full float32; and a buffer so small that a round fills it several times."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(graphed, "AHEAD", 2)
    with deterministic_algorithms():
        yield


@pytest.fixture
def _pretended_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that are none, and graphs that take the step itself when they are replayed."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream: nullcontext())
    capture = graphed.CapturedStep._capture

    def pretend(step: graphed.CapturedStep) -> None:
        capture(step)
        step.graph.replay = step._step

    monkeypatch.setattr(graphed.CapturedStep, "_capture", pretend)


def rounds(
    learner: Learner,
    executor: str,
    scenario: Literal["task", "class"] = "task",
    accelerator: str = "cuda",
    precision: Literal["32-true", "bf16-mixed"] = "32-true",
) -> list[Moment]:
    """Two rounds of each of three tasks: three of five clients at a time, on two seats."""
    source = Toy(per_class=45 if accelerator == "cuda" else 15, noise=150)
    data = toy_data(source, num_clients=5, alpha=1.0, batch_size=4, scenario=scenario, seed=1)
    skip_if_refused(learner.method, data.spec)
    data.shards[1][2] = np.array([], np.int64)
    options = {"accelerator": accelerator, "precision": precision, "executor": executor}
    moments, _ = toy_fit(learner, data, rounds=2, epochs=2, participation=0.6, concurrency=2, **options)
    return moments


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """How far all weights and running statistics of one model are from another's, as a share of their norm."""
    x, y = (torch.cat([w[name].flatten() for name in sorted(w) if w[name].is_floating_point()]) for w in (a, b))
    return ((x - y).norm() / y.norm()).item()


@gpu
@pytest.mark.usefixtures("_repeatable")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("scenario", "replay_statistics"), [("task", "joint"), ("task", "per_task"), ("class", "joint")]
)
@pytest.mark.parametrize("method", method_classes())
def test_captured_steps_agree_with_plain_ones(
    method: type[Method],
    replay_statistics: Literal["joint", "per_task"],
    scenario: Literal["task", "class"],
    optimizer: str,
) -> None:
    learner = Learner(small_method(method), SmallResNet, OPTIMIZERS[optimizer], replay_statistics)
    for plain, captured in zip(rounds(learner, "eager", scenario), rounds(learner, "graphed", scenario), strict=True):
        assert {r.client: r.steps for r in captured.reports} == {r.client: r.steps for r in plain.reports}
        losses = ({r.client: r.loss.item() for r in moment.reports} for moment in (captured, plain))
        assert next(losses) == pytest.approx(next(losses), rel=1e-3)
        assert distance(captured.weights, plain.weights) < 1e-4
        for client, state in plain.clients.items():
            torch.testing.assert_close(captured.clients[client], state, rtol=1e-3, atol=1e-3)
    # And both have moved, by far more than they differ.
    start = learner.make_net(toy_data().spec, seed=1).head.weight.detach()
    assert (captured.weights["head.weight"].cpu() - start).norm() > 1e-2 * start.norm()


@gpu
@pytest.mark.usefixtures("_repeatable")
@pytest.mark.parametrize("momentum", [0, 0.5])
@pytest.mark.parametrize("method", [FedQCL, EWC])
def test_steps_in_bfloat16_repeat_and_are_near_plain_ones(method: type[Method], momentum: float) -> None:
    optimizer = partial(optim.SGD, lr=0.01, momentum=momentum)
    learner = Learner(small_method(method), SmallResNet, optimizer, "per_task")
    plain, captured, again = (
        rounds(learner, executor, precision="bf16-mixed") for executor in ("eager", "graphed", "graphed")
    )
    for one, two, other in zip(plain, captured, again, strict=True):
        assert same(two.weights, other.weights)
        assert distance(two.weights, one.weights) < 1e-2


@gpu
def test_the_host_waits_for_nothing_while_steps_run() -> None:
    engine = toy_engine(Learner(small_method(FedAvg), SmallResNet), toy_data(batch_size=4), accelerator="cuda")
    for round in range(2):
        for locals in engine.broadcast(range(5), 0):
            engine.local_steps(locals, round)  # captured in the first round
            torch.cuda.set_sync_debug_mode("error")
            try:
                engine.executor.run(locals, engine.server.state)
            finally:
                torch.cuda.set_sync_debug_mode("default")


# What differs from client to client must be read from where a captured step finds the next client's.
OF_EACH_CLIENT = [
    EWC(fisher="local"),
    FedQCL(V=[1.0, 2.0, 3.0, 2.0, 0.5], delta=-0.5, memory=30, replay_batch=3, normalise="V+sumQ"),
]


@pytest.mark.usefixtures("_repeatable", "_pretended_cuda")
@pytest.mark.parametrize("scenario", ["task", "class"])
@pytest.mark.parametrize(
    "method", [*map(small_method, method_classes()), *OF_EACH_CLIENT], ids=lambda m: type(m).__name__
)
def test_what_is_captured_is_the_plain_step(method: Method, scenario: Literal["task", "class"]) -> None:
    """All but CUDA itself, where there is none: buffers, positions, restored values, fresh optimizers."""
    learner = Learner(method, SmallResNet, OPTIMIZERS["momentum"], "per_task")
    plain, captured = (rounds(learner, executor, scenario, "cpu") for executor in ("eager", "graphed"))
    for one, other in zip(plain, captured, strict=True):
        assert [(r.client, r.steps, r.loss.item()) for r in one.reports] == [
            (r.client, r.steps, r.loss.item()) for r in other.reports
        ]
        assert same(one.weights, other.weights)
        assert all(same(state, other.clients[client]) for client, state in one.clients.items())


@gpu
@pytest.mark.usefixtures("_repeatable")
def test_the_problem_has_what_could_go_wrong() -> None:
    (method,) = (cls for cls in method_classes() if cls.__name__ == "FedQCL")
    moments = rounds(Learner(small_method(method), SmallResNet, OPTIMIZERS["momentum"]), "graphed")
    steps = [[report.steps for report in moment.reports] for moment in moments]
    assert all(len(set(of_round)) > 1 for of_round in steps)  # ragged
    assert all(max(of_round) > graphed.AHEAD for of_round in steps)
    assert {len(of_round) for of_round in steps} == {2, 3}  # some without the client that has no samples
    assert max(state["queue.value"].max().item() for m in moments for state in m.clients.values()) > 0.5


@pytest.mark.parametrize(
    ("make", "options", "expected"),
    [
        (optim.SGD, {}, True),
        (optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}, True),
        (optim.SGD, {"momentum": 0.9, "nesterov": True}, True),
        (optim.Adam, {}, True),
        (optim.Adam, {"amsgrad": True}, True),
        (optim.AdamW, {}, True),
        (optim.Adamax, {}, True),
        (optim.RAdam, {}, True),
        (optim.RMSprop, {"momentum": 0.9, "centered": True}, True),
        (optim.Adadelta, {}, True),
        (optim.SGD, {"momentum": 0.9, "dampening": 0.5}, False),
        (optim.NAdam, {}, False),
        (optim.ASGD, {}, False),
        (optim.Rprop, {}, False),
    ],
)
def test_which_optimizers_can_be_captured(
    make: Callable[..., Optimizer], options: dict[str, Any], expected: bool
) -> None:
    learner = Learner(FedAvg(), SmallResNet, lambda parameters: make(parameters, lr=0.1, **options))
    assert graphed.can_be_captured(learner, torch.device("cpu")) is expected


class Decaying(optim.SGD):
    """Counts on the host, in its settings."""

    def step(self, closure: Any = None) -> None:
        super().step()
        self.param_groups[0]["lr"] /= 2


class Counting(optim.SGD):
    """Counts on the host, in its state."""

    def step(self, closure: Any = None) -> None:
        super().step()
        for weight in self.param_groups[0]["params"]:
            self.state[weight]["step"] = self.state[weight].get("step", 0) + 1


@pytest.mark.parametrize("make", [Decaying, Counting])
def test_optimizers_that_count_on_the_host_are_not_captured(make: Callable[..., Optimizer]) -> None:
    learner = Learner(FedAvg(), SmallResNet, lambda parameters: make(parameters, lr=0.1))
    assert not graphed.can_be_captured(learner, torch.device("cpu"))


def test_adagrad_counts_on_the_host() -> None:
    elsewhere = torch.device("meta")
    assert not graphed.remembers_on(optim.Adagrad([torch.zeros(1, device=elsewhere)]), elsewhere)


@gpu
@pytest.mark.parametrize(("make", "expected"), [(optim.SGD, True), (optim.Adam, True), (optim.Adagrad, False)])
def test_which_optimizers_can_be_captured_on_a_gpu(make: Callable[..., Optimizer], expected: bool) -> None:
    learner = Learner(FedAvg(), SmallResNet, lambda parameters: make(parameters, lr=0.1))
    assert graphed.can_be_captured(learner, torch.device("cuda")) is expected
