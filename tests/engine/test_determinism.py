from __future__ import annotations

import torch

from fedqcl.engine.determinism import deterministic_algorithms
from fedqcl.learner import Learner
from fedqcl.methods import FedQCL
from fedqcl.models import SmallResNet
from tests.helpers.toy import same, toy_data, toy_fit


def test_settings_hold_in_the_block_alone() -> None:
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    with deterministic_algorithms():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    after = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    assert after == before


def test_a_run_repeats_bit_for_bit() -> None:
    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    learner = Learner(FedQCL(V=2, replay_batch=3), SmallResNet)
    with deterministic_algorithms():
        one, two = (toy_fit(learner, toy_data(), accelerator=accelerator)[0] for _ in range(2))
    for a, b in zip(one, two, strict=True):
        assert same(a.weights, b.weights)
