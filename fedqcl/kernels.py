"""Launches Triton's kernels, and compiles those of a whole step side by side."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class Launcher:
    """Launches kernels, or does no more than compile them."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._compiled: dict[tuple[Any, ...], Future[None]] = {}
        self._rehearsal: list[Future[None]] = []

    def __call__(self, kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        """Launch ``kernel[grid](*args, **options)``, or see to it that it can be."""
        if self._pool is None:
            kernel[grid](*args, **options)
            return
        constants = tuple((name, value) for name, value in options.items() if name.isupper() or name == "num_warps")
        key = (kernel, _types(args), constants)
        if key not in self._compiled:
            device = torch.cuda.current_device()
            self._compiled[key] = self._pool.submit(_compile, device, kernel, grid, args, options)

    def rehearse(self, device: torch.device) -> None:
        """Let Triton do in the background what it does before its first kernel, which takes seconds.

        Args:
            device: a CUDA device.
        """
        pool = ThreadPoolExecutor(1)
        self._rehearsal = [pool.submit(_rehearse, device)]
        pool.shutdown(wait=False)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Compile the kernels that are launched inside, all at once, without running any: what is computed is rubbish.

        They come from all threads: a backward pass has one of its own.
        """
        wait(self._rehearsal)  # what went wrong in it will go wrong again, and be told of then
        with ThreadPoolExecutor() as pool:
            self._pool = pool
            try:
                yield
            finally:
                self._pool = None
        under_way, self._compiled = self._compiled, {}
        for kernel in under_way.values():
            kernel.result()


def _types(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The types of all tensors among arguments, tuples of tensors included."""
    return tuple(
        arg.dtype if isinstance(arg, Tensor) else _types(arg) for arg in args if isinstance(arg, (Tensor, tuple))
    )


def _compile(device: int, kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], options: dict[str, Any]) -> None:
    torch.cuda.set_device(device)
    compiled = kernel.warmup(*args, grid=grid, **options)
    compiled.run  # noqa: B018 (what starts it on the device is compiled when first asked for)


def _rehearse(device: torch.device) -> None:
    """Compile a kernel of nothing: before that, Triton builds its driver and takes a fingerprint of itself."""
    import triton

    _compile(device.index, triton.jit(_nothing), (1,), (), {})


def _nothing() -> None:
    pass


launch = Launcher()
