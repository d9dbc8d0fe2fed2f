"""What the documents say: their commands run, their files exist."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from fedqcl.cli import main
from fedqcl.cli.configs import shipped_configs
from tests.helpers.documents import ROOT, blocks, check_parses, commands, read
from tests.helpers.methods import shipped_methods

DOCUMENTS = ["README.md", "CHANGELOG.md", "REPRODUCIBILITY.md", "CONTRIBUTING.md"]
TINY = ["--trainer.devices", "1", "--trainer.rounds", "1", "--trainer.epochs", "1"]
OWN = ["anchored.Anchored", "--model.method.strength"]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with the README's own method in it, and the search path and modules as they were."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (code,) = blocks("README.md", "python")
    Path("anchored.py").write_text(code, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "anchored", raising=False)
    return tmp_path


def fit(name: str, *words: str) -> list[list[float]]:
    """The accuracy matrix of a small run."""
    assert main(["fit", "--config", "quickstart.yaml", "--trainer.name", name, *words, *TINY]) == 0
    summary = json.loads(Path("runs", name, "summary.json").read_text(encoding="utf-8"))
    matrix: list[list[float]] = summary["accuracy_matrix"]
    return matrix


def test_there_are_commands() -> None:
    assert len(commands("README.md")) >= 8


@pytest.mark.parametrize("command", commands(*DOCUMENTS))
def test_every_command_parses(command: str) -> None:
    check_parses(command)


def test_the_first_block_is_the_quickstart() -> None:
    assert blocks("README.md", "bash")[0].splitlines()[1:] == [
        "pip install .",
        "fedqcl fit --config quickstart.yaml",
    ]


def test_the_quickstart_prints_and_writes_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config", "quickstart.yaml", *TINY]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    (shown,) = blocks("README.md", "text")
    for line in shown.splitlines():
        if line.startswith((" task", "  files", "  pictures")):
            assert line.split() in printed
    folder = Path("runs/digits-FedQCL-seed0")
    listed = re.findall(r"^\| `([\w.]+)/?` \|", read("docs/running.md"), re.MULTILINE)
    assert {path.name for path in folder.iterdir()} == set(listed)
    assert {path.name for path in (folder / "plots").iterdir()} == set(re.findall(r"\w+\.png", shown))


def test_every_method_is_named() -> None:
    section = read("README.md").partition("## Methods")[2].partition("\n## ")[0]
    assert not [cls.__name__ for cls in shipped_methods() if not re.search(rf"\b{cls.__name__}\b", section)]


def test_the_own_method_without_its_term_is_fedavg() -> None:
    lr = ["--model.optimizer.lr", "0.1"]
    fedavg = fit("fedavg", *lr, "--model.method", "FedAvg")
    without, with_it = (fit(f"own-{strength}", *lr, "--model.method", *OWN, strength) for strength in ("0", "1"))
    assert without == fedavg
    assert with_it != fedavg


def test_the_own_method_is_short_and_lies_in_the_examples() -> None:
    (code,) = blocks("README.md", "python")
    assert (ROOT / "examples/anchored.py").read_text(encoding="utf-8") == code
    body = [line for line in code.splitlines() if line.strip() and not line.startswith(("import", "from", '"""'))]
    assert len(body) <= 20


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_to_a_file(document: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", read(document))
    assert not [link for link in links if not (ROOT / link).exists()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_config_named_is_shipped(document: str) -> None:
    named = set(re.findall(r"\b[\w/]+\.yaml\b", read(document))) - {"config.yaml"}
    assert named <= set(shipped_configs())


def test_ci_runs_the_test_command_as_printed() -> None:
    test_command = blocks("README.md", "bash")[1]
    assert test_command.splitlines() == ['pip install ".[test]"', "python -m pytest"]
    assert f"\n{test_command}\n" in read(".ci/run")
    assert os.access(ROOT / ".ci/run", os.X_OK)
