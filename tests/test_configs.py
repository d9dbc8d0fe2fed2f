from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fedqcl.cli.configs import read_config, shipped_configs, shipped_folder
from fedqcl.cli.lightning import FederatedCLI, whole_config
from fedqcl.data import sources
from fedqcl.methods import FedQCL
from fedqcl.models import ResNet18, SmallResNet
from fedqcl.run.wandb import WandbLogger

PAPER = {  # V, T, padding of crops, colour jitter
    "cifar10.yaml": (sources.CIFAR10, 20, 5, 4, 0),
    "cifar100.yaml": (sources.CIFAR100, 200, 5, 4, 0),
    "tinyimagenet.yaml": (sources.TinyImageNet, 220, 10, 8, 0.4),
}

WHOLE = [name for name in shipped_configs() if "/" not in name]
PRESETS = [name for name in shipped_configs() if name.startswith("presets/")]


def keys(options: dict[str, Any], path: str = "") -> dict[str, Any]:
    """The options of a config by their dotted keys, as on the command line."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        key = path if name == "init_args" else f"{path}.{name}".lstrip(".").removesuffix(".class_path")
        found |= keys(value, key) if isinstance(value, dict) else {key: value}
    return found


def held(cli: FederatedCLI, key: str) -> Any:
    """What an option has become: ``data.augment.frozen``, say."""
    group, *names = key.split(".")
    part = {"trainer": cli.trainer, "model": cli.model, "data": cli.datamodule}[group]
    if key.startswith("model.optimizer"):
        optimizer = cli.model.make_optimizer(torch.nn.Linear(1, 1))
        return optimizer.defaults[names[1]] if names[1:] else f"torch.optim.{type(optimizer).__name__}"
    if key.startswith("model.net"):
        return cli.config[f"model.net.init_args.{names[1]}"]
    for name in names:
        part = getattr(part, name)
    return type(part).__name__ if key == "model.method" else part


@pytest.mark.parametrize("name", WHOLE)
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


@pytest.mark.parametrize("name", WHOLE + PRESETS)
def test_every_config_opens_with_two_lines_of_comment(name: str) -> None:
    lines = (shipped_folder() / name).read_text(encoding="utf-8").splitlines()
    assert [line.startswith("# ") for line in lines[:3]] == [True, True, False]
    groups = ["seed_everything", "trainer", "model", "data"]
    given = list(yaml.safe_load("\n".join(lines)))
    assert given == (groups if name in WHOLE else [group for group in groups if group in given])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("data", PAPER)
def test_a_preset_says_the_last_word_and_no_other(preset: str, data: str) -> None:
    said = keys(read_config(shipped_folder() / preset))
    before = keys(read_config(shipped_folder() / data))
    cli = FederatedCLI("fit", ["--config", data, "--config", preset])
    for key, value in said.items():
        assert held(cli, key) == value, key
    kept = [key for key in before.keys() - said.keys() if key.startswith(("data.augment.", "model.method."))]
    for key in kept if said.get("model.method") != "FedAvg" else []:
        assert held(cli, key) == before[key], key


@pytest.mark.parametrize(
    "kind", [("paper/cifar100", "fair/cifar100"), ("authors", "faithful"), ("joint", "independent")]
)
def test_of_two_presets_of_a_kind_the_later_counts(kind: tuple[str, str]) -> None:
    def config(*presets: str) -> dict[str, Any]:
        return whole_config(["--config=cifar100.yaml", *[f"--config=presets/{preset}.yaml" for preset in presets]])

    one, other = kind
    assert config(one, other) == config(other) != config(one) == config(other, one)


@pytest.mark.parametrize("rated", ["paper", "fair"])
@pytest.mark.parametrize("presets", [["authors"], ["faithful"], ["authors", "faithful"]])
def test_V_multiplies_the_rate_once_whatever_follows_it(rated: str, presets: list[str]) -> None:
    words = [
        f"--config={name}" for name in ("cifar100", f"presets/{rated}/cifar100", *(f"presets/{p}" for p in presets))
    ]
    cli = FederatedCLI("fit", words)
    method = cli.model.method
    assert isinstance(method, FedQCL)
    divided_by = {"none": 1, "V": method.V}[method.normalise]
    assert held(cli, "model.optimizer.lr") * method.V / divided_by == pytest.approx(0.005 * 200)


def test_faithful_is_the_default_wherever_the_authors_code_differs() -> None:
    faithful, authors = (
        keys(read_config(shipped_folder() / f"presets/{name}.yaml")) for name in ("faithful", "authors")
    )
    of_queues = {key for key in authors if key.startswith("model.method.")}
    assert authors.keys() - of_queues <= faithful.keys()
    plain = FederatedCLI("fit", ["--config", "cifar100.yaml"])
    assert {key: held(plain, key) for key in faithful} == faithful
    differing = {key for key in authors.keys() - of_queues if authors[key] != faithful[key]}
    assert differing == authors.keys() - of_queues


def test_every_peculiarity_can_be_taken_back() -> None:
    """With none left, the method is FedQCL (see its own tests)."""
    faithful = keys(read_config(shipped_folder() / "presets/faithful.yaml"))
    for key, value in keys(read_config(shipped_folder() / "presets/authors.yaml")).items():
        sound = faithful.get(key, False)
        words = [f"--{key}", str(sound).lower() if isinstance(sound, bool) else sound]
        cli = FederatedCLI("fit", ["--config", "cifar100.yaml", "--config", "presets/authors.yaml", *words])
        assert held(cli, key) == sound
        assert value != sound or key == "model.method.skip_first_task"


@pytest.mark.parametrize("name", PAPER)
def test_V_and_delta_are_the_best_measured_on_held_out_images(name: str) -> None:
    """Of the kept runs."""
    results = Path(__file__).parents[1] / "benchmarks/results/2026-11-29-settings"
    runs = list(results.glob(f"{Path(name).stem}-*"))
    summaries = {run: json.loads((run / "summary.json").read_text(encoding="utf-8")) for run in runs}
    assert {summary["evaluated_on"] for summary in summaries.values()} == {"validation"}
    best = read_config(max(runs, key=lambda run: summaries[run]["average_accuracy"]) / "config.yaml")
    method = FederatedCLI("fit", ["--config", name]).model.method
    assert isinstance(method, FedQCL)
    given = best["model"]["method"]["init_args"]
    assert (method.V, method.delta) == (given["V"], given["delta"])


@pytest.mark.parametrize("name", PAPER)
def test_the_fair_rate_is_the_paper_s_times_its_V(name: str) -> None:
    cli = FederatedCLI("fit", ["--config", name, "--config", f"presets/fair/{name}", "--model.method", "ER"])
    assert held(cli, "model.optimizer.lr") == pytest.approx(0.005 * PAPER[name][1])
    assert held(cli, "model.method") == "ER"


@pytest.mark.parametrize("name", PAPER)
def test_comparisons_are_at_the_paper_s_settings(name: str) -> None:
    """Whatever a config has itself."""
    paper = PAPER[name][1], 1
    fair = FederatedCLI("fit", ["--config", name, "--config", f"presets/fair/{name}"]).model.method
    assert isinstance(fair, FedQCL)
    assert (fair.V, fair.delta) == paper
    for pair in read_config(shipped_folder() / "experiments/shared/paper.yaml")["also"]:
        if pair["when"] == {"config": name.removesuffix(".yaml"), "method": "FedQCL"}:
            assert (pair["give"]["V"], pair["give"]["delta"]) == paper
            break
    else:
        pytest.fail("the experiments do not say")


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_s_settings(name: str) -> None:
    source, V, T, padding, jitter = PAPER[name]
    cli = FederatedCLI("fit", ["--config", name, "--config", f"presets/paper/{name}"])
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
