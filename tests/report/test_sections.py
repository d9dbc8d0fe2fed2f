from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedqcl.report.runs import Run
from fedqcl.report.sections import OTHER, as_number, make_sections, order


def run(
    accuracy: float = 0.5, seed: int = 0, at: list[dict[str, Any]] | None = None, method: str = "FedQCL",
    source: str = "CIFAR100", experiment: str = "e7-V", **settings: Any,
) -> Run:  # fmt: skip
    config = {
        "seed_everything": seed,
        "trainer": {"devices": seed + 1, "root": "runs", "rounds": settings.pop("rounds", 10)},
        "model": {"method": {"class_path": f"fedqcl.methods.{method}", "init_args": settings}},
        "data": {"source": {"class_path": f"fedqcl.{source}", "init_args": {"root": f"data{seed}"}}},
    }
    places = {experiment: {"title": "V", "fills": "Figure 3", "show": ["sweep over V"], "at": at}} if at else {}
    return Run(Path(f"{method}-{seed}"), yaml.safe_dump(config), {"average_accuracy": accuracy, "seed": seed}, places)


def test_runs_that_differ_in_the_seed_alone_are_a_cell() -> None:
    runs = [
        run(accuracy, seed, [{"seed": seed, "method": "FedQCL", "V": 10}]) for seed, accuracy in enumerate((0.4, 0.6))
    ]
    (section,) = make_sections(runs)
    (cell,) = section.cells
    assert (section.name, section.title, section.fills, section.show) == ("e7-V", "V", "Figure 3", ["sweep over V"])
    assert cell.at == {"method": "FedQCL", "V": 10}
    assert cell.mean("average_accuracy") == pytest.approx(0.5)
    assert cell.std("average_accuracy") == pytest.approx(0.02**0.5)
    assert (cell.method, cell.dataset) == ("FedQCL", "Split-CIFAR-100")


def test_cells_are_sorted_as_a_reader_expects() -> None:
    runs = [
        run(at=[{"config": config, "method": method, "alpha": alpha}], method=method, source=source)
        for config, source in (("cifar100", "CIFAR100"), ("cifar10", "CIFAR10"))
        for method in ("FedQCL", "Mine", "FedAvg")
        for alpha in ("1e5", 10, 0.1)
    ]
    (section,) = make_sections(runs)
    assert [section.label(cell) for cell in section.cells[:9]] == [
        f"Split-CIFAR-10, {method}, alpha {alpha}"
        for method in ("FedAvg", "FedQCL", "Mine")
        for alpha in (0.1, 10, "1e5")
    ]
    assert section.label(section.cells[0], ["config", "alpha"]) == "FedAvg"
    assert {dataset: len(cells) for dataset, cells in section.panels().items()} == {
        "Split-CIFAR-10": 9,
        "Split-CIFAR-100": 9,
    }


def test_a_list_says_of_what_it_is() -> None:
    (section,) = make_sections([run(at=[{"T": T}]) for T in (2, [2, 3, 5])])
    assert [section.label(cell) for cell in section.cells] == ["T 2", "T [2, 3, 5]"]


def test_settings_in_which_runs_at_one_place_differ_become_axes() -> None:
    runs = [run(at=[{"method": "FedQCL", "V": 10}], rounds=rounds, seed=seed) for rounds in (1, 10) for seed in (0, 1)]
    (section,) = make_sections(runs)
    assert [cell.at for cell in section.cells] == [
        {"method": "FedQCL", "V": 10, "rounds": 1},
        {"method": "FedQCL", "V": 10, "rounds": 10},
    ]
    assert [len(cell.runs) for cell in section.cells] == [2, 2]
    assert [section.label(cell) for cell in section.cells] == ["FedQCL, rounds 1", "FedQCL, rounds 10"]


def test_a_run_is_in_every_experiment_and_place_it_belongs_to() -> None:
    both = run(at=[{"V": 10}, {"delta": 1}])
    both.places["e8-delta"] = {"title": "Tolerance", "fills": "", "show": [], "at": [{"delta": 1}]}
    sections = make_sections([both, run(experiment="e10-x", at=[{"V": 1}])])
    assert [section.name for section in sections] == ["e7-V", "e8-delta", "e10-x"]
    assert [cell.at for cell in sections[0].cells] == [{"delta": 1}, {"V": 10}]


