from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import yaml

from fedqcl.report.runs import Run
from fedqcl.report.sections import Cell, Section
from fedqcl.report.tables import Figure, Table, complexity_table, long_table, results_table

nan = math.nan


def cell(accuracies: list[float], method: str = "ER", alpha: float = 10.0, path: Path = Path("x"), **more: Any) -> Cell:
    config = {
        "trainer": {"rounds": 10, "epochs": 5},
        "data": {
            "tasks": 5,
            "alpha": alpha,
            "num_clients": 5,
            "batch_size": 13,
            "scenario": "task",
            "source": {"class_path": "x.CIFAR100"},
        },
        "model": {"method": {"class_path": f"x.{method}"}},
    }
    summaries = [
        {"average_accuracy": a, "forgetting": 1 - a, "last_task_accuracy": a / 2, "train_seconds": 10.0}
        | {"wall_seconds": 12.0, "learning_accuracy": a, "device": "1 x NVIDIA H200", **more}
        for a in accuracies
    ]
    runs = [Run(path, yaml.safe_dump(config), summary, {"e5": {}}) for summary in summaries]
    return Cell({"config": "cifar100", "method": method, "alpha": alpha}, runs)


def section(*cells: Cell) -> Section:
    return Section("e5", "Alpha", "Figure 2", [], list(cells))


def test_a_number_with_its_deviation() -> None:
    assert Figure(54.521, 0.839, 2).text() == "54.52 ± 0.84"
    assert Figure(0.05, digits=3).text() == "0.050"
    assert Figure(nan, 1.0).text() == ""


def test_our_figures_beside_the_paper_s() -> None:
    table = results_table(section(cell([0.5, 0.52]), cell([0.6], "FedAvg"), cell([0.4], "Mine")))
    assert table.markdown() == (
        "|  | Acc % | paper | Forget | paper | Last task % | Learned % |\n"
        "| --- | --: | --: | --: | --: | --: | --: |\n"
        "| ER | 51.00 ± 1.41 | 37.74 ± 0.01 | 0.490 ± 0.014 | 0.240 ± 0.007 | 25.50 ± 0.71 | 51.00 ± 1.41 |\n"
        "| FedAvg | **60.00** | 29.10 ± 0.29 | **0.400** | 0.120 ± 0.001 | **30.00** | **60.00** |\n"
        "| Mine | 40.00 |  | 0.600 |  | 20.00 | 40.00 |\n"
    )


def test_an_axis_across_and_no_column_of_the_paper_where_it_prints_nothing() -> None:
    table = results_table(section(cell([0.5], alpha=0.1), cell([0.6], alpha=10.0), cell([0.7], "BI", 0.1)), "alpha")
    assert [group for group, _ in table.columns] == ["", *["alpha 0.1"] * 4, *["alpha 10"] * 6]
    assert [row[0] for row in table.rows] == ["ER", "BI"]
    assert [entry.text() for entry in table.rows[1][1:] if isinstance(entry, Figure)] == [
        *("70.00", "0.300", "35.00", "70.00"), "", "", "", "", "", "",
    ]  # fmt: skip


def test_choices_are_side_by_side_in_their_order_even_where_the_first_method_has_not_all() -> None:
    cells = [cell([0.6], "FedAvg", 10.0), cell([0.5], "ER", 0.1), cell([0.7], "ER", 1e5)]
    table = results_table(section(*cells), "alpha")
    assert list(dict.fromkeys(group for group, _ in table.columns)) == ["", "alpha 0.1", "alpha 10", "alpha 100000"]
    assert [row[0] for row in table.rows] == ["FedAvg", "ER"]


def test_an_axis_across_of_which_there_is_one_choice_so_far() -> None:
    table = results_table(section(cell([0.5]), cell([0.6], "FedAvg")), "alpha")
    assert {group for group, _ in table.columns} == {"", "alpha 10"}
    assert [(row[0], row[1].text()) for row in table.rows if isinstance(row[1], Figure)] == [
        ("ER", "50.00"),
        ("FedAvg", "60.00"),
    ]


