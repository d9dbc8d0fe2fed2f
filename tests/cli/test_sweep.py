from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fedqcl.cli import main
from fedqcl.cli.configs import find_experiment, read_config, read_experiment, shipped_experiments
from fedqcl.cli.sweep import Task, _parsed, _slots
from fedqcl.errors import InputError
from fedqcl.run import RunFolder
from fedqcl.sweep import Experiment, KnownRuns
from tests.helpers.process import run_python

SMALL = ["config=quickstart", "seed=0", "C=1", "R=1", "N=2"]
Out = Callable[[], tuple[str, str]]


@pytest.fixture(autouse=True)
def _work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fedqcl"])


@pytest.fixture
def out(capfd: pytest.CaptureFixture[str]) -> Out:
    return lambda: tuple(capfd.readouterr())  # type: ignore[return-value]


def write(name: str = "mine.yaml", **axes: object) -> str:
    grid = {"config": ["quickstart"], "C": [1], "R": [1], "N": [2], **axes}
    Path(name).write_text(yaml.safe_dump({"title": "Mine", "grid": grid}, sort_keys=False), encoding="utf-8")
    return name


def test_a_sweep_runs_what_is_missing_once(out: Out) -> None:
    mine = write(V=[10, 100])
    assert main(["sweep", mine, "--override", "V=10"]) == 0
    assert out()[0].splitlines()[:2] == ["mine: Mine, 1 runs in runs/mine", "0 finished, 1 to run"]
    assert main(["sweep", mine]) == 0
    lines = out()[0].splitlines()
    assert lines[1] == "1 finished, 1 to run"
    assert lines[2].startswith("[1/1] quickstart-C1-R1-N2-V100  accuracy ")
    folders = [RunFolder(f"runs/mine/quickstart-C1-R1-N2-V{V}") for V in (10, 100)]
    assert [folder.read_places()["mine"]["at"][0]["V"] for folder in folders] == [10, 100]
    configs = [read_config(folder.config) for folder in folders]
    assert [config["model"]["method"]["init_args"]["V"] for config in configs] == [10, 100]
    assert {config["trainer"]["devices"] for config in configs} == {1}
    assert "average accuracy" in Path("runs/mine/quickstart-C1-R1-N2-V100.log").read_text(encoding="utf-8")

    assert main(["sweep", mine, "--list"]) == 0
    assert [line.split()[1] for line in out()[0].splitlines()[1:]] == ["finished", "finished"]
    assert main(["sweep", write("other.yaml", delta=[0.05])]) == 0  # the quickstart's own, where V is 100
    assert out()[0].splitlines()[1] == "1 finished, 0 to run"
    assert set(folders[1].read_places()) == {"mine", "other"}


