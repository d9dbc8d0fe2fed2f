"""Results that repeat bit for bit on CUDA."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Run a block with the algorithms of PyTorch, cuDNN and cuBLAS that repeat bit for bit, and no others.

    cuBLAS needs a workspace of fixed size for it, which it takes once for every stream: the block must begin before
    anything is multiplied on the device.
    """
    cudnn, utils = torch.backends.cudnn, cast(Any, torch.utils.deterministic)
    before = torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, utils.fill_uninitialized_memory
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    cudnn.benchmark = False
    utils.fill_uninitialized_memory = False  # a help in finding faults, not needed for equal results
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        cudnn.benchmark, utils.fill_uninitialized_memory = before[1:]
