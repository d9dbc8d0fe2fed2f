"""Room for one client at work."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedqcl.data.module import ClientShard
from fedqcl.data.stream import Stream
from fedqcl.engine.server import copy_entries, federated_entries
from fedqcl.methods import ClientState


@dataclass(frozen=True)
class Report:
    """What a client's local steps came to.

    Attributes:
        client: client id.
        steps: ``S``, local steps taken.
        loss: sum of the objective over the steps, ``[]``, still on the device.
    """

    client: int
    steps: int
    loss: Tensor


def moment(task: int, round: int | None) -> str:
    """When in a run, in words; tasks and rounds count from 1."""
    return f"end of task {task + 1}" if round is None else f"task {task + 1}, round {round + 1}"


class Replica:
    """A net and a client state on the device that one client after another works in.

    Only as many replicas exist as clients run at once; a client at rest is its small state, on the CPU.

    Args:
        net: the global model, to be copied.
        state: a client's state, to be copied.
        device: where the clients work.

    Attributes:
        net: the client's model ``w_i``, in train mode.
        state: the client's state.
        shard: the client's samples of the current task.
        stream: the batches of the round.
        round: the round within the task; None outside of rounds, at the end of a task.
        failed: whether the client is out of the round, because something it did raised.
        loss: running sum of the objective over the round's steps, ``[]`` float32.
    """

    shard: ClientShard
    stream: Stream
    round: int | None
    failed: bool

    def __init__(self, net: nn.Module, state: ClientState, device: torch.device) -> None:
        self.net = copy.deepcopy(net).train()
        self.state = copy.deepcopy(state).to(device)
        self.loss = torch.zeros((), device=device)

    def seat(self, weights: dict[str, Tensor], state: ClientState, shard: ClientShard) -> None:
        """Let a client take over: the global model, its own state and what of the model it keeps to itself."""
        entries = federated_entries(self.net)  # listed anew, as a net may put other tensors in its buffers' place
        copy_entries(entries, weights)
        copy_entries(dict(self.state.named_buffers()), dict(state.named_buffers()))
        personal = self.state.personal.by_name()
        copy_entries({name: entries[name] for name in personal}, personal)
        self.shard = shard
        self.round = None
        self.failed = False
        self.loss.zero_()

    def leave(self, state: ClientState) -> None:
        """Write the client's state back to where it rests."""
        personal = self.state.personal.by_name()
        if personal:  # to list a net's entries takes longer than all else here
            copy_entries(personal, federated_entries(self.net))
        copy_entries(dict(state.named_buffers()), dict(self.state.named_buffers()))

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Run the round's local steps: what the net draws in them is keyed by client, task and round."""
        assert self.round is not None
        device = self.loss.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.shard.seed_of_steps(self.round))
            yield

    @property
    def place(self) -> str:
        """Who is at work on what, in words; tasks and rounds count from 1."""
        return f"client {self.shard.client}, {moment(self.shard.task, self.round)}"

    def report(self) -> Report:
        """Sum up the local steps."""
        return Report(self.shard.client, len(self.stream), self.loss.clone())
