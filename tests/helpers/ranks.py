"""Runs one small problem on several numbers of CPU ranks: ``python -m tests.helpers.ranks ROOT CASE DEVICES...``.

In a process of its own, as ranks are forked from it and leave their traces in its environment.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from fedqcl.data import Augment, FederatedData
from fedqcl.methods import ClientState, FedQCL, FedQCLAuthors, Stats
from fedqcl.parts import Shard
from tests.helpers.process import contained
from tests.helpers.small import draw_no_pictures, small_net, small_trainer
from tests.helpers.toy import Toy, toy_learner


class Failing(FedQCL):
    """One client raises in the second task, another one diverges in the third."""

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        super().client_round(net, shard, client, server)
        if (shard.task, shard.client) == (1, 0):
            raise ValueError("no luck")
        return {"n": torch.tensor(float("inf") if (shard.task, shard.client) == (2, 1) else 1.0)}


CASES: dict[str, dict[str, Any]] = {
    "full": {"data": {"num_clients": 4, "alpha": 1.0}},
    # So uneven that some clients have no samples of some task.
    "partial": {"data": {"num_clients": 5, "alpha": 0.02}, "trainer": {"participation": 0.4}},
    "authors": {
        "data": {"num_clients": 4, "alpha": 1.0, "equalise": True, "sampling": "balanced"},
        "trainer": {"personal": "statistics", "weighting": "first_task", "evaluation": "clients"},
        "method": FedQCLAuthors,
    },
    "left_out": {"data": {"num_clients": 3, "alpha": 1.0}, "method": Failing},
}


def main(root: str, case: str, *devices: str) -> None:
    options = CASES[case]
    method = options.get("method", FedQCL)
    for count in devices:
        data = FederatedData(
            Toy(per_class=16, noise=150),
            tasks=3,
            batch_size=8,
            augment=Augment(crop=1, flip=True, frozen=case == "authors"),
            seed=1,
            **options["data"],
        )
        trainer = small_trainer(
            root,
            devices=int(count),
            rounds=2,
            name=f"{case}-{count}",
            on_client_error="skip",
            on_nonfinite="drop",
            **options.get("trainer", {}),
        )
        with contained():
            trainer.fit(toy_learner(method(V=2, delta=-0.05, memory=9, replay_batch=4), net=small_net), data)


if __name__ == "__main__":
    draw_no_pictures()
    main(*sys.argv[1:])
