from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from fedqcl.cli.lightning import whole_config
from fedqcl.cli.main import main
from fedqcl.errors import ClientError, InputError, RankError
from fedqcl.run import pictures
from fedqcl.trainer import FederatedTrainer
from fedqcl.version import __version__
from tests.helpers.methods import shipped_methods
from tests.helpers.process import run_python

METHODS = ", ".join(cls.__name__ for cls in shipped_methods())


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and the search path as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Stands in for the trainer's work; what it was called with."""
    made: list[tuple[Any, ...]] = []

    def record(name: str) -> Any:
        @functools.wraps(getattr(FederatedTrainer, name))
        def call(self: FederatedTrainer, model: Any, datamodule: Any, **arguments: Any) -> None:
            made.append((name, self, model, datamodule, arguments))

        return call

    for name in ("fit", "validate", "test"):
        monkeypatch.setattr(FederatedTrainer, name, record(name))
    return made


class Cli:
    """Runs a command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str) -> Outcome:
        try:
            status = main(list(words))
        except SystemExit as left:
            status = int(left.code or 0)
        return Outcome(status, *self.capsys.readouterr())


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


COUNT = "give a whole number from 1 up"
POSITIVES = "give a number above 0 or a list, each a number above 0"
WORDS = {
    "--trainer.roundz 3": "trainer.roundz: there is no such option; did you mean trainer.rounds?",
    "--trainr.rounds 3": "trainr.rounds: there is no such option; did you mean trainer.rounds?",
    "--rounds 3": "rounds: there is no such option; did you mean trainer.rounds?",
    "--model.V 3": "model.V: there is no such option; did you mean model.method.V?",
    "--model.method.detla 1": "model.method.detla: there is no such option of FedQCL; did you mean model.method.delta?",
    "--data.source.rot x": "data.source.rot: there is no such option of Digits; known: test_fraction",
    "--model.optimizer.lrr 1": "model.optimizer.lrr: there is no such option of SGD; did you mean model.optimizer.lr?",
    "--trainer.rounds three": f"trainer.rounds: three is not accepted; {COUNT}",
    "--trainer.rounds 1.5": f"trainer.rounds: 1.5 is not accepted; {COUNT}",
    "--trainer.rounds": f"trainer.rounds: has no value; {COUNT}",
    "--trainer.devices 0": f"trainer.devices: 0 is not accepted; {COUNT} or auto",
    "--trainer.precision 16": "trainer.precision: 16 is not accepted; give 32-true or bf16-mixed",
    "--trainer.participation 1.5": "trainer.participation: 1.5 is not accepted; give a number above 0, at most 1",
    "--trainer.participation 0": "trainer.participation: 0 is not accepted; give a number above 0, at most 1",
    "--data.alpha 0": "data.alpha: 0 is not accepted; give a number above 0 or iid",
    "--data.alpha -1": "data.alpha: -1 is not accepted; give a number above 0 or iid",
    "--data.alpha nan": "data.alpha: nan is not accepted; give a number above 0 or iid",
    "--data.num_clients 0": f"data.num_clients: 0 is not accepted; {COUNT}",
    "--data.validation 1": "data.validation: 1 is not accepted; give a number from 0 up, below 1",
    "--data.tasks [3,0]": f"data.tasks: [3,0] is not accepted; {COUNT} or a list, each a whole number from 1 up",
    "--model.method.V -1": "model.method.V: -1 is not accepted; " + POSITIVES,
    "--model.method.V nan": "model.method.V: nan is not accepted; " + POSITIVES,
    "--model.method.delta nan": "model.method.delta: nan is not accepted; give a number",
    "--model.optimizer.lr fast": "model.optimizer.lr: fast is not accepted; give a number",
    "--model.optimizer.lr -1": "model.optimizer: Invalid learning rate: -1.0",
    "--model.optimizer LBFGS": "model.optimizer: LBFGS works out the loss several times a step, which a client does "
    "once; choose another, such as SGD or AdamW",
    "--model.optimizer SparseAdam": "model.optimizer: SparseAdam takes sparse gradients, and these are dense; choose "
    "another, such as SGD or AdamW",
    "--seed_everything -1": "seed_everything: -1 is not accepted; give a whole number from 0 to 4294967295",
    "--data.seed 1": "data.seed: is set by seed_everything; give that instead",
    "--model.method FedQCLL": f"model.method: FedQCLL is no Method; did you mean FedQCL? known: {METHODS}",
    "--model.method SmallResNet": f"model.method: SmallResNet is no Method; known: {METHODS}",
    "--model.method no.such.Thing": "model.method: no.such.Thing cannot be imported (ModuleNotFoundError: "
    f"No module named 'no'); known: {METHODS}",
    "--model.net Resnet18": "model.net: Resnet18 is no Net; did you mean ResNet18? known: ResNet18, SmallResNet",
    "--trainer.logger Wandb": "trainer.logger: Wandb is no WandbLogger; did you mean WandbLogger? known: WandbLogger",
    "--data.source Npz": "data.source.path: is needed by Npz and was not given; give text",
    "--data.source.test_fraction ${x}": "data.source.test_fraction: ${x} is not resolved; write the value itself",
    "--ckpt_path x": "ckpt_path: there is no run at x; give a run's folder, such as runs/NAME",
    "--ckpt_path last": "ckpt_path: no run in runs has this configuration; leave ckpt_path out to start one",
    "stray": "stray: belongs to no option; options look like --trainer.rounds 10",
}  # fmt: skip
FILES = {
    "trainer: {roundz: 3}": "trainer.roundz: there is no such option in a.yaml; did you mean trainer.rounds?",
    "rounds: 3": "rounds: there is no such option in a.yaml; did you mean trainer.rounds?",
    "trainer: {rounds: three}": f"trainer.rounds: three is not accepted in a.yaml; {COUNT}",
    "trainer: {rounds: true}": f"trainer.rounds: true is not accepted in a.yaml; {COUNT}",
    "trainer: {rounds: null}": f"trainer.rounds: has no value in a.yaml; {COUNT}",
    "trainer: {participation: 1.5}": "trainer.participation: 1.5 is not accepted in a.yaml; "
    "give a number above 0, at most 1",
    "data: {alpha: 0}": "data.alpha: 0 is not accepted in a.yaml; give a number above 0 or iid",
    "data: {alpha: .nan}": "data.alpha: nan is not accepted in a.yaml; give a number above 0 or iid",
    "data:\n  alpha: ${alpha}": "data.alpha: ${alpha} is not resolved in a.yaml; write the value itself",
    "data: {num_clients: 0}": f"data.num_clients: 0 is not accepted in a.yaml; {COUNT}",
    "data: {seed: 3}": "data.seed: is set by seed_everything in a.yaml; give that instead",
    "data: {augment: {flop: true}}": "data.augment.flop: there is no such option in a.yaml; "
    "did you mean data.augment.flip?",
    "model: 3": "model: 3 is not accepted in a.yaml; give options under it: method, net, optimizer, replay_statistics",
    "model: {V: 3}": "model.V: there is no such option in a.yaml; did you mean model.method.V?",
    "model: {method: FedQCLL}": "model.method: FedQCLL is no Method in a.yaml; did you mean FedQCL? "
    f"known: {METHODS}",
    "model: {method: {class_path: FedQCL, V: 3}}": "model.method.V: is beside class_path in a.yaml; "
    "move it under model.method.init_args",
    "model: {method: {class_path: FedQCL, init_args: {detla: 1}}}": "model.method.detla: there is no such option of "
    "FedQCL in a.yaml; did you mean model.method.delta?",
    "model: {method: {class_path: FedQCL, init_args: {V: -1}}}": "model.method.V: -1 is not accepted in a.yaml; "
    + POSITIVES,
    "model: {method: {class_path: FedAvg, init_args: {V: 1}}}": "model.method.V: there is no such option of FedAvg "
    "in a.yaml; known: ce_scope",
    "model: {method: {class_path: fedqcl.methods.Method, init_args: {V: 1}}}": "model.method.V: there is no such "
    "option of Method in a.yaml; known: none",
    "config: b.yaml": "config: is set by --config on the command line in a.yaml; give that instead",
    "a:\n\tb: 3": "config: a.yaml, line 2: found character '\\t' that cannot start any token",
    "seed_everything: 1\nseed_everything: 2": "config: a.yaml, line 2: seed_everything is given twice",
    "": "config: a.yaml holds no options; write `key: value` lines, such as `seed_everything: 0`",
}  # fmt: skip


@pytest.mark.parametrize(("words", "line"), WORDS.items())
def test_a_mistake_on_the_command_line(cli: Cli, words: str, line: str) -> None:
    outcome = cli("fit", "--config", "quickstart.yaml", *words.split())
    assert outcome == (2, "", f"fedqcl fit: error: {line}\n")
    assert files() == []


@pytest.mark.parametrize(("content", "line"), FILES.items())
def test_a_mistake_in_a_file(cli: Cli, content: str, line: str) -> None:
    Path("a.yaml").write_text(content)
    outcome = cli("fit", "--config", "quickstart.yaml", "--config", "a.yaml")
    assert outcome == (2, "", f"fedqcl fit: error: {line}\n")
    assert files() == ["a.yaml"]


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("fitt", "fedqcl: error: fitt: there is no such command; did you mean fit? There are fit, validate, test"),
        ("train", "fedqcl: error: train: there is no such command; there are fit, validate, test"),
        (
            "--config x.yaml fit -q",
            "fedqcl: error: --config: options come after the command; say `fedqcl fit --config x.yaml -q`",
        ),
        ("--bogus", "fedqcl: error: --bogus: options come after the command; say `fedqcl fit --bogus`"),
        ("fit", "fedqcl fit: error: config: nothing was given; give --config and one of cifar10.yaml, cifar100.yaml, "),
        (
            "fit --ckpt_path last",
            "fedqcl fit: error: ckpt_path: last finds a run by its configuration; give --config as well",
        ),
        ("fit --config", "fedqcl fit: error: config: has no value; give a file, or one of the shipped configs: "),
        (
            "fit --config cifar100.yml",
            "fedqcl fit: error: config: there is no file cifar100.yml; did you mean cifar100.yaml? shipped configs: ",
        ),
        ("fit -q", f"fedqcl fit: error: model.method: is needed and was not given; give {METHODS}"),
        ("test", "fedqcl test: error: ckpt_path: is needed and was not given; give a run's folder, such as runs/NAME"),
        ("test --ckpt_path", "fedqcl test: error: ckpt_path: has no value; give a run's folder, such as runs/NAME"),
        (
            "test --ckpt_path runs/x",
            "fedqcl test: error: ckpt_path: there is no run at runs/x; give a run's folder, such as runs/NAME",
        ),
        ("test --ckpt_path x --config quickstart.yaml", "fedqcl test: error: ckpt_path: there is no run at x; "),
        ("validate --ckpt_path .", "fedqcl validate: error: ckpt_path: config.yaml does not exist; "),
    ],
)
def test_a_mistake_without_a_config(cli: Cli, words: str, start: str) -> None:
    status, out, err = cli(*words.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(start)
    assert files() == []


def test_a_run_that_a_script_made_has_no_config(cli: Cli) -> None:
    Path("runs/x").mkdir(parents=True)
    Path("runs/x/config.yaml").touch()
    line = "ckpt_path: runs/x/config.yaml is empty, as of a run made from Python; go on there"
    assert cli("fit", "--ckpt_path", "runs/x").err == f"fedqcl fit: error: {line}\n"
    assert cli("test", "--ckpt_path", "runs/x").err == f"fedqcl test: error: {line}, or give --config as well\n"
    for words in (["--ckpt_path", "runs/x"], ["--ckpt_path", "auto", "--trainer.name", "x"]):
        line = "ckpt_path: runs/x was made from Python; go on with it there"
        assert cli("fit", "--config", "quickstart", *words).err == f"fedqcl fit: error: {line}\n"


def test_a_run_of_a_command(cli: Cli, calls: list[tuple[Any, ...]]) -> None:
    assert cli("fit", "--config", "quickstart", "--trainer.rounds", "3", "-v").status == 0
    [(name, trainer, model, data, arguments)] = calls
    assert (name, trainer.rounds, trainer.console, arguments) == ("fit", 3, "verbose", {"ckpt_path": None})
    assert type(model.method).__name__ == "FedQCL"
    assert data.num_clients == 5
    assert trainer.config == yaml.safe_load(trainer.config_text)
    assert (trainer.config["trainer"]["rounds"], trainer.config["seed_everything"]) == (3, 0)


def test_what_to_go_on_with_may_stand_in_a_config_and_is_not_repeated(cli: Cli, calls: list[tuple[Any, ...]]) -> None:
    Path("a.yaml").write_text("ckpt_path: auto\n")
    assert cli("fit", "--config", "quickstart", "--config", "a.yaml").status == 0
    [(_, trainer, _, _, arguments)] = calls
    assert arguments == {"ckpt_path": "auto"}
    assert "ckpt_path" not in trainer.config


@pytest.mark.parametrize("place", ["run", "run/checkpoints/task-01-round-02"])
def test_a_run_that_is_gone_on_with_brings_its_config(cli: Cli, calls: list[tuple[Any, ...]], place: str) -> None:
    assert cli("fit", "--config", "quickstart", "--trainer.rounds", "3").status == 0
    Path(place).mkdir(parents=True)
    Path("run/config.yaml").write_text(calls[0][1].config_text)
    assert cli("fit", "--ckpt_path", place, "--trainer.devices", "3").status == 0
    _, trainer, _, _, arguments = calls[1]
    assert (trainer.rounds, trainer.devices, arguments) == (3, 3, {"ckpt_path": place})


@pytest.mark.parametrize("ckpt_path", ["runs/x", "auto"])
def test_a_run_is_not_gone_on_with_on_edited_images(cli: Cli, ckpt_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "plot_run", lambda path: [])
    x, y = np.arange(64, dtype=np.uint8).reshape(16, 2, 2), np.arange(16) % 2
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    source = ["--data.source", "Npz", "--data.source.path", "mine.npz", "--data.tasks", "1", "--data.num_clients", "1"]
    words = ["fit", "--config", "quickstart", *source, "--trainer.rounds", "1", "--trainer.devices", "1"]
    assert cli(*words, "--trainer.name", "x").status == 0
    assert cli(*words, "--ckpt_path", ckpt_path).out == "runs/x has finished: nothing to go on with\n"
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x ^ 1, y_test=y)
    line = (
        "ckpt_path: the images or labels are not those that runs/x was started with; "
        "put them back, or start a new run without ckpt_path"
    )
    assert cli(*words, "--ckpt_path", ckpt_path) == (2, "", f"fedqcl fit: error: {line}\n")


@pytest.mark.parametrize("command", ["validate", "test"])
def test_a_run_of_a_command_on_a_finished_run(cli: Cli, calls: list[tuple[Any, ...]], command: str) -> None:
    assert cli("fit", "--config", "quickstart", "--trainer.rounds", "3").status == 0
    Path("run").mkdir()
    Path("run/config.yaml").write_text(calls[0][1].config_text)
    assert cli(command, "--ckpt_path", "run").status == 0
    name, trainer, _, _, arguments = calls[1]
    assert (name, trainer.rounds, arguments) == (command, 3, {"ckpt_path": "run"})


@pytest.mark.parametrize("command", ["validate", "test"])
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--model.method ER", "model.method fedqcl.methods.FedQCL, now fedqcl.methods.ER, model.method.V 100.0, now"),
        ("--config cifar10 --config quickstart --data.alpha 3", "data.alpha 1.0, now 3.0, data.augment None, now"),
        ("--seed_everything 4", "seed_everything 0, now 4; leave --config and other options out, as the run has its"),
    ],
)
def test_a_model_is_not_evaluated_as_another(cli: Cli, command: str, words: str, line: str) -> None:
    Path("run").mkdir()
    Path("run/config.yaml").write_text(yaml.safe_dump(whole_config(["--config=quickstart"])))
    given = ["--trainer.rounds", "3", "--data.source.test_fraction", "0.5", *words.split()]
    status, out, err = cli(command, "--ckpt_path", "run", *given)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"fedqcl {command}: error: ckpt_path: run has another configuration: {line}")


def test_a_model_is_evaluated_by_other_means_and_on_other_images(cli: Cli) -> None:
    Path("run").mkdir()
    Path("run/config.yaml").write_text(yaml.safe_dump(whole_config(["--config=quickstart"])))
    words = ["--trainer.threads", "2", "--data.source", "Npz", "--data.source.path", "mine.npz"]
    line = "fedqcl test: error: data.source.path: there is no file mine.npz\n"
    assert cli("test", "--ckpt_path", "run", *words) == (2, "", line)


def test_a_method_of_one_s_own_in_the_working_folder(
    cli: Cli, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "methods_of_mine", raising=False)
    Path("methods_of_mine.py").write_text(
        "from fedqcl.methods import FedAvg\n"
        "class Mine(FedAvg):\n"
        "    def __init__(self, power: float = 2.0) -> None: self.power = power\n"
    )
    own = ["fit", "--config", "quickstart", "--model.method", "methods_of_mine.Mine"]
    assert cli(*own, "--model.method.power", "3").status == 0
    assert calls[0][2].method.power == 3
    line = "model.method.powr: there is no such option of Mine; did you mean model.method.power?"
    assert cli(*own, "--model.method.powr", "3") == (2, "", f"fedqcl fit: error: {line}\n")


@pytest.mark.parametrize(
    ("option", "base"), [("model.method", "fedqcl.methods.FedAvg"), ("data.source", "fedqcl.data.sources.Digits")]
)
def test_a_class_of_one_s_own_that_raises_when_it_is_made(
    cli: Cli, option: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "broken_class", raising=False)
    module, _, name = base.rpartition(".")
    Path("broken_class.py").write_text(
        f"from {module} import {name}\nclass Broken({name}):\n    def __init__(self) -> None: raise KeyError('power')\n"
    )
    status, out, err = cli("fit", "--config", "quickstart", f"--{option}", "broken_class.Broken")
    assert (status, out) == (1, "")
    assert err.startswith("Traceback ")
    assert err.endswith(f"\nKeyError: 'power'\nfedqcl fit: error: {option}: KeyError: 'power'\n")
    assert "runs" not in files()


def test_the_working_folder_does_not_hide_a_library(cli: Cli, calls: list[tuple[Any, ...]]) -> None:
    cli("fit", "--config", "quickstart")
    assert sys.path[-1] == str(Path.cwd())


def test_a_mistake_that_the_run_finds(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(self: FederatedTrainer, model: Any, datamodule: Any, ckpt_path: str | None = None) -> None:
        raise InputError("data.source.path: nothing\n  there")

    monkeypatch.setattr(FederatedTrainer, "fit", fit)
    line = "fedqcl fit: error: data.source.path: nothing there\n"
    assert cli("fit", "--config", "quickstart") == (2, "", line)


def test_a_client_that_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(self: FederatedTrainer, model: Any, datamodule: Any) -> None:
        raise ClientError("client 3, task 1, round 2: KeyError: 'x'") from KeyError("x")

    monkeypatch.setattr(FederatedTrainer, "fit", fit)
    line = "KeyError: 'x'\nfedqcl fit: error: client 3, task 1, round 2: KeyError: 'x'\n"
    assert cli("fit", "--config", "quickstart") == (1, "", line)


@pytest.mark.parametrize("said", ["", "rank 1 was killed by SIGKILL"])
def test_a_rank_that_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    def fit(self: FederatedTrainer, model: Any, datamodule: Any) -> None:
        raise RankError(said, 137)

    monkeypatch.setattr(FederatedTrainer, "fit", fit)
    assert cli("fit", "--config", "quickstart") == (137, "", said and f"fedqcl fit: error: {said}\n")


@pytest.mark.parametrize(("variable", "rank"), [("LOCAL_RANK", "1"), ("SLURM_PROCID", "3")])
def test_only_the_first_rank_reports(cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str, rank: str) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv(variable, rank)
    assert cli("fit", "--trainer.roundz", "3") == (2, "", "")
    monkeypatch.setenv(variable, "0")
    assert cli("fit", "--trainer.roundz", "3").err.count("\n") == 1


def test_an_interrupt(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(self: FederatedTrainer, model: Any, datamodule: Any, ckpt_path: str | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FederatedTrainer, "fit", fit)
    assert cli("fit", "--config", "quickstart") == (130, "", "")


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help(cli: Cli, words: list[str]) -> None:
    status, out, err = cli(*words)
    assert (status, err) == (0, "")
    assert out.startswith("usage: fedqcl ")
    assert "fit       train on all tasks" in out
    assert "quickstart.yaml" in out


def test_help_of_a_command(cli: Cli) -> None:
    status, out, err = cli("fit", "--help")
    assert (status, err) == (0, "")
    assert out.startswith("usage: fedqcl fit [--config FILE] [--KEY VALUE ...]")
    assert "--model.method METHOD" in out


def test_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"fedqcl {__version__}\n", "")


def test_as_a_module() -> None:
    done = run_python("-m", "fedqcl", "--config", "x.yaml")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("words", "unbuffered"), [("--help", ""), ("--help", "1"), ("sweep --help", ""), ("sweep e7 --list", "1")]
)
def test_a_reader_who_leaves_early_is_no_error(words: str, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_python("-m", "fedqcl", *words.split(), PYTHONUNBUFFERED=unbuffered, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
