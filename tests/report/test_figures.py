from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedqcl.report import figures
from fedqcl.report.runs import Run
from fedqcl.report.sections import Section, make_sections

nan = math.nan


def run(at: dict[str, Any], accuracy: float, method: str = "FedQCL", source: str = "CIFAR100", seed: int = 0) -> Run:
    config = {
        "seed_everything": seed,
        "model": {"method": {"class_path": f"x.{method}"}},
        "data": {"source": {"class_path": f"x.{source}"}},
    }
    summary = {
        "average_accuracy": accuracy,
        "forgetting": 1 - accuracy,
        "last_task_accuracy": accuracy,
        "accuracy_matrix": [[0.9, None], [2 * accuracy - 0.8, 0.8]],
        "queue_matrix": [[None, None], [10 * accuracy, None]] if method == "FedQCL" else None,
    }
    place = {"title": "", "fills": "", "show": [], "at": [{"seed": seed, "method": method, "config": source, **at}]}
    return Run(Path(f"{method}{at}{seed}"), yaml.safe_dump(config), summary, {"mine": place})


def section(*runs: Run) -> Section:
    (only,) = make_sections(runs)
    return only


def lines(figure: Any) -> dict[str, list[float]]:
    """The y values of the lines in a figure by their label."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    return {label: list(handle[0].get_ydata()) for handle, label in zip(handles, labels, strict=True)}


TWO = section(
    *(run({}, accuracy, method, seed=seed) for method in ("ER", "FedQCL") for seed, accuracy in ((0, 0.6), (1, 0.7)))
)


def test_curves_are_means_over_seeds_after_each_task() -> None:
    drawn = figures.draw(TWO, "curves")
    assert list(drawn) == ["curves-Split-CIFAR-100-accuracy", "curves-Split-CIFAR-100-forgetting"]
    accuracy, forgetting = drawn.values()
    assert {name: y == pytest.approx([90, 65]) for name, y in lines(accuracy).items()} == {"ER": True, "FedQCL": True}
    # The first task fell from 0.9 to 0.4 and to 0.6.
    assert lines(forgetting)["ER"] == pytest.approx([nan, 0.4], nan_ok=True)
    assert accuracy.axes[0].get_ylabel() == "average accuracy (%)"
    assert forgetting.axes[0].get_xlabel() == "tasks learned"


def test_methods_are_points_of_accuracy_against_forgetting() -> None:
    (figure,) = figures.draw(TWO, "pareto").values()
    assert {name: y == pytest.approx([65]) for name, y in lines(figure).items()} == {"ER": True, "FedQCL": True}
    assert figure.axes[0].get_xlabel() == "forgetting (less is better)"


def test_choices_of_one_method_are_a_path_in_their_order() -> None:
    swept = section(*(run({"V": V}, accuracy) for V, accuracy in ((200, 0.5), (10, 0.4), (1000, 0.6))))
    (figure,) = figures.draw(swept, "pareto", "V").values()
    ax = figure.axes[0]
    assert list(ax.lines[0].get_ydata()) == pytest.approx([40, 50, 60])
    assert [text.get_text() for text in ax.texts] == ["Split-CIFAR-100, V beside each point", "10", "200", "1000"]


def test_a_sweep_is_a_line_a_method_over_evenly_spaced_choices() -> None:
    swept = section(
        *(run({"alpha": alpha}, accuracy, "ER") for alpha, accuracy in (("1e5", 0.7), (0.001, 0.5), (10, 0.6))),
        run({"alpha": 10}, 0.8),
    )
    drawn = figures.draw(swept, "sweep", "alpha")
    assert list(drawn) == [f"sweep-alpha-Split-CIFAR-100-{name}" for name in ("accuracy", "forgetting", "last-task")]
    figure = drawn["sweep-alpha-Split-CIFAR-100-accuracy"]
    assert lines(figure) == {
        "ER": pytest.approx([50, 60, 70]),
        "FedQCL": pytest.approx([nan, 80, nan], nan_ok=True),
    }
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0.001", "10", "1e5"]


def test_queues_share_their_colours_and_methods_without_are_left_out() -> None:
    swept = section(run({"V": 10}, 0.4), run({"V": 100}, 0.8), run({"V": 10}, 0.8, "ER"))
    drawn = figures.draw(swept, "queues", "V")
    assert list(drawn) == ["queues-V-Split-CIFAR-100-FedQCL,_V_10", "queues-V-Split-CIFAR-100-FedQCL,_V_100"]
    assert [[text.get_text() for text in figure.axes[0].texts] for figure in drawn.values()] == [
        ["4.00", "FedQCL, V 10, Split-CIFAR-100"],
        ["8.00", "FedQCL, V 100, Split-CIFAR-100"],
    ]
    assert [figure.axes[0].images[0].get_clim() for figure in drawn.values()] == [(0.0, 8.0), (0.0, 8.0)]


def test_each_data_set_has_figures_of_its_own_and_of_what_it_has() -> None:
    both = section(run({"V": 1}, 0.5), run({"delta": 1}, 0.5, source="CIFAR10"))
    assert {name.split("-")[3] for name in figures.draw(both, "curves")} == {"10", "100"}
    assert {name.split("-")[4] for name in figures.draw(both, "sweep", "V")} == {"100"}
    assert figures.draw(both, "sweep", "alpha") == {}


def test_more_methods_than_colours_are_told_apart() -> None:
    many = section(*(run({}, 0.5, f"M{number}") for number in range(12)))
    figure = next(iter(figures.draw(many, "curves").values()))
    handles, _ = figure.axes[0].get_legend_handles_labels()
    looks = {(handle[0].get_color(), handle[0].get_marker(), handle[0].get_linestyle()) for handle in handles}
    assert len(looks) == 12
