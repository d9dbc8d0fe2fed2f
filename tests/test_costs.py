"""What each method costs, formula by formula (the paper's complexity table), counted in a small run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from fedqcl import loop, methods
from fedqcl.costs import Costs
from fedqcl.engine import Engine
from fedqcl.engine.replica import Report
from fedqcl.engine.rules import Rules
from fedqcl.methods import FedAvg, Method
from fedqcl.schedule import Schedule
from tests.helpers.methods import shipped_methods
from tests.helpers.toy import Normed, toy_data, toy_engine, toy_learner

Scenario = Literal["task", "class"]
# Tasks, clients, classes of all tasks and of one, features, batch, replay batch, memory, a client's images of a task.
T, N, K, OWN, F, B, b, M, n = 3, 3, 6, 2, 5, 5, 2, 6, 8
IMAGE = 16
D = 16 * F + F + K * F + K  # weights of the net
INDEX = 8 * M + 8 * T
QUEUES = 4 * (2 * T + 2 + 1)  # value and reference of each, drift and its bound, and V


@dataclass(frozen=True)
class Cost:
    """In bytes, beside the model that travels in any case; then images."""

    stored: int = 0
    served: int = 0
    sent: int = 0
    received: int = 0
    sent_at_end: int = 0
    received_at_end: int = 0
    steps: list[int] = field(default_factory=lambda: [B, B, B])
    # Forward passes without a gradient: in a step, in a client's round, and when a task ends; in the second task.
    forward: tuple[int, int, int] = (0, 0, 0)


MEMORY = INDEX + M * IMAGE
MEANS = 4 * K * F + K  # of the classes' features, and which of them are known
PAST = [B, B + b, B + b]
EACH = [B, B + b, B + 2 * b]
EXPECTED = {
    "FedAvg": Cost(),
    "FedProx": Cost(served=4 * D),
    "FedProto": Cost(stored=MEANS, served=MEANS, sent=4 * K * (F + 1), received=MEANS, forward=(0, n, 0)),
    "EWC": Cost(stored=8 * D, served=8 * D + K * K, sent_at_end=4 * (D + 1), received_at_end=4 * D),
    "LwF": Cost(stored=4 * D, served=4 * D, forward=(B, 0, 0)),
    "ER": Cost(stored=MEMORY, steps=PAST),
    "DER": Cost(stored=MEMORY + 4 * M * K, steps=PAST, forward=(0, 0, M // 2)),
    "DERpp": Cost(stored=MEMORY + 4 * M * K, steps=[B, B + 2 * b, B + 2 * b], forward=(0, 0, M // 2)),
    "BI": Cost(stored=16 * M + M * IMAGE, steps=PAST, forward=(0, 0, 12 * n)),
    "CCVR": Cost(served=4 * K * (F + F * F) + K, sent_at_end=4 * OWN * (1 + F + F * F), forward=(0, 0, n)),
    "FOT": Cost(served=4 * 16 * 16, sent_at_end=4 * 16 * 16, forward=(0, 0, n)),
    "FedQCL": Cost(stored=MEMORY + QUEUES, steps=EACH, forward=(0, M, M)),
    "ConstantReplay": Cost(stored=MEMORY + QUEUES, steps=EACH, forward=(0, 0, M)),
    # Half is left of the first task when it is measured, and a third of each is measured once more.
    "FedQCLAuthors": Cost(stored=MEMORY + QUEUES + 4 * T, steps=EACH, forward=(0, 3, M + 4)),
}


class Watched:
    """A tracker that counts costs, and images that a client's nets look at without a gradient."""

    def __init__(self, engine: Engine) -> None:
        self.costs = Costs(engine)
        self.engine = engine
        self.call = engine.call
        self.images: Counter[tuple[int, str]] = Counter()
        self.place = 0, "step"
        self.totals: list[tuple[int, int]] = []
        engine.call = self.hook  # type: ignore[method-assign]
        for module in (engine.replicas[0].net, engine.server.state):
            for name, part in module.named_modules():
                if name.endswith("backbone"):
                    part.register_forward_pre_hook(self.look)

    def look(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not torch.is_grad_enabled():
            self.images[self.place] += len(inputs[0])

    def hook(self, hook: Any, local: Any) -> Any:
        self.place = local.shard.task, hook.__name__
        reported = self.call(hook, local)
        self.place = local.shard.task, "step"
        return reported

    def start_round(self) -> None:
        """There is no clock."""

    def end_round(self, task: int, round: int, engine: Engine, reports: Sequence[Report]) -> None:
        self.totals.append(self.costs.end_round(len(reports)))
        self.steps = sum(report.steps for report in reports)

    def end_task(self, task: int, engine: Engine) -> None:
        self.totals.append(self.costs.end_task())
        self.place = task + 1, "step"


def watched(name: str, scenario: Scenario = "task", engine: dict[str, Any] | None = None, **options: Any) -> Watched:
    """A run of one round a task."""
    cls: type[Method] = getattr(methods, name)
    small = {key: value for key, value in {"memory": M, "replay_batch": b}.items() if key in signature(cls).parameters}
    data = toy_data(alpha="iid", scenario=scenario)
    learner = toy_learner(cls(**small, **options))
    watch = Watched(toy_engine(learner, data, **engine or {}))
    loop.fit(learner.method, watch.engine, Schedule(T, 1, N, 1.0, 0), watch)  # type: ignore[arg-type]
    return watch


def test_the_table_has_every_method_of_the_package() -> None:
    assert EXPECTED.keys() == {cls.__name__ for cls in shipped_methods()}


@pytest.mark.parametrize("name", EXPECTED)
def test_costs(name: str) -> None:
    cost, watch = EXPECTED[name], watched(name)
    assert watch.costs.summary() == {
        "bytes_sent_per_round": 4 * D + cost.sent,
        "bytes_received_per_round": 4 * D + cost.received,
        "bytes_sent_per_task": cost.sent_at_end,
        "bytes_received_per_task": cost.received_at_end,
        "client_storage_bytes": cost.stored,
        "server_storage_bytes": cost.served,
        "gradient_images_per_step": cost.steps,
    }
    a_round = N * (4 * D + cost.sent), N * (4 * D + cost.received)
    assert watch.totals == [a_round, (N * cost.sent_at_end, N * cost.received_at_end)] * T
    steps = watch.images[1, "step"] / watch.steps
    of_client = [watch.images[1, hook] / N for hook in ("client_round", "client_task")]
    assert (steps, *of_client) == cost.forward


def test_class_incremental_fedqcl_also_stores_logits() -> None:
    assert watched("FedQCL", "class", V=1.0).costs.summary()["client_storage_bytes"] == MEMORY + QUEUES + 4 * M * K


def test_a_fisher_of_one_s_own_is_not_sent() -> None:
    found = watched("EWC", fisher="local").costs.summary()
    assert found["client_storage_bytes"] == 8 * D
    assert found["bytes_sent_per_task"] == found["bytes_received_per_task"] == 0


@pytest.mark.parametrize(("personal", "left"), [("nothing", D + 4), ("statistics", D + 2), ("model", 0)])
def test_what_is_personal_is_not_sent_but_stored(personal: str, left: int) -> None:
    learner = toy_learner(FedAvg(), net=Normed)  # one channel: two weights and two statistics more
    engine = toy_engine(learner, toy_data(), rules=Rules(personal=personal))
    found = Costs(engine).summary()
    assert found["bytes_sent_per_round"] == found["bytes_received_per_round"] == 4 * left
    assert found["client_storage_bytes"] == 4 * (D + 4 - left)


def test_a_round_without_anyone_costs_nothing() -> None:
    costs = Costs(toy_engine(toy_learner(FedAvg()), toy_data()))
    assert costs.end_round(0) == (0, 0)
    assert costs.end_round(2) == (2 * 4 * D, 2 * 4 * D)


def test_a_run_that_is_gone_on_with_knows_what_was_sent() -> None:
    watch = watched("FOT")
    other = Costs(watch.engine)
    assert other.summary() != watch.costs.summary()
    other.load(watch.costs.state())
    assert other.summary() == watch.costs.summary()
