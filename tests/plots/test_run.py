from __future__ import annotations

import math

from fedqcl.plots import run as plots

nan = math.nan


def test_the_accuracy_matrix_shows_the_lower_triangle_in_percent() -> None:
    (ax, bar) = plots.accuracy_matrix_figure([[0.912, 0.5], [1.0, 0.8]], "my run").axes
    assert [text.get_text() for text in ax.texts] == ["91.2", "100", "80.0", "my run"]
    assert [text.get_position() for text in ax.texts][:3] == [(0, 0), (0, 1), (1, 1)]
    assert bar.get_ylabel() == "test accuracy (%)"
    assert ax.get_xlabel() == "tested on task $j$"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "2"]


def test_pictures_say_what_accuracy_was_measured_on() -> None:
    assert plots.accuracy_matrix_figure([[0.9]], images="validation").axes[1].get_ylabel() == "validation accuracy (%)"
    ax = plots.accuracy_figure([1], [[0.9]], [0.9], images="validation").axes[0]
    assert ax.get_ylabel() == "validation accuracy (%)"
    assert ax.get_title(loc="left") == "Validation accuracy over the communication rounds"


def test_an_unfinished_matrix_leaves_rows_empty() -> None:
    ax = plots.accuracy_matrix_figure([[0.9, nan, nan], [0.8, 0.7, nan]]).axes[0]
    assert [text.get_text() for text in ax.texts] == ["90.0", "80.0", "70.0"]
    assert ax.get_ylim() == (2.5, -0.5)
    nothing = plots.accuracy_matrix_figure([[nan, nan]]).axes[0]
    assert list(nothing.texts) == []


def test_the_queue_heatmap_is_task_by_past_task() -> None:
    queues = [[nan, nan, nan], [0.07, nan, nan], [3.14159, 27.18, nan]]
    ax = plots.queue_heatmap_figure(queues, num_tasks=3).axes[0]
    assert [(text.get_position(), text.get_text()) for text in ax.texts] == [
        ((0, 0), "0.07"),
        ((0, 1), "3.14"),
        ((1, 1), "27.2"),
    ]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["2", "3"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2"]


def test_idle_queues_are_drawn_as_zero() -> None:
    ax = plots.queue_heatmap_figure([[nan, nan], [0.0, nan]], num_tasks=2).axes[0]
    assert [text.get_text() for text in ax.texts] == ["0"]
    assert ax.images[0].get_clim() == (0.0, 1.0)


def test_curves_start_with_their_task_and_mark_the_tasks() -> None:
    tasks, accuracy, average = [1, 1, 2, 2], [[0.5, nan], [0.9, nan], [0.8, 0.4], [0.7, 0.9]], [0.5, 0.9, 0.6, 0.8]
    ax = plots.accuracy_figure(tasks, accuracy, average, "my run").axes[0]
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines) == ["task 1", "task 2", "average"]
    assert list(lines["task 2"].get_ydata())[2:] == [40.0, 90.0]
    assert all(math.isnan(value) for value in list(lines["task 2"].get_ydata())[:2])
    assert list(lines["average"].get_xdata()) == [1, 2, 3, 4]
    assert {"task 1", "task 2", "my run"} <= {text.get_text() for text in ax.texts}
    assert ax.get_ylim() == (38, 102)


def test_queue_curves_leave_out_the_task_that_never_is_past() -> None:
    tasks, queues = [1, 2, 2], [[nan, nan], [0.5, nan], [1.5, nan]]
    ax = plots.queues_figure(tasks, queues).axes[0]
    assert [line.get_label() for line in ax.get_lines()] == ["task 1"]
    assert ax.get_ylim()[0] == 0
