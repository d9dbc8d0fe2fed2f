"""Runs whose ranks fail: ``python -m tests.helpers.faulty ROOT START_METHOD FAULT:CLIENT...``.

Client 0 is on rank 0, client 1 on rank 1. A run that fails ends the process, or with ``fork`` raises in it;
then a line of JSON says how, and the next one follows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedqcl.data import FederatedData
from fedqcl.errors import InputError, Interrupted, RankError
from fedqcl.methods import ClientState, FedAvg, Stats
from fedqcl.parts import Shard
from tests.helpers.process import contained
from tests.helpers.small import draw_no_pictures, small_trainer
from tests.helpers.toy import Toy, toy_learner


class Faulty(FedAvg):
    """FedAvg in which one client does something odd in the first task's second round."""

    def __init__(self, fault: str, client: int) -> None:
        super().__init__()
        self.fault = fault
        self.client = client
        self.rounds = 0

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        self.rounds += shard.client == self.client
        if (shard.client, self.rounds) == (self.client, 2):
            FAULTS[self.fault]()
        return {"n": torch.tensor(1)}


def _raise() -> None:
    raise ArithmeticError("seven is not prime\nor is it")


def _mistake() -> None:
    raise InputError("model.x: this cannot be; choose another")


def _listening() -> None:
    """Print the addresses at which this process listens."""
    mine = {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists()}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    hosts = [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine]
    print(json.dumps({"hosts": hosts}), flush=True)


FAULTS: dict[str, Any] = {
    "none": lambda: None,
    "raise": _raise,
    "mistake": _mistake,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "leave": lambda: sys.exit(3),
    "leave_word": lambda: sys.exit("that will do"),
    "leave_well": lambda: sys.exit(0),
    "end": lambda: os._exit(5),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "hang": lambda: time.sleep(600),
    "listening": _listening,
}


def fit(root: str, start_method: Any, fault: str, client: int) -> None:
    data = FederatedData(Toy(), num_clients=2, tasks=2, alpha="iid", batch_size=8)
    trainer = small_trainer(root, devices=2, start_method=start_method, timeout=3 if fault == "hang" else 60)
    trainer.fit(toy_learner(Faulty(fault, client)), data)


def children() -> list[int]:
    """Processes that this one has started, and that have not ended."""
    stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    return [int(stat[1]) for stat in stats if stat[1] == str(os.getpid()) and stat[0] != "Z"]


def main(root: str, start_method: str, *cases: str) -> None:
    # A shell has its background jobs ignore it, and so would the ranks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for case in cases:
        fault, client = case.split(":")
        started = time.monotonic()
        outcome: dict[str, Any] = {"case": case}
        with contained():
            try:
                fit(root, start_method, fault, int(client))
                outcome["status"] = 0
            except RankError as error:
                outcome |= {"status": error.status, "said": str(error)}
            except Interrupted as stop:
                outcome |= {"status": stop.status}
        outcome |= {"seconds": time.monotonic() - started, "left": len(children())}
        for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
            stream.flush()
            print(f"{name} {json.dumps(outcome)}", file=stream, flush=True)


if __name__ == "__main__":
    draw_no_pictures()
    main(*sys.argv[1:])
