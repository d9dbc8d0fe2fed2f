"""All that a run goes on from.

That is the server, every client's state, the tracker's counts and the run's tables so far. Optimizers start afresh in
every round and all randomness is keyed, so there is nothing else. A rank writes its clients' states, and reads those it
hosts wherever they are: any number of ranks can go on.
"""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from fedqcl.engine import Engine
from fedqcl.errors import InputError
from fedqcl.schedule import Position
from fedqcl.tracker import Tracker

SERVER, RUN, CLIENTS = "server.pt", "run.pt", "clients-{}.pt"


class RunState:
    """The state of a run on this rank.

    Args:
        engine: hosts the server and this rank's clients.
        tracker: has the counts so far.
    """

    def __init__(self, engine: Engine, tracker: Tracker) -> None:
        self.engine = engine
        self.tracker = tracker

    def files(self, position: Position) -> dict[str, Any]:
        """This rank's share, copied: files by name. The first rank's holds what all ranks have in common.

        Args:
            position: the task and the round to go on with.
        """
        clients = {i: _copied(state) for i, state in self.engine.clients.items()}
        files: dict[str, Any] = {CLIENTS.format(self.engine.fabric.global_rank): clients}
        if self.engine.fabric.is_global_zero:
            server = self.engine.server
            files[SERVER] = {"net": _copied(server.net), "state": _copied(server.state)}
            files[RUN] = {
                "position": list(position),
                "tracker": self.tracker.state(),
                "run_id": self.tracker.log.run_id,
                "tables": self.tracker.log.tables(),
            }
        return files

    def load(self, checkpoint: Path) -> None:
        """Take over what a checkpoint holds, in place.

        Raises:
            InputError: its tensors are for another net or method.
        """
        server = self.engine.server
        try:
            saved, run = _read(checkpoint / SERVER), read_run(checkpoint)
            server.net.load_state_dict(saved["net"])
            server.state.load_state_dict(saved["state"])
            self.engine.host_afresh(min(run["position"][0], len(self.engine.data.shards) - 1))  # it may be at its end
            self._load_clients(checkpoint)
            self.tracker.load(run["tracker"])
        except (OSError, RuntimeError, LookupError, TypeError, UnpicklingError) as error:
            why = str(error).strip().splitlines()[-1]
            raise InputError(f"ckpt_path: {checkpoint} is for another net or method than this ({why})") from None

    def _load_clients(self, checkpoint: Path) -> None:
        missing = dict(self.engine.clients)
        for path in checkpoint.glob(CLIENTS.format("*")):
            saved = _read(path)
            for i in missing.keys() & saved.keys():
                missing.pop(i).load_state_dict(saved[i])
        if missing:
            raise LookupError(f"clients {', '.join(map(str, missing))} are missing")


def read_run(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint says of its run: ``position``, ``tracker``, ``run_id`` and ``tables``."""
    run: dict[str, Any] = _read(checkpoint / RUN)
    return run


def _copied(module: nn.Module) -> dict[str, Tensor]:
    """A module's tensors, on the CPU and in the usual layout, which no later step changes."""
    return {
        name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, value in module.state_dict().items()
    }


def _read(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
