"""Every experiment of the paper, small, on Split-Digits: from `fedqcl sweep` to the page that `fedqcl report` makes."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.backends.backend_agg  # noqa: F401  once for all runs, which are forked
import pytest

from fedqcl.cli import main
from fedqcl.cli.configs import find_experiment, read_config, read_experiment, shipped_experiments, shipped_folder
from fedqcl.cli.lightning import FederatedCLI
from fedqcl.methods import DERpp
from fedqcl.sweep import Experiment, Planned
from tests.helpers.methods import shipped_methods

QUICK = ["config=quickstart", "seed=0", "T=2", "C=1", "R=1", "N=2", "model.net.width=4"]
# Two choices of what each experiment is about; the runs of one are often runs of another, and made once.
FEW = {
    "e1-methods": ["method=FedAvg,FedQCL"],
    "e2-curves": ["method=FedAvg,FedQCL"],
    "e3-pareto": ["method=FedAvg,FedQCL"],
    "e4-more-curves": ["method=FedAvg,FedQCL"],
    "e5-alpha": ["method=FedQCL", "alpha=1,1e5"],
    "e6-memory": ["method=FedQCL", "M=50,100"],
    "e7-V": ["V=50,100"],
    "e8-delta": ["delta=-1,0.05"],
    "e9-queues-V": ["V=50,100"],
    "e10-class-incremental": ["method=FedAvg,FedQCL", "alpha=1e5"],
    "e11-clients": ["method=FedQCL", "N=2,3"],
    "e12-epochs": ["method=FedQCL", "R=1,2"],
    "e13-online": ["method=FedQCL"],
    "e14-tasks": ["method=FedQCL", "T=2,5"],
    "e15-V-delta": ["V=50,100", "delta=-1,0.05"],
    "e16-queues": ["alpha=1,1e5", "delta=-1,0.05"],
    "e17-complexity": ["method=FedAvg,FedQCL"],
    "replay": ["weight=0.5", "delta=-5"],
    "authors": ["what=FedQCL"],
    "controls": ["control=joint", "alpha=1e5"],
    "settings": ["scenario=task", "V=50,100", "delta=0.05"],
    "strengths": [
        "model.method.strength=1",
        "model.method.epsilon=0.9",
        "model.method.logit_matching=0.1",
        "alpha=1e5",
    ],
}
# Experiments to choose settings by.
HELD_OUT = {"settings", "strengths"}
# The whole grids, but for tasks that ten digits cannot be split into.
ALL: dict[str, list[str]] = {name: [] for name in FEW} | {"e14-tasks": ["T=2,5,10"]}


def sweep_and_report(grids: dict[str, list[str]], jobs: str) -> str:
    for name, overrides in grids.items():
        axis = {"T": "e14-tasks", "N": "e11-clients", "R": "e12-epochs"}
        quick = [word for word in QUICK if axis.get(word.partition("=")[0]) != name]
        assert main(["sweep", name, "--override", *quick, *overrides, "--jobs", jobs]) == 0
    assert main(["report", "runs"]) == 0
    return Path("report/index.html").read_text(encoding="utf-8")


def check(page: str) -> None:
    figures = sorted(path.name for path in Path("report/figures").iterdir())
    for experiment in FEW:
        name = f"{experiment}-on-validation-0.1" if experiment in HELD_OUT else experiment
        assert f'<section id="{name}">' in page
        assert {path.suffix for path in Path("report/tables").glob(f"{name}.*")} == {".md", ".csv", ".tex"}
    for start in (
        *("e2-curves-curves", "e3-pareto-pareto", "e4-more-curves-curves", "e5-alpha-sweep-alpha", "e6-memory-sweep-M"),
        *("e7-V-sweep-V", "e8-delta-pareto", "e9-queues-V-queues-V", "e11-clients-sweep-N", "e12-epochs-sweep-R"),
        *("e13-online-sweep-passes", "e14-tasks-sweep-T", "e15-V-delta-sweep-delta", "e15-V-delta-pareto-V"),
        *("e16-queues-queues-delta", "e16-queues-queues-alpha", "replay-pareto"),
    ):
        assert any(figure.startswith(f"{start}-Split-Digits") for figure in figures), start
    assert page.count("<figure>") == len(figures)
    assert "M + K + d" in re.sub(r"(?s).*<section id=.e17-complexity.>", "", page)


def planned(name: str, *overrides: str) -> list[Planned]:
    return Experiment(name, read_experiment(find_experiment(name)), overrides).runs()


def test_every_method_has_its_run() -> None:
    ours = {cls.__name__ for cls in shipped_methods()} - {"FedQCLAuthors"}
    compared = {run.at["method"] for run in planned("e1")}
    controls = {choice for run in planned("controls") for choice in [run.at["control"]]}
    assert compared | controls == ours | {"joint", "independent"}
    assert {run.at["method"] for run in planned("e10")} == compared - {"FOT"}


@pytest.mark.parametrize(
    ("method", "config", "alpha"),
    [
        *(("DER", "cifar10", 0.3), ("DER", "cifar100", 0.3), ("DER", "tinyimagenet", 0.1)),
        *(("DERpp", "cifar10", 0.2), ("DERpp", "cifar100", 0.1), ("DERpp", "tinyimagenet", 0.2)),
    ],
)
def test_der_has_its_authors_best_options_in_every_comparison(method: str, config: str, alpha: float) -> None:
    (run,) = planned("e1", "seed=0", f"config={config}", f"method={method}")
    learner = FederatedCLI("fit", run.words()).model
    assert isinstance(learner.method, DERpp)
    assert (learner.method.alpha, learner.method.beta) == (alpha, 0.5 if method == "DERpp" else 0)
    given = run.options.get("model.method.alpha")
    for name in shipped_experiments():
        for other in planned(name, f"config={config}"):
            if other.at.get("method") == method:
                assert other.options.get("model.method.alpha") == given, name


def test_every_peculiarity_of_the_authors_is_taken_back_once() -> None:
    preset = read_config(shipped_folder() / "presets/authors.yaml")
    keys = {f"trainer.{key}" for key in preset["trainer"]}
    keys |= {f"model.method.{key}" for key in preset["model"]["method"]["init_args"]}
    keys |= {"data.equalise", "data.sampling", "data.augment.frozen", "model.net.zero_init", "model.net.he_init"}
    runs = {run.at["what"]: run.options for run in planned("authors", "seed=0")}
    common = runs["FedQCL"]
    assert common == {"seed_everything": 0, "model.method.V": 200, "model.method.delta": 1}
    together = ("FedAvg", "as here", "global model", "and ")
    one_by_one = [
        options for what, options in runs.items() if what != "FedQCL" and not any(word in what for word in together)
    ]
    assert all(common.items() <= options.items() for options in one_by_one)
    taken_back = [key for options in one_by_one for key in options.keys() - common]
    assert sorted(taken_back) == sorted(keys - {"trainer.precision", "model.method.skip_first_task"})


@pytest.fixture(autouse=True)
def _work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fedqcl"])


def test_two_choices_of_every_experiment() -> None:
    assert list(FEW) == shipped_experiments()
    check(sweep_and_report(FEW, jobs="2"))
    # FedAvg and FedQCL in either scenario, and FedQCL once each for M, V, delta, alpha, N, R, T and online, and at its
    # own learning rate; four other ways to replay, the authors' FedQCL, and joint training in either scenario,
    # and EWC, FOT and FedQCL at a strength each.
    assert len(list(Path("runs").glob("*/*/summary.json"))) == 25


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_grid_of_every_experiment() -> None:
    check(sweep_and_report(ALL, jobs="2"))
