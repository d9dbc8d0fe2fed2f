from __future__ import annotations

import struct
from pathlib import Path

import pytest

from fedqcl.errors import InputError
from fedqcl.run import RunFolder
from fedqcl.run.pictures import plot_run

from .fake_run import run_records


def run_folder(path: Path, tasks: int = 3, rounds: int = 2, queues: bool = True) -> RunFolder:
    folder = RunFolder(path)
    for record in run_records(tasks, rounds, queues=queues):
        folder.write_round(record)
    return folder


def size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


@pytest.mark.parametrize("tasks", [2, 20])
def test_a_run_becomes_four_pictures(tmp_path: Path, tasks: int) -> None:
    run_folder(tmp_path, tasks)
    written = plot_run(tmp_path)
    assert written == [
        tmp_path / "plots" / f"{name}.png" for name in ("accuracy", "accuracy_matrix", "queue_heatmap", "queues")
    ]
    assert all(min(size(path)) >= 500 for path in written)


def test_they_are_of_the_images_that_the_run_is_tested_on(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    on_test = [path.read_bytes() for path in plot_run(tmp_path)]
    folder.write_made_with({"evaluated_on": "validation"})
    on_validation = [path.read_bytes() for path in plot_run(tmp_path)]
    assert [one == other for one, other in zip(on_test, on_validation, strict=True)] == [False, False, True, True]


def test_without_queues_their_pictures_are_left_out(tmp_path: Path) -> None:
    run_folder(tmp_path, queues=False)
    assert [path.name for path in plot_run(tmp_path)] == ["accuracy.png", "accuracy_matrix.png"]


def test_a_run_of_one_task_has_no_queues_to_show(tmp_path: Path) -> None:
    run_folder(tmp_path, tasks=1, rounds=1)
    assert [path.name for path in plot_run(tmp_path)] == ["accuracy.png", "accuracy_matrix.png"]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"metrics\.csv: no rounds to plot; give the folder of a run$"):
        plot_run(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_drawing_opens_no_window_and_leaves_no_figure(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    run_folder(tmp_path)
    before = plt.get_fignums()
    plot_run(tmp_path)
    assert plt.get_fignums() == before
