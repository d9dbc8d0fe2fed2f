from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from fedqcl.errors import InputError
from fedqcl.metrics import average_accuracy, forgetting
from fedqcl.report.runs import Run, accuracy_after, deviation, forgetting_after, read_runs
from fedqcl.run import RunFolder

nan = math.nan
MATRIX = [[0.9, 0.1, 0.1], [0.95, 0.8, 0.1], [0.7, 0.5, 0.6]]
SUMMARY = {"average_accuracy": 0.6, "forgetting": None, "accuracy_matrix": [[0.6, None], [0.5, 0.7]]}
CONFIG = "seed_everything: 3\ntrainer: {rounds: 10}\nmodel: {method: ER}\ndata: {alpha: 1}\n"


def write(path: Path, finished: bool = True, config: str = CONFIG) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(config, encoding="utf-8")
    if finished:
        (path / "summary.json").write_text(json.dumps(SUMMARY), encoding="utf-8")
    return path


def test_runs_are_found_at_any_depth_once(tmp_path: Path) -> None:
    deep, plain = write(tmp_path / "a" / "b" / "deep"), write(tmp_path / "plain")
    (deep / "plots" / "x").mkdir(parents=True)
    late = write(tmp_path / "a" / "late", finished=False)
    write(tmp_path / ".hidden" / "run")
    finished, unfinished = read_runs([tmp_path, tmp_path / "a", plain])
    assert [run.path for run in finished] == [deep, plain]
    assert set(unfinished) == {late}


def test_what_a_run_says_of_itself(tmp_path: Path) -> None:
    config = """
seed_everything: 3
trainer: {rounds: 10}
model:
  method: {class_path: fedqcl.methods.FedQCL, init_args: {V: 20.0}}
  net: {class_path: mine.Net}
data: {source: {class_path: fedqcl.data.sources.CIFAR100, init_args: {root: data}}, alpha: 10.0, augment: null}
"""
    ((run,), _) = read_runs([write(tmp_path / "run", config=config)])
    assert run.settings == {
        "seed_everything": 3,
        "trainer.rounds": 10,
        "model.method": "FedQCL",
        "model.method.V": 20.0,
        "model.net": "Net",
        "data.source": "CIFAR100",
        "data.source.root": "data",
        "data.alpha": 10.0,
        "data.augment": None,
    }
    assert (run.dataset, run.method, run.seed) == ("cifar100", "FedQCL", 3)
    assert run.figure("average_accuracy") == 0.6
    assert math.isnan(run.figure("forgetting"))
    assert math.isnan(run.figure("nothing"))
    assert run.accuracy[0][0] == 0.6
    assert math.isnan(run.accuracy[0][1])
    assert run.queues == []
    assert (run.device, run.places) == ("unknown", {})


def test_own_images_go_by_the_name_of_their_file(tmp_path: Path) -> None:
    source = "data: {source: {class_path: fedqcl.data.sources.Npz}}\n"
    path = write(tmp_path / "run", config=CONFIG.replace("data: {alpha: 1}\n", source))
    (path / "summary.json").write_text(
        json.dumps(SUMMARY | {"dataset": "cifar100", "device": "1 x NVIDIA H200"}), "utf-8"
    )
    ((run,), _) = read_runs([path])
    assert (run.dataset, run.device) == ("cifar100", "1 x NVIDIA H200")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: there is no such folder; give runs' folders, or a folder that"):
        read_runs(["nowhere"])
    with pytest.raises(InputError, match=r"no finished run there; a finished one has a summary\.json$"):
        read_runs([tmp_path])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        *(("summary.json", text) for text in ("{", "", "[1]", '{"a": 1}')),
        *(("config.yaml", text) for text in ("data: {alpha: 1", "a: b: c", "3\n", "# fedqcl\n", CONFIG[:-1], None)),
        *(("sweep.json", text) for text in ("{", "3", '{"e1": 3}')),
    ],
)
def test_a_run_whose_files_are_damaged_is_refused_in_one_line(file: str, text: str | None, tmp_path: Path) -> None:
    path = write(tmp_path / "run") / file
    path.unlink() if text is None else path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"run: cannot be read \(.+\); remove it or leave it out$") as refused:
        read_runs([tmp_path])
    assert "\n" not in str(refused.value)


def test_a_config_that_was_cut_short_is_refused_even_if_it_can_be_read(tmp_path: Path) -> None:
    config = write(tmp_path / "run") / "config.yaml"
    for end in range(1, len(CONFIG)):
        config.write_text(CONFIG[:end], encoding="utf-8")
        with pytest.raises(InputError, match="run: cannot be read"):
            read_runs([tmp_path])


def test_a_run_of_a_script_has_no_options_and_is_read(tmp_path: Path) -> None:
    path = RunFolder.create(tmp_path, None, "digits-FedAvg-seed2").path
    (path / "summary.json").write_text(json.dumps(SUMMARY | {"dataset": "digits", "seed": 2}), encoding="utf-8")
    ((run,), _) = read_runs([tmp_path])
    assert (run.dataset, run.method, run.seed, run.settings) == ("digits", "", 2, {})
    place = {"title": "", "fills": "", "show": [], "at": [{"seed": 2}]}
    (path / "sweep.json").write_text(json.dumps({"e1": place}), encoding="utf-8")  # a sweep's has options
    with pytest.raises(InputError, match=r"config\.yaml: seed_everything is missing"):
        read_runs([tmp_path])


def test_the_results_that_are_kept_can_be_read() -> None:
    runs, unfinished = read_runs([Path(__file__).parents[2] / "benchmarks" / "results"])
    assert unfinished == []
    assert {run.method for run in runs} >= {"FedQCL", "FedAvg"}


def test_curves_are_the_metrics_of_the_first_rows() -> None:
    matrix = torch.tensor(MATRIX)
    assert accuracy_after(MATRIX) == pytest.approx([0.9, 0.875, 0.6])
    assert accuracy_after(MATRIX) == pytest.approx([float(average_accuracy(matrix[:t])) for t in (1, 2, 3)])
    # After task 3: 0.95 - 0.7 and 0.8 - 0.5; the 0.1 of task 2 before it was learned does not count.
    assert forgetting_after(MATRIX) == pytest.approx([nan, -0.05, 0.275], nan_ok=True)
    assert forgetting_after(MATRIX) == pytest.approx([float(forgetting(matrix[:t])) for t in (1, 2, 3)], nan_ok=True)


def test_deviation_of_a_sample() -> None:
    assert deviation([1.0, nan, 3.0]) == pytest.approx(math.sqrt(2))
    assert math.isnan(deviation([1.0]))


@pytest.mark.parametrize("value", ["text", True, [True], None, {}, 10**400])
def test_numbers_that_are_no_numbers_are_nan(value: object) -> None:
    assert math.isnan(Run(Path(), "", {"x": value}).figure("x"))