def test_runs_that_would_take_gpus_have_ranks_of_their_own_where_there_are_none() -> None:
    words = ["sweep", "e7", "--override", *SMALL, "V=1", "trainer.accelerator=auto", "trainer.devices=2"]
    done = run_python("-m", "fedqcl", *words, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    log = Path("runs/e7-V/quickstart-FedQCL-V1-seed0.log").read_text(encoding="utf-8")
    assert "2 CPU ranks" in log


def test_a_run_that_fails_is_reported_and_stops_no_other(out: Out) -> None:
    mine = write(seed=[0], **{"data.validation": [0.9999, 0]})
    assert main(["sweep", mine]) == 1
    printed, errors = out()
    assert [line.split()[0] for line in printed.splitlines()[2:]] == ["[1/2]", "[2/2]"]
    assert re.search(r"  FAILED; [\d.]+ s left$", printed.splitlines()[2])
    assert printed.splitlines()[3].endswith(" s")
    first, second = errors.splitlines()
    assert first == "1 of 2 failed:"
    assert second.startswith(
        "quickstart-C1-R1-N2-validation0.9999-seed0: fedqcl fit: error: data.validation: 0.9999 of"
    )
    assert second.endswith("(runs/mine/quickstart-C1-R1-N2-validation0.9999-seed0.log)")
    assert main(["sweep", mine, "--list"]) == 0
    assert [line.split()[:2] for line in out()[0].splitlines()[1:]] == [["0", "missing"], ["1", "finished"]]


def test_a_run_whose_summary_is_damaged_is_repeated(out: Out) -> None:
    mine = write(seed=[0])
    assert main(["sweep", mine]) == 0
    folder = RunFolder("runs/mine/quickstart-C1-R1-N2-seed0")
    accuracies = [row["average_accuracy"] for row in folder.read_metrics()]
    folder.summary.write_text("{", encoding="utf-8")
    out()
    assert main(["sweep", mine, "--list"]) == 0
    assert out()[0].splitlines()[1].split()[1] == "unfinished"
    assert main(["sweep", mine]) == 0
    assert out()[0].splitlines()[1] == "0 finished, 1 to run"
    assert folder.finished
    assert [row["average_accuracy"] for row in folder.read_metrics()] == accuracies


def test_one_run_by_its_index(out: Out) -> None:
    words = ["sweep", write(V=[10, 100]), "--override", "trainer.devices=1", "--index"]
    assert main([*words, "1"]) == 0
    assert [path.name for path in Path("runs/mine").iterdir()] == ["quickstart-C1-R1-N2-V100"]
    assert main([*words, "1"]) == 0
    assert out()[0].splitlines()[-1] == (
        "quickstart-C1-R1-N2-V100: finished already, in runs/mine/quickstart-C1-R1-N2-V100"
    )
    assert main([*words, "2"]) == 2
    assert out()[1] == "fedqcl sweep: error: index: 2 is not one of the 2 runs; give 0 to 1\n"


def test_a_run_at_two_places_is_made_once(out: Out) -> None:
    grids = [{"config": ["quickstart"], "C": [1], "R": [1], "N": [2], axis: [value]} for axis, value in PLACES]
    Path("two.yaml").write_text(yaml.safe_dump({"grid": grids}, sort_keys=False), encoding="utf-8")
    assert main(["sweep", "two.yaml"]) == 0
    assert out()[0].splitlines()[1] == "0 finished, 1 to run"
    (folder,) = [path for path in Path("runs/two").iterdir() if path.is_dir()]
    assert [list(at)[-1] for at in RunFolder(folder).read_places()["two"]["at"]] == ["V", "delta"]


PLACES = (("V", 100), ("delta", 0.05))  # the quickstart has both


def test_several_experiments_share_their_runs(out: Out) -> None:
    both = ["sweep", write("one.yaml", V=[10]), write("two.yaml", V=[10, 100]), "one.yaml"]
    assert main([*both, "--list"]) == 0
    assert [line.split("  ")[0] for line in out()[0].splitlines()] == [
        "one: Mine, 1 runs in runs/one",
        "0",
        "two: Mine, 2 runs in runs/two",
        "1",
        "2",
    ]
    assert main([*both, "--override", "trainer.devices=1", "--index", "2"]) == 0
    out()
    assert main(both) == 0
    assert out()[0].splitlines()[2] == "1 finished, 1 to run"
    (shared,) = [path for path in Path("runs/one").iterdir() if path.is_dir()]
    assert set(RunFolder(shared).read_places()) == {"one", "two"}
    Path("other").mkdir()
    assert main(["sweep", "one.yaml", write("other/one.yaml", V=[1])]) == 2
    assert out()[1] == (
        "fedqcl sweep: error: other/one.yaml: another of these experiments is called one, too; rename the file\n"
    )


def test_a_run_under_another_configuration_keeps_its_name(out: Out) -> None:
    mine = write(seed=[0])
    assert main(["sweep", mine]) == 0
    assert main(["sweep", mine, "--override", "V=1"]) == 0
    assert sorted(path.name for path in Path("runs/mine").iterdir() if path.is_dir()) == [
        "quickstart-C1-R1-N2-seed0",
        "quickstart-C1-R1-N2-seed0-2",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["e7-w"], "e7-w: there is no such experiment; did you mean e7-V? shipped ones: e1-methods, "),
        (["e77"], "e77: there is no such experiment; shipped ones: e1-methods, "),
        ([], "the following arguments are required: experiment"),
        (["e7", "--indx", "3"], "unrecognized arguments: --indx 3"),
        (["e7", "--override", *SMALL, "lr=-1"], "quickstart-FedQCL-V10-seed0: model.optimizer: Invalid learning rate"),
        (["e7", "--override", *SMALL, "V=0"], "quickstart-FedQCL-V0-seed0: model.method.V: 0 is not accepted"),
        (
            ["e1", "--override", *SMALL, "weight=1"],
            "quickstart-fair-FedAvg-seed0: model.method.weight: there is no such",
        ),
        (
            ["e1", "--override", *SMALL, "preset=fairy"],
            "quickstart-fairy-FedAvg-seed0: config: there is no file",
        ),
        (
            ["e7", "--override", *SMALL, "V=1", "--root", __file__],
            f"root: cannot make {__file__}/e7-V: Not a directory; ",
        ),
        (["e7", "--override", *SMALL, "V=1", "--jobs", "0"], "jobs: 0 is not accepted; give a whole number from 1 up"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(words: list[str], message: str, out: Out) -> None:
    assert main(["sweep", *words]) == 2
    _, errors = out()
    assert errors.startswith(f"fedqcl sweep: error: {message}")
    assert errors.count("\n") == 1
    assert not Path("runs").exists()


def test_a_sweep_is_one_task_of_slurm(out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_NAME", "mine")
    assert main(["sweep", write(seed=[0])]) == 2
    assert out()[1] == ("fedqcl sweep: error: Slurm: a sweep is one task, not 4; write `#SBATCH --ntasks-per-node=1`\n")


def test_each_gpu_has_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedqcl.cli.sweep._visible_gpus", lambda: ["2", "5"])
    experiment = Experiment("e", {"grid": {"config": ["cifar10", "quickstart"]}})
    gpu, cpu = (Task(KnownRuns(Path("runs"), dict), experiment, run) for run in experiment.runs())
    assert _slots([gpu, cpu], None) == ["2", "5"]
    assert _slots([gpu], 3) == ["2", "5", "2"]
    assert _slots([gpu], 1) == ["2"]
    assert _slots([cpu], None) == [None]  # its accelerator is the CPU
    assert _slots([cpu], 2) == [None, None]


def test_a_run_for_wandb_is_grouped_and_tagged() -> None:

    experiment = Experiment("e7-V", read_experiment(find_experiment("e7")), ["seed=0", "config=cifar100", "V=10"])
    (planned,) = experiment.runs()
    words = Task(KnownRuns(Path("runs"), dict), experiment, planned).job().words
    assert "--trainer.logger.group=e7-V" in words
    assert '--trainer.logger.tags=["e7-V", "seed=0", "config=cifar100", "method=FedQCL", "V=10"]' in words
    assert "--trainer.name=cifar100-FedQCL-V10-seed0" in words


@pytest.mark.parametrize("name", shipped_experiments())
def test_the_ends_of_every_experiment_are_commands_that_fit_takes(name: str) -> None:
    """As they are shipped; of the first experiment every method, of the authors' code every peculiarity."""
    experiment = Experiment(name, read_experiment(find_experiment(name)))
    runs = experiment.runs()
    some = {"e1-methods": runs[:11], "authors": runs[:13]}
    for planned in some.get(name, [runs[0], runs[-1]]):
        config = Task(KnownRuns(Path("runs"), dict), experiment, planned).config
        assert config["seed_everything"] == planned.at["seed"]
        method = config["model"]["method"]["class_path"].rpartition(".")[2]
        assert method == planned.at.get("method", planned.options.get("model.method", method))


def test_there_is_a_file_for_each_experiment() -> None:
    names = [name.partition("-")[0] for name in shipped_experiments()]
    assert names == [
        *(f"e{number}" for number in range(1, 18)),
        "replay",
        "authors",
        "controls",
        "settings",
        "strengths",
    ]
    for name in shipped_experiments():
        assert find_experiment(name.partition("-")[0]) == find_experiment(name)


def test_a_run_that_lacks_a_newer_option_is_known(out: Out) -> None:
    mine = write(seed=[0])
    assert main(["sweep", mine]) == 0
    config = Path("runs/mine/quickstart-C1-R1-N2-seed0/config.yaml")
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("      queue_loss: batches\n", ""), encoding="utf-8")
    assert config.read_text(encoding="utf-8") != text
    out()
    assert main(["sweep", mine, "--list"]) == 0
    assert out()[0].splitlines()[1].split()[1] == "finished"
    assert main(["sweep", mine, "--list", "--override", "model.method.queue_loss=mean"]) == 0
    assert out()[0].splitlines()[1].split()[1] == "missing"
    run = RunFolder(config.parent)
    run.summary.unlink()  # as if it had been stopped
    assert main(["sweep", mine, "--index", "0"]) == 0
    assert run.finished


def test_the_places_are_plain_json(out: Out) -> None:
    assert main(["sweep", write(seed=[0])]) == 0
    text = Path("runs/mine/quickstart-C1-R1-N2-seed0/sweep.json").read_text(encoding="utf-8")
    assert json.loads(text)["mine"]["at"] == [{"config": "quickstart", "C": 1, "R": 1, "N": 2, "seed": 0}]


def test_runs_that_differ_in_the_seed_are_parsed_once() -> None:
    experiment = Experiment("mine", {"grid": {"config": ["quickstart"], "V": [1, 2], "seed": [3, 4, 5]}})
    _parsed.cache_clear()
    tasks = [Task(KnownRuns(Path("runs"), dict), experiment, planned) for planned in experiment.runs()]
    found = {(task.config["model"]["method"]["init_args"]["V"], task.config["seed_everything"]) for task in tasks}
    assert found == {(V, seed) for V in (1, 2) for seed in (3, 4, 5)}
    assert _parsed.cache_info().misses == 2


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused_before_any_run(seed: int) -> None:
    experiment = Experiment("mine", {"grid": {"config": ["quickstart"], "seed": [seed]}})
    with pytest.raises(InputError, match=f"quickstart-seed{seed}: seed_everything: {seed} is not accepted"):
        Task(KnownRuns(Path("runs"), dict), experiment, experiment.runs()[0])
