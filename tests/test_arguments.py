from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedqcl.arguments import check_arguments, description, in_plain_words
from fedqcl.data import Augment, FederatedData
from fedqcl.data.sources import Digits, Npz
from fedqcl.errors import InputError
from fedqcl.learner import Learner
from fedqcl.methods import ER, FedAvg, FedQCL
from fedqcl.models import SmallResNet
from fedqcl.trainer import FederatedTrainer
from fedqcl.types import Count, Positive


class Inner:
    def __init__(self, size: Count = 1) -> None:
        self.size = size


class Outer:
    def __init__(
        self,
        inner: Inner | None = None,
        rate: Positive = 1.0,
        mode: Literal["a", "b"] = "a",
        sizes: list[Count] | None = None,
        other: float = 0.0,
    ) -> None:
        self.inner, self.rate, self.mode, self.sizes = inner, rate, mode, sizes
        self.hidden = other


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"rate": 0.0}, "x.rate: 0.0 is not accepted; give a number above 0"),
        ({"mode": "c"}, "x.mode: 'c' is not accepted; give a or b"),
        ({"sizes": [1, 0]}, r"x.sizes: \[1, 0\] is not accepted; give a list, each a whole number from 1 up or null"),
        ({"inner": Inner(-2)}, "x.inner.size: -2 is not accepted; give a whole number from 1 up"),
    ],
)
def test_a_value_that_the_command_line_would_refuse(given: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=f"^{line}$"):
        check_arguments(Outer(**given), "x")


def test_what_fits_and_what_cannot_be_judged() -> None:
    check_arguments(Outer(Inner(3), rate=2, sizes=[4]), "x")
    check_arguments(Outer(rate=torch.tensor(-1.0), other=float("nan")), "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "key"),
    [
        (FederatedData(Digits(), scenario="clas"), "data.scenario"),  # type: ignore[arg-type]
        (FederatedData(Digits(), alpha=-1.0), "data.alpha"),
        (FederatedData(Digits(), num_clients=0), "data.num_clients"),
        (FederatedData(Digits(), num_clients=np.int64(0)), "data.num_clients"),  # type: ignore[arg-type]
        (FederatedData(Digits(), alpha=np.float64(-3)), "data.alpha"),
        (FederatedData(Digits(), tasks=[np.int64(0)]), "data.tasks"),  # type: ignore[list-item]
        (FederatedData(Digits(), augment=Augment(jitter=-1.0)), "data.augment.jitter"),
        (FederatedTrainer(rounds=0), "trainer.rounds"),
        (FederatedTrainer(participation=3.0), "trainer.participation"),
        (FederatedTrainer(precision="16"), "trainer.precision"),  # type: ignore[arg-type]
    ],
)
def test_the_parts_of_a_run(made: object, key: str) -> None:
    with pytest.raises(InputError, match=rf"^{key}: \S+ is not accepted; give "):
        check_arguments(made, key.partition(".")[0])


def test_a_trainer_checks_before_anything_is_made(tmp_path: Path) -> None:
    trainer = FederatedTrainer(root=str(tmp_path), rounds=1)
    with pytest.raises(InputError, match=r"^model\.method\.memory: -1 is not accepted; give a whole number from 1 up$"):
        trainer.fit(Learner(ER(memory=-1)), FederatedData(Digits()))
    assert not list(tmp_path.iterdir())


def test_parts_that_have_changed_places(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^model: is of the class FederatedData; give a Learner$"):
        FederatedTrainer(root=str(tmp_path)).fit(FederatedData(Digits()), Learner(FedAvg()))  # type: ignore[arg-type]


def test_a_net_in_place_of_what_makes_one() -> None:
    with pytest.raises(InputError, match=r"^model\.net: is a Linear already; give its class, or a function"):
        Learner(FedAvg(), nn.Linear(1, 1))  # type: ignore[arg-type]


def test_a_class_in_place_of_an_object() -> None:
    for made, key, name in (
        (Learner(FedAvg), "model.method", "FedAvg"),
        (FederatedData(Digits), "data.source", "Digits"),
    ):  # type: ignore[arg-type]
        with pytest.raises(InputError, match=rf"^{key}: is the class {name}; give an object of it, {name}\(\.\.\.\)$"):
            check_arguments(made, key.partition(".")[0])
    check_arguments(Learner(FedAvg(), SmallResNet), "model")


def test_a_description() -> None:
    found = description(Outer(Inner(3), sizes=[4]), without=["mode"])
    path = f"{__name__}.Outer"
    inner = {"class_path": f"{__name__}.Inner", "init_args": {"size": 3}}
    assert found == {"class_path": path, "init_args": {"inner": inner, "rate": 1.0, "sizes": [4]}}
    assert description(FedQCL(V=7.0))["init_args"]["V"] == 7.0
    for given, told in ((np.float64(7), 7.0), ([np.float64(7), 8.0], [7.0, 8.0])):
        assert repr(description(FedQCL(V=given))["init_args"]["V"]) == repr(told)


def test_whatever_is_not_plain() -> None:
    assert in_plain_words((1, Path("a/b"), torch.tensor([1, 2]))) == [1, "a/b", [1, 2]]
    assert in_plain_words([Inner, np.zeros(3), partial(int)]) == [
        f"{__name__}.Inner",
        "numpy.ndarray",
        "functools.partial",
    ]
    assert in_plain_words(Npz("x.npz"))["init_args"]["path"] == "x.npz"
