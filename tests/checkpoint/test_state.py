from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedqcl.checkpoint.state import RunState, read_run
from fedqcl.costs import Costs
from fedqcl.errors import InputError
from fedqcl.evaluate import Evaluator
from fedqcl.methods import DERpp, FedAvg, FedQCL, Method
from fedqcl.run.log import SilentLog
from fedqcl.schedule import Schedule
from fedqcl.tracker import Tracker
from tests.helpers.toy import Linear, Normed, copied, same, toy_data, toy_engine, toy_learner


def state(method: Method, net: type = Normed) -> RunState:
    """A run's state at its beginning."""
    data = toy_data(scenario="class")
    engine = toy_engine(toy_learner(method, net=net), data)
    evaluator = Evaluator(engine.fabric, data.evaluation_pool(engine.fabric.device, "test"), data.spec)
    return RunState(engine, Tracker(evaluator, SilentLog(), Schedule(3, 2, 3, 1.0, 0), Costs(engine)))


def write(state: RunState, folder: Path) -> Path:
    for name, content in state.files((1, 2)).items():
        torch.save(content, folder / name)
    return folder


def scramble(state: RunState) -> None:
    """Give every tensor other values."""
    for module in (state.engine.server.net, state.engine.server.state, *state.engine.clients.values()):
        for value in module.state_dict().values():
            value.copy_(torch.randn(value.shape) * 9 if value.is_floating_point() else torch.randint(9, value.shape))


def tensors(state: RunState) -> dict[str, torch.Tensor]:
    """All tensors of a run's state."""
    modules = {"net": state.engine.server.net, "server": state.engine.server.state}
    modules |= {str(i): client for i, client in state.engine.clients.items()}
    return {f"{name}/{key}": value for name, module in modules.items() for key, value in copied(module).items()}


@pytest.mark.parametrize("method", [FedQCL(memory=9), DERpp(memory=9), FedAvg()])
def test_every_tensor_is_saved_and_loaded_in_place(method: Method, tmp_path: Path) -> None:
    saved, loaded = state(method), state(method)
    scramble(saved)
    write(saved, tmp_path)
    places = [p.data_ptr() for p in loaded.engine.server.net.parameters()]
    assert not same(tensors(saved), tensors(loaded))
    loaded.load(tmp_path)
    assert same(tensors(saved), tensors(loaded))
    assert [p.data_ptr() for p in loaded.engine.server.net.parameters()] == places
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clients-0.pt", "run.pt", "server.pt"]


def test_going_on_in_a_task_hosts_the_clients_that_are_dealt_for_it(tmp_path: Path) -> None:
    saved, loaded = state(FedQCL(memory=9)), state(FedQCL(memory=9))
    hosted = []
    loaded.engine.host_afresh = hosted.append  # type: ignore[method-assign]
    loaded.load(write(saved, tmp_path))
    torch.save({**read_run(tmp_path), "position": [3, 0]}, tmp_path / "run.pt")  # all three tasks are done
    loaded.load(tmp_path)
    assert hosted == [1, 2]


def test_clients_are_found_whichever_rank_has_written_them(tmp_path: Path) -> None:
    saved, loaded = state(FedQCL(memory=9)), state(FedQCL(memory=9))
    scramble(saved)
    files = saved.files((1, 2))
    clients = files.pop("clients-0.pt")
    for rank, mine in enumerate(([1], [0, 2])):
        files[f"clients-{rank}.pt"] = {i: clients[i] for i in mine}
    for name, content in files.items():
        torch.save(content, tmp_path / name)
    loaded.load(tmp_path)
    assert same(tensors(saved), tensors(loaded))
    (tmp_path / "clients-0.pt").unlink()
    with pytest.raises(InputError, match=r"another net or method than this \(clients 1 are missing\)$"):
        loaded.load(tmp_path)


def test_what_is_saved_does_not_change_with_the_run() -> None:
    one = state(FedQCL(memory=9))
    scramble(one)
    before = tensors(one)
    files = one.files((1, 2))
    scramble(one)
    assert same(before, {f"net/{k}": v for k, v in files["server.pt"]["net"].items()} | {
        f"{i}/{k}": v for i in range(3) for k, v in files["clients-0.pt"][i].items()
    })  # fmt: skip


def test_what_a_checkpoint_says_of_its_run(tmp_path: Path) -> None:
    run = read_run(write(state(FedAvg()), tmp_path))
    assert run["position"] == [1, 2]
    assert run["run_id"] is None


@pytest.mark.parametrize("other", [state(FedQCL(memory=9), Linear), state(FedQCL(memory=8)), state(DERpp(memory=9))])
def test_a_checkpoint_for_another_net_or_method(other: RunState, tmp_path: Path) -> None:
    write(state(FedQCL(memory=9)), tmp_path)
    with pytest.raises(InputError, match=r"^ckpt_path: .* is for another net or method than this \(.*\)$"):
        other.load(tmp_path)


def test_code_is_not_run(tmp_path: Path) -> None:
    one = state(FedAvg())
    write(one, tmp_path)
    torch.save({"net": Linear(1, 2), "state": {}}, tmp_path / "server.pt")
    with pytest.raises(InputError, match=r"^ckpt_path: "):
        one.load(tmp_path)
