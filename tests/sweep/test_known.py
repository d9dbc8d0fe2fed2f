from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedqcl.errors import InputError
from fedqcl.run import RunFolder
from fedqcl.sweep import Experiment, KnownRuns
from fedqcl.sweep.known import free_name, mark, same_run

CONFIG: dict[str, Any] = {
    "seed_everything": 0,
    "trainer": {"devices": "auto", "root": "runs", "logger": None, "rounds": 10, "epochs": 1, "precision": "32-true"},
    "model": {"method": {"class_path": "fedqcl.methods.FedQCL", "init_args": {"V": 20.0, "delta": 1.0}}},
    "data": {"alpha": 10.0},
}


def changed(key: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    *path, last = key.split(".")
    part = config
    for name in path:
        part = part[name]
    part[last] = value
    return config


def nothing(config: dict[str, Any]) -> dict[str, Any]:
    return {}


def run(path: Path, config: dict[str, Any], finished: bool = True) -> RunFolder:
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.config.write_text(yaml.safe_dump(config), encoding="utf-8")
    if finished:
        folder.write_summary({"seed": 0})
    return folder


@pytest.mark.parametrize(
    ("key", "value"),
    [("trainer.devices", 8), ("trainer.root", "elsewhere"), ("trainer.logger", {"class_path": "WandbLogger"})],
)
def test_where_and_how_a_run_is_computed_makes_no_other_run(key: str, value: Any) -> None:
    assert same_run(CONFIG, changed(key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed_everything", 1),
        ("trainer.rounds", 1),
        ("trainer.precision", "bf16-mixed"),
        ("trainer.epochs", 5),
        ("model.method.class_path", "fedqcl.methods.ER"),
        ("model.method.init_args.V", 10.0),
        ("data.alpha", 0.1),
        ("data", None),
    ],
)
def test_whatever_changes_the_outcome_makes_another_run(key: str, value: Any) -> None:
    assert not same_run(CONFIG, changed(key, value))
    assert not same_run(changed(key, value), CONFIG)


def test_an_option_that_is_not_known_to_decide_nothing_decides() -> None:
    assert not same_run(changed("trainer.new", 1), changed("trainer.new", 2))


def test_a_run_from_before_an_option_had_its_default(tmp_path: Path) -> None:
    default, other = (changed("model.method.init_args.queue_loss", value) for value in ("batches", "mean"))
    asked: list[dict[str, Any]] = []

    def complete(config: dict[str, Any]) -> dict[str, Any]:
        asked.append(config)
        return default

    run(tmp_path / "e1" / "old", CONFIG)
    known = KnownRuns(tmp_path, complete)
    assert known.find(other) is None
    assert known.find(default)
    assert asked == [CONFIG]
    assert KnownRuns(tmp_path, nothing).find(default) is None  # it has an option that is no more


def test_runs_are_found_in_whatever_experiment_they_lie(tmp_path: Path) -> None:
    other = run(tmp_path / "e1" / "other", changed("seed_everything", 1))
    mine = run(tmp_path / "e7" / "mine", CONFIG)
    single = run(tmp_path / "single", changed("seed_everything", 2))
    (tmp_path / "e7" / "broken").mkdir()
    (tmp_path / "e7" / "broken" / "config.yaml").write_text("a: [", encoding="utf-8")
    known = KnownRuns(tmp_path, nothing)
    for folder, config in (
        (mine, CONFIG),
        (other, changed("seed_everything", 1)),
        (single, changed("seed_everything", 2)),
    ):
        found = known.find(config)
        assert found
        assert found.path == folder.path
    assert known.find(changed("seed_everything", 3)) is None
    late = run(tmp_path / "e8" / "late", changed("seed_everything", 3))
    found = known.find(changed("seed_everything", 3))
    assert found
    assert found.path == late.path


def test_a_finished_run_comes_before_an_unfinished_one(tmp_path: Path) -> None:
    run(tmp_path / "e1" / "a", CONFIG, finished=False)
    found = KnownRuns(tmp_path, nothing).find(CONFIG)
    assert found
    assert found.path.name == "a"
    run(tmp_path / "e1" / "b", CONFIG)
    found = KnownRuns(tmp_path, nothing).find(CONFIG)
    assert found
    assert found.path.name == "b"


def test_a_name_that_is_taken_is_counted_on(tmp_path: Path) -> None:
    assert free_name(tmp_path / "nowhere", "x") == "x"
    for name in ("x", "x-2"):
        (tmp_path / name).mkdir()
    assert free_name(tmp_path, "x") == "x-3"


@pytest.mark.parametrize("text", ["", "{", "3", '{"e7": 3}', '{"e8": {"at": 3}}'])
def test_a_damaged_note_is_written_anew(text: str, tmp_path: Path) -> None:
    folder = run(tmp_path / "x", CONFIG)
    folder.places.write_text(text, encoding="utf-8")
    experiment = Experiment("e7", {"grid": {"V": [1]}})
    mark(folder, experiment, experiment.runs()[0])
    assert folder.read_places()["e7"]["at"] == [{"V": 1}]


def test_a_note_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    folder = run(tmp_path / "x", CONFIG)
    folder.places.mkdir()
    experiment = Experiment("e7", {"grid": {"V": [1]}})
    with pytest.raises(InputError, match=r"sweep\.json: cannot be written \(Is a directory\)$"):
        mark(folder, experiment, experiment.runs()[0])


def test_a_run_is_marked_with_all_its_places(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", CONFIG)
    grid = [{"V": [20]}, {"delta": [1, 2]}]
    first = Experiment("e1", {"grid": grid, "title": "First", "fills": "Table 1", "show": ["curves"]})
    in_v, in_delta, _ = first.runs()
    second = Experiment("e2", {"grid": {"V": [20]}})
    for experiment, planned in ((first, in_v), (first, in_delta), (first, in_v), (second, second.runs()[0])):
        mark(folder, experiment, planned)
    assert folder.read_places() == {
        "e1": {"title": "First", "fills": "Table 1", "show": ["curves"], "at": [{"V": 20}, {"delta": 1}]},
        "e2": {"title": "e2", "fills": "", "show": ["table"], "at": [{"V": 20}]},
    }
