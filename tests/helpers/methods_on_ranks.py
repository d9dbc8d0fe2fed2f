"""Runs every method on one and on two CPU ranks: ``python -m tests.helpers.methods_on_ranks ROOT``.

In a process of its own, as ranks are forked from it and leave their traces in its environment.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Literal

from fedqcl.data import Augment, FederatedData
from fedqcl.errors import InputError
from fedqcl.methods import Method
from fedqcl.parts import Spec
from tests.helpers.methods import method_classes, small_method
from tests.helpers.process import contained
from tests.helpers.small import draw_no_pictures, small_net, small_trainer
from tests.helpers.toy import Toy, toy_learner

SCENARIOS: tuple[Literal["task", "class"], ...] = ("task", "class")


def fit(root: str, method: type[Method], scenario: Literal["task", "class"], devices: int) -> None:
    """Three clients, one task without samples of one of them."""
    data = FederatedData(
        Toy(per_class=8, noise=150),
        num_clients=3,
        tasks=3,
        alpha=0.05,
        batch_size=8,
        scenario=scenario,
        augment=Augment(crop=1, flip=True),
        seed=1,
    )
    trainer = small_trainer(root, devices=devices, rounds=2, name=f"{method.__name__}-{scenario}-{devices}")
    with contained():
        trainer.fit(toy_learner(small_method(method), net=small_net), data)


def takes(method: type[Method], scenario: Literal["task", "class"]) -> bool:
    try:
        small_method(method).check(Spec(channels=1, size=(4, 4), classes=(2, 2, 2), scenario=scenario), num_clients=3)
    except InputError:
        return False
    return True


def main(root: str) -> None:
    for method, scenario, devices in product(method_classes(), SCENARIOS, (1, 2)):
        if takes(method, scenario):
            fit(root, method, scenario, devices)


if __name__ == "__main__":
    draw_no_pictures()
    main(sys.argv[1])