def test_the_same_table_as_latex() -> None:
    table = Table(
        [("", ""), ("A & B", "Acc %"), ("A & B", "paper")], [["x_1", Figure(5.0, 0.5, 1, best=True), Figure(nan)]]
    )
    assert table.latex() == "\n".join(
        [
            r"\begin{tabular}{lcc}",
            r"\toprule",
            r" & \multicolumn{2}{c}{A \& B} \\",
            r" & Acc \% & paper \\",
            r"\midrule",
            r"x\_1 & \textbf{5.0 $\pm$ 0.5} &  \\",
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def test_signs_that_mean_something_to_latex_are_shown() -> None:
    text = Table([("", "~")], [["[2, 3]"], ["* x"], [r"a\b^2 ~ {$x²|<y>}"]]).latex()
    assert text.splitlines()[2:7] == [
        r"\textasciitilde{} \\",
        r"\midrule",
        r"{[}2, 3] \\",
        r"{*} x \\",
        r"a\textbackslash{}b\textasciicircum{}2 \textasciitilde{} \{\$x$^2$\textbar{}\textless{}y\textgreater{}\} \\",
    ]


def test_a_line_in_a_cell_ends_no_cell_of_markdown() -> None:
    assert Table([("a|b", "c")], [["x|y"]]).markdown() == "| a\\|b c |\n| --- |\n| x\\|y |\n"


def test_the_same_table_as_html() -> None:
    table = Table([("", ""), ("G", "<i>")], [["<b>", Figure(5.0, best=True)]])
    text = table.html()
    assert '<tr><th colspan="1"></th><th colspan="1">G</th></tr><tr><th></th><th class=n>&lt;i&gt;</th></tr>' in text
    assert "<tr><td>&lt;b&gt;</td><td class=n><b>5.0</b></td></tr>" in text


def test_every_figure_as_csv() -> None:
    rows = list(csv.DictReader(io.StringIO(long_table(section(cell([0.5, 0.7]), cell([0.4], "Mine"))))))
    assert (rows[0]["dataset"], rows[0]["method"], rows[0]["alpha"], rows[0]["seeds"]) == (
        "Split-CIFAR-100",
        "ER",
        "10.0",
        "2",
    )
    assert (rows[0]["average_accuracy_mean"], rows[0]["average_accuracy_std"]) == ("0.6", "0.141421")
    assert (rows[0]["paper_average_accuracy"], rows[0]["paper_forgetting"]) == ("0.3774", "0.24")
    assert (rows[0]["wall_seconds_mean"], rows[0]["device"]) == ("12", "1 x NVIDIA H200")
    assert (
        rows[1]["average_accuracy_std"] == rows[1]["paper_average_accuracy"] == rows[1]["backward_transfer_mean"] == ""
    )


def test_formulas_beside_what_was_measured() -> None:
    costs = {
        "bytes_sent_per_round": 1_500_000,
        "client_storage_bytes": 250_000,
        "gradient_images_per_step": [13, 26],
    }
    table = complexity_table(section(cell([0.5, 0.6], "ER", client_steps=1000, costs=costs), cell([0.5], "Mine")))
    texts = [[entry if isinstance(entry, str) else entry.text() for entry in row] for row in table.rows]
    assert [name for _, name in table.columns] == [
        *("", "storage", "computation", "traffic", "boundary"),
        *("s in all", "training s", "ms a step", "images a step, at last", "MB sent a round", "MB stored", "on"),
    ]
    assert texts == [
        ["ER", "M", "(B + B_m) d", "d", "0", "12", "10.0", "10.00", "26", "1.50", "0.25", "1 x NVIDIA H200"],
        ["Mine", "", "", "", "", "12", "10.0", "", "", "", "", "1 x NVIDIA H200"],
    ]


def test_what_is_printed_alike_is_as_good() -> None:
    table = results_table(section(cell([0.50001]), cell([0.50002], "DER"), cell([0.4], "LwF")), None)
    (accuracy,) = [column for column, (_, name) in enumerate(table.columns) if name == "Acc %"]
    best = {row[0]: row[accuracy].best for row in table.rows if isinstance(row[accuracy], Figure)}
    assert sorted(best.values()) == [False, True, True]
