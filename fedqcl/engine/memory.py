"""How much of a GPU's memory a run needs, worked out before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from fedqcl.data.augment import JITTERED
from fedqcl.data.pool import Pool
from fedqcl.engine.averaging import all_reduce
from fedqcl.engine.graphed import AHEAD, GraphedExecutor
from fedqcl.engine.server import num_bytes
from fedqcl.errors import InputError, first_line
from fedqcl.parts import Spec

if TYPE_CHECKING:
    from fedqcl.engine.ranks import Engine

# Seen on an H200: what cuBLAS and cuDNN take for every stream, and how many of the largest activations are about at
# once besides what is saved, in a training step and in a test.
WORKSPACE = 64 * 2**20
PASSING, PASSING_IN_TEST = 6, 8


@dataclass(frozen=True)
class Footprint:
    """Sizes from which a rank's memory follows.

    Attributes:
        images: bytes of all images and labels on the device.
        weights: bytes of the net's parameters and buffers, float32.
        state: bytes of one client's state.
        server: bytes of the server's.
        saved: numbers that a step saves for its backward pass, per sample.
        largest: numbers in the largest of these, per sample.
        pixels: bytes of one image.
        step: samples of the largest step, current and replayed ones.
        test: samples of a test's batch.
        jittered: images whose colours are jittered at once.
        replicas: clients at work at once.
        mixed: whether activations are bfloat16.
        graphed: whether steps are captured.
    """

    images: int
    weights: int
    state: int
    server: int
    saved: int
    largest: int
    pixels: int
    step: int
    test: int
    jittered: int
    replicas: int
    mixed: bool
    graphed: bool

    @classmethod
    def of(cls, engine: Engine, test: Pool, test_batch: int) -> Footprint:
        """Measure an engine.

        Args:
            engine: ready to start.
            test: the images the global model is tested on.
            test_batch: how many of them at a time.
        """
        data, spec, state = engine.data, engine.data.spec, engine.replicas[0].state
        assert spec is not None
        net = engine.learner.make_net(spec, data.seed)
        saved, largest = activations(net, spec)
        groups = len(state.replay(spec.num_tasks - 1))
        with engine.fabric.autocast():
            mixed = torch.is_autocast_enabled(engine.fabric.device.type)
        return cls(
            images=sum(num_bytes([pool.images, pool.y]) for pool in (engine.pool, test)),
            weights=num_bytes([*net.parameters(), *net.buffers()]),
            state=num_bytes(state.buffers()),
            server=num_bytes([*engine.server.state.parameters(), *engine.server.state.buffers()]),
            saved=saved,
            largest=largest,
            pixels=spec.channels * spec.size[0] * spec.size[1],
            step=data.batch_size + groups * engine.sampler.replay_batch,
            test=test_batch,
            jittered=JITTERED if data.augment and data.augment.jitter else 0,
            replicas=len(engine.replicas),
            mixed=mixed,
            graphed=isinstance(engine.executor, GraphedExecutor),
        )

    @property
    def replica(self) -> int:
        """Bytes of one client at work.

        The net and its gradients, in mixed precision both again in half the size, activations and their gradients,
        and, captured, images of steps to come, with three copies in float32 of those whose colours are jittered. In
        mixed precision a convolution's gradient may be kept until those of all weights are there, which for all of
        them is about half of what is saved.
        """
        number = 2 if self.mixed else 4
        nets = (3 if self.mixed else 2) * self.weights
        kept = self.saved * 3 // 2 if self.mixed else self.saved
        activations = number * self.step * (kept + PASSING * self.largest)
        ahead = WORKSPACE + (AHEAD * self.step + 3 * 4 * self.jittered) * self.pixels if self.graphed else 0
        return nets + self.state + activations + ahead

    @property
    def total(self) -> int:
        """Bytes that a rank will hold at most in a round; what a method works out as a task ends may take more."""
        average = 7 * self.weights  # float64: the start, the sum, one client's difference; and its net once more
        test = (2 if self.mixed else 4) * self.test * PASSING_IN_TEST * self.largest
        standing = self.images + self.weights + self.server + WORKSPACE
        return standing + self.replicas * self.replica + average + test


def activations(net: nn.Module, spec: Spec) -> tuple[int, int]:
    """Numbers that one sample's training step saves for the backward pass, and the most in one tensor.

    Args:
        net: on the CPU; only its BatchNorms' running statistics change.
        spec: says how large a sample is.
    """
    weights = {value.data_ptr() for value in net.parameters()}
    sizes: dict[int, int] = {}

    def note(value: Tensor) -> Tensor:
        if value.data_ptr() not in weights and value.dim() > 1:
            sizes[value.data_ptr()] = value.numel()
        return value

    n = 2  # BatchNorm refuses a single sample of one pixel
    with saved_tensors_hooks(note, lambda value: value):
        output = net.train()(torch.zeros(n, spec.channels, *spec.size))
    del output
    return sum(sizes.values()) // n, max(sizes.values()) // n


def check_memory(needed: int, device: torch.device) -> str:
    """Say how a GPU's memory compares with what a run needs.

    Args:
        needed: bytes.
        device: a CUDA device.

    Raises:
        InputError: it has not that much free.
    """
    free, total = torch.cuda.mem_get_info(device)
    if needed > free:
        raise InputError(
            f"trainer.devices: the run needs about {_gib(needed)} on each GPU, and {device} has {_gib(free)} of "
            f"{_gib(total)} free; choose other devices by CUDA_VISIBLE_DEVICES, or lower trainer.concurrency"
        )
    return f"about {_gib(needed)} of {_gib(total)} on each GPU"


def explain_memory(error: torch.OutOfMemoryError, device: torch.device) -> InputError:
    """What to do about a device that has no memory left."""
    room = ""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        room = f", {_gib(free)} of {_gib(total)} are free"
    wanted = first_line(error).partition(". GPU ")[0]  # torch goes on with what every process holds
    return InputError(
        f"trainer.concurrency: {device} is out of memory{room} ({wanted}); run fewer clients at once, "
        "choose other devices by CUDA_VISIBLE_DEVICES, or smaller batches"
    )


def peak_memory(device: torch.device) -> int | None:
    """The most that any rank's GPU memory held for this process, in bytes; None on the CPU."""
    if device.type != "cuda":
        return None
    peak = torch.tensor(torch.cuda.max_memory_reserved(device), dtype=torch.float64, device=device)
    all_reduce(peak, "max")
    return int(peak)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
