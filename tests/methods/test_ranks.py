"""Every method makes the same model on one rank and on two, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedqcl.methods import Method
from tests.helpers.methods import method_classes, skip_if_refused, small_method
from tests.helpers.methods_on_ranks import SCENARIOS
from tests.helpers.process import run_python
from tests.helpers.toy import toy_data


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every run."""
    folder = tmp_path_factory.mktemp("methods")
    result = run_python("-m", "tests.helpers.methods_on_ranks", str(folder))
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("method", method_classes(), ids=lambda cls: cls.__name__)
def test_one_rank_and_two_make_the_same_model(root: Path, method: type[Method], scenario: str) -> None:
    skip_if_refused(small_method(method), toy_data(scenario=scenario).spec)
    one, two = ((root / f"{method.__name__}-{scenario}-{devices}") for devices in (1, 2))
    assert (one / "model.ckpt").read_bytes() == (two / "model.ckpt").read_bytes()
    assert (one / "clients.csv").read_bytes() == (two / "clients.csv").read_bytes()


def test_methods_differ(root: Path) -> None:
    """Else they were all FedAvg on this problem; FedProto and CCVR share the rest with it, and must still move."""
    models = {folder.name: (folder / "model.ckpt").read_bytes() for folder in root.glob("*-task-1")}
    assert len(set(models.values())) == len(models)
