from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fedqcl.cli.lightning import FederatedCLI, completed, config_yaml, parser_line, whole_config
from fedqcl.data import Augment
from fedqcl.data.sources import CIFAR100, Digits
from fedqcl.errors import InputError
from fedqcl.methods import ER, FedAvg, FedQCL
from fedqcl.models import SmallResNet
from fedqcl.run.wandb import WandbLogger

CONFIG = """
trainer: {name: mine, rounds: 3, devices: 1}
model:
  method: {class_path: FedQCL, init_args: {V: 7, delta: -2, memory: 70}}
data:
  source: Digits
"""


@pytest.fixture(autouse=True)
def _work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(CONFIG)


@pytest.fixture
def modules_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are found in the working folder, as by the command."""
    monkeypatch.syspath_prepend(Path.cwd())


def parse(*words: str, command: str = "fit") -> FederatedCLI:
    return FederatedCLI(command, list(words))


def dumped(cli: FederatedCLI) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(config_yaml(cli.parser, cli.config))
    return content


def test_objects_from_a_file() -> None:
    cli = parse("--config", "a.yaml")
    assert isinstance(cli.model.method, FedQCL)
    assert (cli.model.method.V, cli.model.method.delta, cli.model.method.memory) == (7, -2, 70)
    assert isinstance(cli.datamodule.source, Digits)
    assert (cli.trainer.name, cli.trainer.rounds, cli.trainer.devices) == ("mine", 3, 1)


def test_everything_by_short_names_on_the_command_line() -> None:
    words = "--model.method ER --model.method.weight 2 --model.net SmallResNet --model.net.width 3"
    words += " --model.optimizer Adam --model.optimizer.lr 1e-2 --data.source CIFAR100 --data.source.root /x"
    words += " --data.alpha iid --data.tasks [2,3] --data.augment.crop 4 --trainer.logger WandbLogger"
    words += " --trainer.logger.mode offline --seed_everything 5"
    cli = parse(*words.split())
    assert isinstance(cli.model.method, ER)
    assert cli.model.method.weight == 2
    net = cli.model._make_net(1, 10)
    assert isinstance(net, SmallResNet)
    assert net.head.in_features == 6
    optimizer = cli.model.make_optimizer(net)
    assert isinstance(optimizer, torch.optim.Adam)
    assert optimizer.defaults["lr"] == 1e-2
    assert isinstance(cli.datamodule.source, CIFAR100)
    assert cli.datamodule.source.root == Path("/x")
    assert (cli.datamodule.alpha, cli.datamodule.tasks, cli.datamodule.seed) == ("iid", [2, 3], 5)
    assert isinstance(cli.datamodule.augment, Augment)
    assert cli.datamodule.augment.crop == 4
    assert isinstance(cli.trainer.logger, WandbLogger)
    assert cli.trainer.logger.mode == "offline"


def test_another_method_keeps_the_options_that_it_shares() -> None:
    assert isinstance(parse("--config", "a.yaml", "--model.method", "FedAvg").model.method, FedAvg)
    er = parse("--config", "a.yaml", "--model.method", "ER").model.method
    assert (er.memory, er.replay_batch, er.weight) == (70, 13, 1)


def test_another_class_does_not_inherit_the_defaults_of_the_default_class() -> None:
    cli = parse("--config", "a.yaml", "--model.net", "SmallResNet", "--model.optimizer", "AdamW")
    options = dumped(cli)["model"]
    assert options["net"]["init_args"]["width"] == 16
    assert options["optimizer"]["init_args"]["lr"] == torch.optim.AdamW([torch.zeros(1)]).defaults["lr"]
    assert options["optimizer"]["init_args"]["weight_decay"] == 0.01


def test_the_default_optimizer_keeps_its_learning_rate() -> None:
    cli = parse("--config", "a.yaml", "--model.optimizer.momentum", "0.5")
    optimizer = cli.model.make_optimizer(torch.nn.Linear(1, 1))
    assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (0.005, 0.5)


def test_order_of_words_does_not_matter() -> None:
    words = ["--model.method.weight", "3", "--trainer.rounds", "9", "--model.method", "ER", "--config", "a.yaml"]
    cli = parse(*words)
    assert (cli.model.method.weight, cli.trainer.rounds) == (3, 9)


def test_later_files_override_earlier_ones() -> None:
    Path("b.yaml").write_text("trainer: {rounds: 4}\nmodel: {method: {class_path: FedQCL, init_args: {V: 8}}}")
    cli = parse("--config", "a.yaml", "--config", "b.yaml")
    assert (cli.trainer.rounds, cli.trainer.devices) == (4, 1)
    assert (cli.model.method.V, cli.model.method.delta) == (8, -2)


@pytest.mark.parametrize(
    ("flag", "level"), [("-q", "quiet"), ("--quiet", "quiet"), ("-v", "verbose"), ("--verbose", "verbose")]
)
@pytest.mark.parametrize("command", ["fit", "validate", "test"])
def test_console_flags(flag: str, level: str, command: str) -> None:
    words = ["--config", "a.yaml", flag] + ([] if command == "fit" else ["--ckpt_path", "."])
    assert parse(*words, command=command).trainer.console == level


@pytest.mark.parametrize("command", ["validate", "test"])
def test_a_run_brings_its_config(command: str) -> None:
    run = Path("runs/one")
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(CONFIG)
    (run / "model.ckpt").touch()
    for checkpoint in (run, run / "model.ckpt"):
        cli = parse("--ckpt_path", str(checkpoint), "--trainer.devices", "2", command=command)
        assert (cli.trainer.rounds, cli.trainer.devices) == (3, 2)
        assert cli.config["ckpt_path"] == str(checkpoint)
    Path("b.yaml").write_text(CONFIG.replace("rounds: 3", "rounds: 4"))
    assert parse("--config", "b.yaml", f"--ckpt_path={run}", command=command).trainer.rounds == 4


def test_the_config_of_a_run_repeats_it_under_another_name() -> None:
    words = ["--data.augment.flip", "true", "--trainer.logger", "WandbLogger", "--seed_everything", "3"]
    cli = parse("--config", "a.yaml", *words)
    text = config_yaml(cli.parser, cli.config)
    content = yaml.safe_load(text)
    assert text.startswith("# fedqcl ")
    assert content["trainer"]["name"] is None
    assert "seed" not in content["data"]
    assert "config" not in content
    Path("again.yaml").write_text(text)
    again = parse("--config", "again.yaml")
    assert config_yaml(again.parser, again.config) == text
    assert again.datamodule.seed == 3


def test_the_config_of_a_run_holds_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "sources_with_keys.py").write_text(
        "from fedqcl.data.sources import Digits\n"
        "class Hub(Digits):\n"
        "    def __init__(self, place: str, api_key: str | None = None) -> None: self.api_key = api_key\n"
    )
    hub = ["--data.source", "sources_with_keys.Hub", "--data.source.place", "here", "--data.source.api_key", "hush"]
    made = FederatedCLI("fit", ["--config", "quickstart", *hub])
    assert made.datamodule.source.api_key == "hush"
    text = config_yaml(made.parser, made.config)
    assert "hush" not in text
    assert yaml.safe_load(text)["data"]["source"]["init_args"] == {"place": "here"}


@pytest.mark.usefixtures("modules_here")
def test_numbers_of_our_types_are_written_where_another_class_takes_plain_ones() -> None:
    Path("plain_method.py").write_text(
        "from fedqcl.methods import FedAvg\n"
        "class Plain(FedAvg):\n"
        "    def __init__(self, memory: int = 1, V: float = 2.0): self.memory, self.V = memory, V\n"
    )
    cli = parse("--config", "a.yaml", "--model.method", "plain_method.Plain")
    assert dumped(cli)["model"]["method"]["init_args"] == {"memory": 70, "V": 7.0}


@pytest.mark.usefixtures("modules_here")
def test_a_config_is_completed_if_it_can_still_be_used() -> None:
    Path("strict_method.py").write_text(
        "from fedqcl.methods import FedAvg\n"
        "class Strict(FedAvg):\n"
        "    def __init__(self, power: float = 1.0): assert power < 2\n"
    )
    whole = whole_config(["--config=a.yaml", "--model.method=strict_method.Strict"])
    older = yaml.safe_load(yaml.safe_dump(whole))
    del older["trainer"]["grace"]
    assert completed(older) == whole
    older["model"]["method"]["init_args"]["power"] = 3.0
    assert completed(older) == {}
    assert completed(whole | {"no_more": 1}) == {}


def test_printed_config_is_a_config(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse("--config", "a.yaml", "--print_config")
    assert left.value.code == 0
    Path("b.yaml").write_text(capsys.readouterr().out)
    assert dumped(parse("--config", "b.yaml")) == dumped(parse("--config", "a.yaml"))


def test_a_config_to_start_from_can_be_printed_before_anything_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse("--print_config")
    assert left.value.code == 0
    assert yaml.safe_load(capsys.readouterr().out)["trainer"]["rounds"] == 10


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--bogus", "3", "--help"], ["--model.method.help", "FedQCL"]])
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(*words)
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert "--model.method.V V" in out if "FedQCL" in words else "--trainer.rounds ROUNDS" in out


def test_an_optimizer_that_refuses_its_settings() -> None:
    with pytest.raises(InputError, match=r"^model\.optimizer: Invalid learning rate: -1\.0$"):
        parse("--config", "a.yaml", "--model.optimizer.lr", "-1")


def test_a_file_for_one_key() -> None:
    Path("method.yaml").write_text("{class_path: FedQCL, init_args: {V: 3}}")
    assert parse("--config", "a.yaml", "--model.method", "method.yaml").model.method.V == 3
    Path("method.yaml").write_text("{class_path: FedQCL, init_args: {V: -3}}")
    with pytest.raises(InputError, match=r"^model\.method\.V: -3 is not accepted in method\.yaml; give a number above"):
        parse("--config", "a.yaml", "--model.method", "method.yaml")


def test_what_only_jsonargparse_can_judge() -> None:
    with pytest.raises(
        InputError, match=r"^model\.method: Import path os\.path\.join does not correspond to a subclass"
    ):
        parse("--config", "a.yaml", "--model.method", "os.path.join")


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ('Parser key "a.b":\n  Not of type\n    Count: 0', "a.b: Not of type Count: 0"),
        ('Parser key "a":\n\n  - Expected a path but x either not accessible\n  - Bad x', "a: Bad x"),
        ("the following arguments are required: a", "the following arguments are required: a"),
    ],
)
def test_what_the_parser_says_is_one_line(message: str, line: str) -> None:
    assert parser_line(message) == line
