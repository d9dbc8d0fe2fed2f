from __future__ import annotations

from typing import Any

import pytest
import torch
import yaml

from fedqcl.cli.configs import read_config, shipped_configs, shipped_folder
from fedqcl.cli.lightning import FederatedCLI
from fedqcl.data import sources
from fedqcl.methods import FedQCL
from fedqcl.models import ResNet18, SmallResNet
from fedqcl.run.wandb import WandbLogger

PAPER = {  # V, T, padding of crops, colour jitter
    "cifar10.yaml": (sources.CIFAR10, 20, 5, 4, 0),
    "cifar100.yaml": (sources.CIFAR100, 200, 5, 4, 0),
    "tinyimagenet.yaml": (sources.TinyImageNet, 220, 10, 8, 0.4),
}


@pytest.mark.parametrize("name", shipped_configs())
@pytest.mark.parametrize("command", ["fit", "validate", "test"])
def test_every_config_makes_what_it_says(name: str, command: str) -> None:
    cli = FederatedCLI(command, ["--config", name, *([] if command == "fit" else ["--ckpt_path", "."])])
    given = read_config(shipped_folder() / name)
    for group, part in (("trainer", cli.trainer), ("data", cli.datamodule)):
        for key, value in given[group].items():
            if not isinstance(value, dict):
                assert getattr(part, key) == value, f"{group}.{key}"
    assert type(cli.model.method).__name__ == given["model"]["method"]["class_path"]
    assert type(cli.datamodule.source).__name__ == given["data"]["source"]["class_path"]


@pytest.mark.parametrize("name", shipped_configs())
def test_every_config_opens_with_two_lines_of_comment(name: str) -> None:
    lines = (shipped_folder() / name).read_text(encoding="utf-8").splitlines()
    assert [line.startswith("# ") for line in lines[:3]] == [True, True, False]
    assert list(yaml.safe_load("\n".join(lines))) == ["seed_everything", "trainer", "model", "data"]


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_s_settings(name: str) -> None:
    source, V, T, padding, jitter = PAPER[name]
    cli = FederatedCLI("fit", ["--config", name])
    trainer, data, method = cli.trainer, cli.datamodule, cli.model.method
    assert (trainer.rounds, trainer.epochs, trainer.participation) == (10, 5, 1.0)
    assert trainer.precision == "bf16-mixed"
    assert isinstance(trainer.logger, WandbLogger)
    assert isinstance(data.source, source)
    assert (data.num_clients, data.tasks, data.class_order, data.alpha, data.batch_size) == (5, T, "natural", 10, 13)
    assert (data.augment.crop, data.augment.flip, data.augment.jitter) == (padding, True, jitter)
    assert isinstance(method, FedQCL)
    assert (method.V, method.delta, method.memory, method.replay_batch) == (V, 1, 500, 13)
    net = cli.model._make_net(3, 10)
    assert isinstance(net, ResNet18)
    assert net.head.in_features == 512
    _is_plain_sgd(cli.model.make_optimizer(net))


def test_the_quickstart_is_small_and_local() -> None:
    cli = FederatedCLI("fit", ["--config", "quickstart.yaml"])
    assert isinstance(cli.datamodule.source, sources.Digits)
    assert isinstance(cli.model.method, FedQCL)
    assert isinstance(cli.model._make_net(1, 10), SmallResNet)
    assert (cli.datamodule.num_clients, cli.datamodule.tasks, cli.trainer.logger) == (5, 5, None)


def _is_plain_sgd(optimizer: Any) -> None:
    assert isinstance(optimizer, torch.optim.SGD)
    options = {key: optimizer.defaults[key] for key in ("lr", "momentum", "dampening", "weight_decay", "nesterov")}
    assert options == {"lr": 0.005, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False}
