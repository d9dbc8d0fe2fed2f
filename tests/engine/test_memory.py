from __future__ import annotations

import pytest
import torch
from torch import nn

from fedqcl.engine.graphed import AHEAD
from fedqcl.engine.memory import PASSING, PASSING_IN_TEST, WORKSPACE, Footprint, activations, check_memory, peak_memory
from fedqcl.errors import InputError
from fedqcl.learner import Learner
from fedqcl.methods import FedQCL
from fedqcl.models import SmallResNet
from fedqcl.parts import Spec
from tests.helpers.toy import toy_data, toy_engine

SPEC = Spec(channels=1, size=(2, 2), classes=(1, 1), scenario="task")


def test_what_a_step_saves_is_counted_once() -> None:
    # The image, 4 numbers, for the first layer's gradient; 3 behind the ReLU, for its own and the second layer's.
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert activations(net, SPEC) == (4 + 3, 4)


def test_a_client_at_work() -> None:
    sizes = {
        "images": 7,
        "weights": 1000,
        "state": 50,
        "server": 60,
        "saved": 11,
        "largest": 5,
        "pixels": 4,
        "step": 3,
        "test": 9,
    }
    plain = Footprint(**sizes, jittered=6, replicas=2, mixed=False, graphed=False)
    assert plain.replica == 2 * 1000 + 50 + 4 * 3 * (11 + PASSING * 5)
    mixed = Footprint(**sizes, jittered=6, replicas=2, mixed=True, graphed=True)
    jittered = 3 * 6 * 4 * 4
    assert mixed.replica == 3 * 1000 + 50 + 2 * 3 * (16 + PASSING * 5) + WORKSPACE + AHEAD * 3 * 4 + jittered
    test = 4 * 9 * PASSING_IN_TEST * 5
    assert plain.total == 7 + 1000 + 60 + WORKSPACE + 2 * plain.replica + 7 * 1000 + test


def test_the_largest_step_replays_every_past_task() -> None:
    data = toy_data(batch_size=4)
    engine = toy_engine(Learner(FedQCL(replay_batch=3), SmallResNet), data)
    assert data.spec is not None
    footprint = Footprint.of(engine, engine.pool, 9)
    assert footprint.step == 4 + 3 * (data.spec.num_tasks - 1)
    assert footprint.weights == 4 * sum(v.numel() for v in engine.server.net.parameters()) + sum(
        v.numel() * v.element_size() for v in engine.server.net.buffers()
    )


def test_too_little_memory_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * 2**30, 80 * 2**30))
    device = torch.device("cuda", 1)
    assert check_memory(2**30, device) == "about 1.0 GiB of 80.0 GiB on each GPU"
    with pytest.raises(InputError, match=r"^trainer\.devices: .* about 4\.0 GiB .* cuda:1 has 3\.0 GiB of 80"):
        check_memory(4 * 2**30, device)


def test_a_cpu_has_no_peak() -> None:
    assert peak_memory(torch.device("cpu")) is None