def test_runs_of_no_experiment_are_told_apart_by_their_settings() -> None:
    (section,) = make_sections([run(V=10.0), run(V=10.0, seed=1), run(V=20.0), run(method="ER")])
    assert section.name == OTHER
    assert [section.label(cell) for cell in section.cells] == ["ER", "FedQCL, V 10", "FedQCL, V 20"]
    assert [len(cell.runs) for cell in section.cells] == [1, 2, 1]


def test_single_runs_of_no_experiment_go_by_their_names() -> None:
    (section,) = make_sections([run(V=10.0), run(V=20.0), run(method="ER")])
    assert [section.label(cell) for cell in section.cells] == ["ER-0", "FedQCL-0", "FedQCL-0"]


def test_an_experiment_is_called_and_shows_what_its_file_said_last() -> None:
    old, new = run(at=[{"V": 1}], V=1), run(at=[{"V": 2}], V=2)
    new.places["e7-V"] |= {"title": "Weight of the new task", "show": ["table"]}
    (section,) = make_sections([old, replace(new, marked=2.0), replace(old, marked=1.0)])
    assert (section.title, section.show) == ("Weight of the new task", ["table"])
    assert [cell.at for cell in section.cells] == [{"V": 1}, {"V": 2}]


def test_an_experiment_may_have_any_name() -> None:
    sections = make_sections([run(at=[{"V": V}], experiment=OTHER, V=V) for V in (1, 2)] + [run(V=1), run(V=2)])
    assert [section.name for section in sections] == [OTHER, OTHER]
    assert [[section.label(cell) for cell in section.cells] for section in sections] == [
        ["V 1", "V 2"],
        ["FedQCL-0", "FedQCL-0"],
    ]


def test_runs_of_scripts_whose_options_are_not_known_are_not_put_together() -> None:
    scripts = [Run(Path("runs", name), "", {"seed": seed, "dataset": "digits"}) for name, seed in (("a", 0), ("b", 1))]
    (section,) = make_sections(scripts)
    assert [section.label(cell) for cell in section.cells] == ["a", "b"]
    (section,) = make_sections([*scripts, run(source="Digits"), run(source="Digits", seed=1)])
    assert [section.label(cell) for cell in section.cells] == ["FedQCL", "runs/a", "runs/b"]


def test_a_run_that_was_repeated_counts_once() -> None:
    (section,) = make_sections([run(0.4), run(0.4), run(0.6, seed=1)])
    (cell,) = section.cells
    assert [one.seed for one in cell.runs] == [0, 1]
    assert cell.mean("average_accuracy") == pytest.approx(0.5)


def test_runs_that_were_tested_on_other_images_stand_apart() -> None:
    at = [{"method": "FedQCL"}]
    shares = {0.0: "test", 0.1: "validation", 0.2: "validation"}
    held = {share: held_out(run(at=at), images, share) for share, images in shares.items()}
    sections = make_sections([*held.values(), held_out(run(), "test", 0.0), held_out(run(), "validation", 0.1)])
    assert [(section.name, section.title, section.cells[0].dataset, len(section.cells)) for section in sections] == [
        ("e7-V", "V", "Split-CIFAR-100", 1),
        ("e7-V on validation 0.1", "V on validation 0.1", "Split-CIFAR-100 on validation 0.1", 1),
        ("e7-V on validation 0.2", "V on validation 0.2", "Split-CIFAR-100 on validation 0.2", 1),
        (OTHER, "Other runs", "Split-CIFAR-100", 1),
        (f"{OTHER} on validation 0.1", "Other runs on validation 0.1", "Split-CIFAR-100 on validation 0.1", 1),
    ]
    assert all(len(section.cells[0].runs) == 1 for section in sections)


def held_out(one: Run, images: str, share: float) -> Run:
    config = yaml.safe_load(one.text)
    config["data"]["validation"] = share
    return replace(one, text=yaml.safe_dump(config), summary={**one.summary, "evaluated_on": images})


def test_a_script_s_runs_stand_apart_too() -> None:
    sections = make_sections([Run(Path(on), "", {"evaluated_on": on}) for on in ("test", "validation")])
    assert [section.title for section in sections] == ["Other runs", "Other runs on validation"]


def test_a_number_is_one_that_a_float_can_hold() -> None:
    assert (as_number("1e5"), as_number(2)) == (1e5, 2.0)
    assert [as_number(value) for value in (True, None, "x", [1], 10**400)] == [None] * 5


def test_order() -> None:
    assert sorted(["x10", "x9", "1e5", 10, -1, "FedQCL", "FedAvg", "ER"], key=order) == [
        *("FedAvg", "ER", "FedQCL", -1, 10, "1e5", "x9", "x10"),
    ]
