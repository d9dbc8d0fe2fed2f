"""Local steps as CUDA graphs: captured once a task and replayed, the clients of a GPU side by side on streams."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedqcl.engine.descent import Descent, PlainDescent, is_plain
from fedqcl.engine.eager import Precision, Watch, take_step
from fedqcl.engine.pulse import PULSE
from fedqcl.engine.replica import Replica
from fedqcl.kernels import launch
from fedqcl.learner import Learner

# Steps whose images are gathered at once, ahead of the steps: enough for large kernels, little memory.
AHEAD = 64
# The first step loads kernels, and makes the optimizer's state.
WARM_UP = 1


class CapturedStep:
    """One replica's whole step as a graph: batch, forward, loss, backward, optimizer.

    The graph reads the images of step ``position`` from a buffer that :meth:`fill` loads for :data:`AHEAD` steps.

    Args:
        replica: seated, with a stream of the shape to capture; its values are restored afterwards.
        server: the server's state.
        learner: whose loss and optimizer to capture.
        precision: makes the context in which forward passes run.
        cuda_stream: where the steps run.
    """

    def __init__(
        self,
        replica: Replica,
        server: nn.Module,
        learner: Learner,
        precision: Precision,
        cuda_stream: torch.cuda.Stream,
    ) -> None:
        self.replica = replica
        self.server = server
        self.learner = learner
        self.precision = precision
        self.cuda_stream = cuda_stream
        self.key = self.key_of(replica)
        stream, pool = replica.stream, replica.shard.pool
        n = stream.index.shape[1]
        self.pool, self.task, self.size = pool, stream.task, stream.size
        self.images = torch.zeros(AHEAD, n, *pool.size, pool.images.shape[3], dtype=torch.uint8, device=pool.device)
        self.index = torch.zeros(AHEAD, n, dtype=torch.int64, device=pool.device)
        self.present = torch.zeros_like(stream.present)
        self.position = torch.zeros(1, dtype=torch.int64, device=pool.device)
        self.optimizer = _capturable(learner.make_optimizer(replica.net))
        self.descend = PlainDescent(self.optimizer) if is_plain(self.optimizer) else Descent(self.optimizer)
        self.graph = torch.cuda.CUDAGraph()
        self._capture()

    @staticmethod
    def key_of(replica: Replica) -> tuple[int, tuple[int, ...]]:
        """What a captured step depends on besides values: the task and the batch's make-up."""
        return replica.shard.task, replica.stream.parts

    def _capture(self) -> None:
        values = [*self.replica.net.parameters(), *self.replica.net.buffers(), self.replica.loss]
        saved = [value.detach().clone() for value in values]
        self.cuda_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.cuda_stream):
            self.fill(0)
            with launch.compiling():  # kernels of the first step of all would else be compiled one after another
                self._step()
            for _ in range(WARM_UP):
                self._step()
                self.position.zero_()
            self.optimizer.zero_grad()
            with torch.cuda.graph(self.graph, stream=self.cuda_stream):
                self._step()
            with torch.no_grad():
                for value, before in zip(values, saved, strict=True):
                    value.copy_(before)
        torch.cuda.current_stream().wait_stream(self.cuda_stream)

    def _step(self) -> None:
        images = self.images.index_select(0, self.position).squeeze(0)
        index = self.index.index_select(0, self.position).squeeze(0)
        batch = self.pool.batch(images, index, self.task, self.size, self.present)
        take_step(self.learner, self.replica, batch, self.descend, self.server, self.precision)
        self.position += 1

    def start_round(self) -> None:
        """Give the optimizer the empty state of a fresh one."""
        fill_with_zeros(self.optimizer)

    def fill(self, start: int) -> None:
        """Gather the images of the steps from ``start`` on, as many as the buffer holds."""
        stream = self.replica.stream
        index = stream.index[start : start + AHEAD]
        views = None if stream.views is None else stream.views[start : start + AHEAD].flatten()
        count = len(index)
        self.images[:count] = self.pool.look(index.reshape(-1), views).unflatten(0, index.shape)
        self.index[:count] = index
        self.present.copy_(stream.present)
        self.position.zero_()


