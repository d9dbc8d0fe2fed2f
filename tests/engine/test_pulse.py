from __future__ import annotations

import copy
import threading
import time

import pytest
import torch
from torch import nn

from fedqcl.engine.pulse import PULSE, LostContactError, Pulse, busy, meeting


def test_forward_passes_of_a_net_and_its_copies_count() -> None:
    net = nn.Linear(1, 1)
    PULSE.follow(net)
    PULSE.start()
    for each in (net, copy.deepcopy(net)):
        each(torch.ones(1, 1))
    assert PULSE.beats == 2
    assert not set(net.state_dict()) - {"weight", "bias"}
    PULSE.start()
    assert Pulse() == PULSE


def test_a_collective_that_fails_has_lost_contact() -> None:
    PULSE.start()
    with pytest.raises(LostContactError, match="closed by peer") as caught, meeting():
        raise RuntimeError("closed by peer")
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(torch.OutOfMemoryError), meeting():
        raise torch.OutOfMemoryError("none left")
    with pytest.raises(KeyError), meeting():
        raise KeyError("x")
    assert PULSE.met == 3


def test_a_busy_block_counts_as_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PULSE, "beats", 0)
    with busy():
        deadline = time.monotonic() + 30
        while not PULSE.beats and time.monotonic() < deadline:
            time.sleep(0.01)
    assert PULSE.beats > 0
    assert "busy" not in [thread.name for thread in threading.enumerate()]
