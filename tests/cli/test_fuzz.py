"""Whatever is given: one line and status 2, or a run that starts; never a traceback, and nothing written."""

from __future__ import annotations

import contextlib
import functools
import io
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedqcl.cli.configs import shipped_folder
from fedqcl.cli.main import main
from fedqcl.trainer import FederatedTrainer

# What each option must refuse; some of it is text that YAML reads as another type.
WRONG = {
    "seed_everything": ["-1", "1.5", "x", "4294967296", "nan", "[]", "true"],
    "trainer.rounds": ["0", "-3", "2.5", "many", "null", "[1]", "{}", "inf"],
    "trainer.devices": ["0", "-1", "all", "1.5", "[0]"],
    "trainer.participation": ["0", "1.1", "-0.5", "nan", "half"],
    "trainer.precision": ["16", "bf16", "32", "x"],
    "trainer.accelerator": ["gpu", "tpu", "1", ""],
    "trainer.on_nonfinite": ["skip", "no", "1"],
    "trainer.on_client_error": ["drop", "true", ""],
    "trainer.timeout": ["0", "-1", "nan", "inf", "soon"],
    "trainer.logger": ["Wandb", "5", "yes"],
    "model.method": ["FedQcl", "Adam", "os.system", "nowhere.Method", "5", "[]"],
    "model.method.V": ["0", "-1", "nan", "inf", "big", "[-1]"],
    "model.method.memory": ["0", "1.5", "no", "-7"],
    "model.method.delta": ["-inf", "nan", "x"],
    "model.net": ["torch.nn.ReLU", "ResNet", "torch.nn.Linear", "7"],
    "model.optimizer": ["SDG", "FedQCL", "1"],
    "model.optimizer.lr": ["fast", "-1", "[]"],
    "data.alpha": ["0", "-1", "nan", "inf", "x"],
    "data.tasks": ["0", "-2", "1.5", "[0]", "[2, x]", "two"],
    "data.num_clients": ["0", "-1", "1e99", "x", "2.5"],
    "data.batch_size": ["0", "x", "-13"],
    "data.class_order": ["sorted", "1", "[a]"],
    "data.scenario": ["domain", "Task", "0"],
    "data.validation": ["1", "-0.1", "x"],
    "data.source": ["MNIST", "digits", "6"],
    "data.seed": ["3"],
}
STRAY = [
    "trainer.max_epochs",
    "model.V",
    "rounds",
    "data.method.V",
    "model.method.detla",
    "trainer.rounds.x",
    "Data",
    "x",
]
TEXTS = [
    "\t",
    "a",
    "- 1",
    "[",
    "{",
    "a: b: c",
    "x: ${y}",
    "!!python/object/apply:os.mkdir [hacked]",
    "5",
    "\ufeff",
    "%",
]
WORDS = [
    "",
    "-",
    "--",
    "---",
    "x",
    "=",
    "--=",
    "--config",
    "--config=",
    "-c",
    "--trainer",
    "--é",
    "--a b",
    "\x00",
    "--" + "y" * 500,
]


@pytest.fixture(autouse=True)
def _work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and a trainer that does nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("fit", "validate", "test"):
        done = functools.wraps(getattr(FederatedTrainer, name))(lambda *_, **__: None)
        monkeypatch.setattr(FederatedTrainer, name, done)


def run(words: list[str]) -> tuple[int, str]:
    """The status of a command line, and what it wrote to stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
        status = main(words)
    return status, errors.getvalue()


def refused(words: list[str]) -> None:
    before = sorted(Path().iterdir())
    status, errors = run(words)
    assert (status, errors.count("\n")) == (2, 1), (words, errors)
    assert errors.startswith("fedqcl")
    assert "Traceback" not in errors
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("key", WRONG)
def test_wrong_values(key: str) -> None:
    """On the command line, and in a file."""
    for value in WRONG[key]:
        refused(["fit", "--config", "quickstart", f"--{key}", value])
        content: Any = yaml.safe_load(value) if value else ""
        for name in reversed(key.split(".")):
            content = {name: content}
        Path("bad.yaml").write_text(yaml.safe_dump(content))
        refused(["fit", "--config", "quickstart", "--config", "bad.yaml"])


@pytest.mark.parametrize("key", STRAY)
def test_keys_that_do_not_exist(key: str) -> None:
    refused(["fit", "--config", "quickstart", f"--{key}", "1"])
    refused(["fit", "--config", "quickstart", f"--{key}=1"])


@pytest.mark.parametrize("text", TEXTS)
def test_files_that_are_no_config(text: str) -> None:
    Path("bad.yaml").write_text(text, encoding="utf-8")
    refused(["fit", "--config", "bad.yaml"])
    assert not Path("hacked").exists()


def mutants(count: int) -> Iterator[tuple[list[str], bytes]]:
    """Command lines with odd words in odd places, and shipped configs with a few bytes changed, cut or doubled."""
    rng = random.Random(0)
    text = (shipped_folder() / "quickstart.yaml").read_bytes()
    for _ in range(count):
        key = rng.choice([*WRONG, *STRAY])
        words = ["fit", "--config", rng.choice(["quickstart", "bad.yaml", "cifar10", "none"])]
        for _ in range(rng.randint(0, 3)):
            odd = rng.choice([*WORDS, f"--{key}", f"--{key}={rng.choice(TEXTS)}", rng.choice(WRONG.get(key, ["1"]))])
            words.insert(rng.randint(0, len(words)), odd)
        content = bytearray(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(content))
            content[at : at + rng.choice([0, 1, 9])] = rng.choice([b"", b":", b"\n", b"  ", b"[", b"\xff", b"0", b"-"])
        yield words, bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])


def test_anything_else() -> None:
    started = 0
    for words, content in mutants(150):
        Path("bad.yaml").write_bytes(content)
        status, errors = run(words)
        assert status in (0, 2), words
        assert errors.count("\n") == (status == 2), (words, errors)
        assert [path.name for path in Path().iterdir()] == ["bad.yaml"]
        started += status == 0
    assert 0 < started < 120