class GraphedExecutor:
    """Replays captured steps, the replicas in parallel, each on a CUDA stream of its own.

    Args:
        learner: whose loss and optimizer a step uses; see :func:`can_be_captured`.
        precision: makes the context in which forward passes run.
    """

    def __init__(self, learner: Learner, precision: Precision) -> None:
        self.learner = learner
        self.precision = precision
        self.captured: dict[Replica, CapturedStep] = {}

    def run(self, replicas: Sequence[Replica], server: nn.Module, watch: Watch = nullcontext) -> None:
        """Take every step of the replicas' streams.

        Args:
            replicas: seated, with streams.
            server: the server's state.
            watch: makes the context in which one replica's step is captured; it may hold back what that raises.
        """
        steps = []
        for replica in replicas:
            with watch(replica):
                steps.append(self._captured(replica, server))
        replicas = [step.replica for step in steps]
        here = torch.cuda.current_stream()
        for step in steps:
            step.cuda_stream.wait_stream(here)
            with torch.cuda.stream(step.cuda_stream):
                step.start_round()
        for start in range(0, max((len(replica.stream) for replica in replicas), default=0), AHEAD):
            for position in range(start, start + AHEAD):
                for replica, step in zip(replicas, steps, strict=True):
                    if position < len(replica.stream):
                        with torch.cuda.stream(step.cuda_stream):
                            if position == start:
                                step.fill(start)
                            step.graph.replay()
                            PULSE.beats += 1
        for step in steps:
            here.wait_stream(step.cuda_stream)

    def _captured(self, replica: Replica, server: nn.Module) -> CapturedStep:
        """The replica's captured step, captured again when the task has changed."""
        step = self.captured.get(replica)
        if step is None or step.key != CapturedStep.key_of(replica):
            cuda_stream = step.cuda_stream if step else torch.cuda.Stream()
            self.captured.pop(replica, None)
            del step
            step = CapturedStep(replica, server, self.learner, self.precision, cuda_stream)
            self.captured[replica] = step
        return step


def can_be_captured(learner: Learner, device: torch.device) -> bool:
    """Whether the learner's optimizer takes the steps it should when one of them is captured and replayed.

    It cannot be made afresh for every round then, only be set to zero: that is right for SGD, Adam and most others, and
    wrong for a few, such as NAdam, or SGD with dampening. And what it counts on the host stands still, as in Adagrad.

    Args:
        learner: whose optimizer to try out.
        device: where it will step; some optimizers do so on GPUs alone.
    """
    fresh, used = (_capturable(learner.sample_optimizer(device)) for _ in range(2))
    settings = [dict(group) for group in used.param_groups]
    _try_out(used)
    if used.param_groups != settings or not remembers_on(used, device):
        return False
    fill_with_zeros(used)
    return all(map(torch.equal, _try_out(fresh), _try_out(used)))


def remembers_on(optimizer: Optimizer, device: torch.device) -> bool:
    """Whether all that an optimizer remembers of its steps is tensors on a device."""
    kept = [value for state in optimizer.state.values() for value in state.values() if value is not None]
    return all(isinstance(value, Tensor) and value.device.type == device.type for value in kept)


def fill_with_zeros(optimizer: Optimizer) -> None:
    """Set an optimizer's state to zero, in place."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


def _try_out(optimizer: Optimizer) -> list[Tensor]:
    """The weights after a few steps from ones."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for weight in weights:
        nn.init.ones_(weight)
    for step in range(1, 4):
        for weight in weights:
            weight.grad = torch.linspace(-1, 1, weight.numel(), device=weight.device).view_as(weight) * step
        optimizer.step()
    return [weight.detach().clone() for weight in weights]


def _capturable(optimizer: Optimizer) -> Optimizer:
    """Keep the optimizer's counters on the GPU, where it has any."""
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = group["params"][0].is_cuda
    return optimizer
