"""A client that fails ends the run, or is left out of the round as if it had not been there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedqcl.data import FederatedData
from fedqcl.engine.faults import Faults
from fedqcl.errors import ClientError, InputError
from fedqcl.methods import EWC, ClientState, FedQCL, Stats
from fedqcl.parts import Batch, Shard
from tests.helpers.toy import Moment, same, toy_data, toy_fit, toy_learner


class Failing(FedQCL):
    """Client 1 fails in the second task: ``where`` names the hook that raises, or what comes out not finite."""

    def __init__(self, data: FederatedData, where: str, error: BaseException | None = None) -> None:
        super().__init__(V=4, delta=-0.5, memory=6, replay_batch=2)
        self.where = where
        self.error = error or ValueError("bad luck\nand more of it")
        self.images = set(data.shards[1][1].tolist())

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        value = super().loss(net, batch, client, server)
        if int(batch.index[0]) not in self.images:
            return value
        if self.where == "loss":
            raise self.error
        return value * (float("nan") if self.where == "model" else 1)

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        at_fault = (shard.client, shard.task) == (1, 1)
        super().client_round(net, shard, client, server)
        if at_fault and self.where == "client_round":
            raise self.error
        return {"n": torch.tensor(float("inf") if at_fault and self.where == "stats" else 1.0)}

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        super().client_task(net, shard, client, server)
        if (shard.client, shard.task, self.where) == (1, 1, "client_task"):
            raise self.error
        return {"ended": torch.tensor(1)}

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        self.ended = int(stats["ended"])


def fit(
    where: str, error: BaseException | None = None, empty: bool = False, **policy: Any
) -> tuple[list[Moment], list[str], Failing]:
    """Two rounds a task on three clients; ``empty``: client 1 has no samples of the second task."""
    data = toy_data(alpha="iid")
    method = Failing(data, where, error)
    if empty:
        data.shards[1][1] = np.array([], np.int64)
    faults = Faults(**policy)
    moments, _ = toy_fit(toy_learner(method), data, faults=faults)
    return moments, faults.take_lines(), method


POLICIES = [
    *[(where, {"on_client_error": "skip"}, "ValueError: bad luck") for where in ("loss", "client_round")],
    *[(where, {"on_nonfinite": "drop"}, "its update is not finite") for where in ("model", "stats")],
]


@pytest.mark.parametrize(("where", "policy", "why"), POLICIES)
def test_a_client_left_out_is_as_one_without_samples(where: str, policy: dict[str, Any], why: str) -> None:
    moments, lines, _ = fit(where, **policy)
    expected, none, _ = fit("nowhere", empty=True)
    for a, b in zip(moments[:4], expected[:4], strict=True):
        assert same(a.weights, b.weights)
        assert all(same(a.clients[i], b.clients[i]) for i in range(3))
        assert [report.client for report in a.reports] == [report.client for report in b.reports]
    assert [report.client for report in moments[3].reports] == [0, 2]
    assert lines == [f"client 1, task 2, round {round}: left out, {why}" for round in (1, 2)]
    assert none == []
    # In the third task it is there again.
    assert [report.client for report in moments[4].reports] == [0, 1, 2]
    assert all(torch.isfinite(value).all() for value in moments[-1].weights.values())


def test_a_hook_that_raises_at_the_end_of_a_task_counts_for_nothing() -> None:
    moments, lines, method = fit("client_task", on_client_error="skip")
    assert lines == ["client 1, end of task 2: left out, ValueError: bad luck"]
    assert moments[4].clients[1]["memory.count"].tolist() == [6, 0, 0]
    assert moments[4].clients[0]["memory.count"].tolist() == [3, 3, 0]
    assert method.ended == 3  # in the last task


@pytest.mark.parametrize(("where", "policy", "why"), POLICIES)
def test_a_round_in_which_every_client_is_left_out_keeps_the_model(
    where: str, policy: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = toy_data(num_clients=2, alpha="iid")
    data.shards[1][0] = np.array([], np.int64)
    faults = Faults(**policy)
    moments, _ = toy_fit(toy_learner(Failing(data, where)), data, faults=faults)
    for moment in moments[2:4]:
        assert same(moment.weights, moments[1].weights)
        assert moment.reports == []
    assert not same(moments[4].weights, moments[3].weights)


def test_what_all_clients_fail_at_is_no_fault_of_theirs() -> None:
    class Broken(FedQCL):
        def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
            raise KeyError("typo")

    expected = r"^client 0, task 1, round 1: KeyError: 'typo'; and all other clients fail, too$"
    with pytest.raises(ClientError, match=expected):
        toy_fit(toy_learner(Broken()), toy_data(), faults=Faults(on_client_error="skip"))


def test_what_all_clients_fail_at_when_a_task_ends_is_told_before_the_server_misses_it() -> None:
    class Broken(EWC):
        def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
            raise KeyError("typo")

    expected = r"^client 0, end of task 1: KeyError: 'typo'; and all other clients fail, too$"
    with pytest.raises(ClientError, match=expected):
        toy_fit(toy_learner(Broken()), toy_data(), faults=Faults(on_client_error="skip"))


WHEN = {"loss": "task 2, round 1", "client_round": "task 2, round 1", "client_task": "end of task 2"}


@pytest.mark.parametrize("where", WHEN)
def test_an_error_names_client_task_and_round(where: str) -> None:
    with pytest.raises(ClientError, match=f"^client 1, {WHEN[where]}: ValueError: bad luck$") as caught:
        fit(where)
    assert str(caught.value.__cause__).startswith("bad luck\nand")


@pytest.mark.parametrize("where", WHEN)
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_mistake_of_the_user_stays_one(where: str, policy: str) -> None:
    with pytest.raises(InputError, match=rf"^model\.V: too much \(client 1, {WHEN[where]}\)$"):
        fit(where, InputError("model.V: too much"), on_client_error=policy)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_what_stops_the_program_is_let_through(error: BaseException, policy: str) -> None:
    with pytest.raises(type(error)) as caught:
        fit("loss", error, on_client_error=policy)
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("CUDA error: device-side assert")],
    ids=lambda error: type(error).__name__,
)
def test_a_device_that_is_full_or_broken_is_no_client_s_fault(error: Exception) -> None:
    with pytest.raises(ClientError, match=r"^client 1, task 2, round 1: ") as caught:
        fit("loss", error, on_client_error="skip")
    assert caught.value.__cause__ is error


def test_a_device_without_memory_is_told_as_it_is() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        fit("loss", torch.OutOfMemoryError("CUDA out of memory"), on_client_error="skip")


@pytest.mark.parametrize("where", ["model", "stats"])
def test_an_update_that_is_not_finite_is_refused(where: str) -> None:
    with pytest.raises(InputError, match=r"^model: training diverged, client 1, task 2, round 1: .*on_nonfinite: drop"):
        fit(where, on_client_error="skip")


def test_lines_are_taken_once() -> None:
    faults = Faults(on_nonfinite="drop")
    faults.drop(3, task=0, round=1)
    assert faults.take_lines() == ["client 3, task 1, round 2: left out, its update is not finite"]
    assert faults.take_lines() == []
    with pytest.raises(InputError, match="clients 1, 2, task 1, round 1"):
        Faults().diverged([1, 2], 0, 0)
    Faults().diverged([], 0, 0)
