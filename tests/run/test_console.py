from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.progress import Progress

from fedqcl.run import Console
from fedqcl.run.console import _some

from .fake_run import accuracy_matrix, run_info, run_records, run_summary

TASKS, ROUNDS = 3, 2
FOLDER = Path("runs/digits-fedqcl-0")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(console: Console, **kwargs: int | bool) -> None:
    tasks = int(kwargs.get("tasks", TASKS))
    console.start(run_info(tasks, ROUNDS), FOLDER)
    records = []
    for record in run_records(rounds=ROUNDS, **{"tasks": tasks, **kwargs}):  # type: ignore[arg-type]
        records.append(record)
        console.round(record)
        if record.round == ROUNDS - 1:
            console.task(record, accuracy_matrix(records))
    queues = [r.queue for r in records if r.round == ROUNDS - 1]
    summary = run_summary(records, queue_matrix=queues if queues[0] else [])
    console.finish(summary, FOLDER, [FOLDER / "plots" / "accuracy.png", FOLDER / "plots" / "queues.png"])


def shown(level: str, file: io.StringIO | None = None, **kwargs: int | bool) -> str:
    file = file or io.StringIO()
    show(Console(level, file), **kwargs)  # type: ignore[arg-type]
    return file.getvalue()


def test_it_says_what_is_run_and_where() -> None:
    text = shown("normal")
    assert "FedQCL on digits: 5 clients, 3 tasks of 2 classes, 2 rounds a task, seed 0\n" in text
    assert "split    Dirichlet alpha 10: 2.0 of 2 classes a client" in text
    assert "devices  cpu, 2 processes" in text
    assert "files     runs/digits-fedqcl-0\n" in text
    assert "pictures  runs/digits-fedqcl-0/plots: accuracy.png queues.png\n" in text


def test_the_time_is_that_of_the_summary() -> None:
    assert [line for line in shown("normal").splitlines() if line.endswith(" %, in 5 min 06 s")]


def test_it_says_so_if_figures_are_not_of_test_images() -> None:
    file = io.StringIO()
    console = Console("normal", file)
    console.start(run_info(TASKS, ROUNDS, evaluated_on="validation"), FOLDER)
    assert "  tested on  validation images, held out from training\n" in file.getvalue()
    console.finish({"average_accuracy": 0.5, "forgetting": 0.25, "wall_seconds": 1.0}, FOLDER)
    assert "average accuracy 50.0 %, forgetting 25.0 %, on validation images, in " in file.getvalue()
    assert "validation" not in shown("verbose")


def test_without_a_terminal_there_is_one_line_a_round() -> None:
    text = shown("normal", participants=4)
    lines = [line for line in text.splitlines() if line.startswith("task ")]
    assert [line.split("  ")[:2] for line in lines] == [
        [f"task {task}/3", f"round {round_}/2"] for task in (1, 2, 3) for round_ in (1, 2)
    ]
    assert all("  4/5 clients  " in line for line in lines)
    assert "forgetting" not in lines[0]
    assert "forgetting" in lines[2]
    assert "queue" in lines[2]
    assert "\x1b" not in text
    assert "\r" not in text


def test_figures_are_percent_and_rounded() -> None:
    records = list(run_records(TASKS, ROUNDS))
    text = shown("normal")
    last = records[-1]
    assert f"average accuracy {100 * last.average_accuracy:.1f} %, forgetting {100 * last.forgetting:.1f} %" in text
    after_two = accuracy_matrix(records)[1]
    expected = f"  accuracy % {100 * after_two[0]:>6.1f} {100 * after_two[1]:>6.1f}\n"
    assert expected in text


def test_a_table_a_task_and_a_final_one() -> None:
    text = shown("normal")
    assert [line for line in text.splitlines() if line.startswith("after task")] == [
        line for line in text.splitlines() if line.startswith(("after task 1 of 3", "after task 2 of 3"))
    ]
    assert text.count("after task") == 2
    assert "learned %" in text
    assert "queue" in text
    assert "0, 1" in text


@pytest.mark.parametrize(
    ("classes", "shown_as"),
    [
        ("ab", "a, b"),
        ("abcdef", "a, b, ... f"),
        (["n01443537", "n01629819", "n01641577"], "n01443537 ... n01641577"),
        (["a long name of a class", "another"], "a long name of a class, another"),
    ],
)
def test_classes_are_named_in_a_few_words(classes: Sequence[str], shown_as: str) -> None:
    assert _some(classes) == shown_as


def test_a_method_without_queues_shows_none() -> None:
    assert "queue" not in shown("normal", queues=False).replace("queues.png", "")


def test_a_run_of_one_task_shows_nothing_that_compares_tasks() -> None:
    text = shown("normal", tasks=1)
    end = text[text.index("learned %") :].replace("queues.png", "")
    assert end.splitlines()[0].split() == ["learned", "%", "final", "%"]
    assert "\nlearning accuracy 95.0 %, last task accuracy " in end
    assert not [word for word in ("forg", "backward", "queue", " - ") if word in end]


def test_many_tasks_are_shown_ten_at_a_time() -> None:
    text = shown("normal", tasks=14)
    block = text.split("after task 13 of 14")[1].split("\n\n")[0].splitlines()
    assert block[1].split() == ["task", *map(str, range(1, 11))]
    assert block[4].split() == ["task", "11", "12", "13"]
    assert max(map(len, block)) <= 90


def test_quiet_shows_the_result_only() -> None:
    lines = shown("quiet").splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("average accuracy ")
    assert "forgetting" in lines[0]
    assert "runs/digits-fedqcl-0" in lines[1]


def test_quiet_says_nothing_else() -> None:
    file = io.StringIO()
    Console("quiet", file).say("W&B: logging offline")
    assert file.getvalue() == ""
    Console("normal", file).say("W&B: [logging] offline")
    assert file.getvalue() == "W&B: [logging] offline\n"


def test_verbose_has_a_line_a_client() -> None:
    lines = [line for line in shown("verbose", participants=2).splitlines() if line.startswith("  client ")]
    assert len(lines) == 2 * TASKS * ROUNDS
    assert " images  " in lines[-1]
    assert "queue " in lines[-1]
    assert "lyapunov " in lines[-1]


def test_on_a_terminal_a_bar_takes_the_place_of_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    text = shown("normal", Terminal())
    assert "task 3/3  round 2/2" in text
    assert "left" in text
    assert "loss" not in text
    assert text.index("\x1b[?25l") < text.rindex("\x1b[?25h")  # the cursor is back
    assert "average accuracy" in text[text.rindex("\x1b[?25h") :]


def test_a_run_that_fails_gives_the_terminal_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    console = Console("normal", terminal)
    console.start(run_info(TASKS, ROUNDS), FOLDER)
    console.round(next(iter(run_records(TASKS, ROUNDS))))
    console.fail()
    console.fail()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_a_stream_that_cannot_show_a_character_does_not_end_the_run() -> None:
    raw = io.BytesIO()
    console = Console("normal", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    console.start(run_info(TASKS, ROUNDS, split="α = 10"), FOLDER)
    assert b"split    ? = 10" in raw.getvalue()


def test_unequal_tasks_and_single_rounds_read_well() -> None:
    file = io.StringIO()
    info = run_info(rounds=1, tasks=2)
    info.tasks[1] = ["2", "3", "4"]
    Console("normal", file).start(info, FOLDER)
    assert "2 tasks of 2 to 3 classes, 1 round a task" in file.getvalue()


def test_a_summary_with_null_is_shown() -> None:
    file = io.StringIO()
    console = Console("normal", file)
    console.start(run_info(2, 1), FOLDER)
    matrix = [[0.5, None], [None, 0.5]]
    summary = {"average_accuracy": 0.5, "forgetting": None, "accuracy_matrix": matrix, "wall_seconds": 1.0}
    console.finish(summary, FOLDER)
    assert "average accuracy 50.0 %, forgetting - %, in " in file.getvalue()
    console.finish({"average_accuracy": math.nan, "wall_seconds": 1.0}, FOLDER)


def test_an_evaluation_has_a_table_or_is_one_line_when_quiet() -> None:
    figures = {"average_accuracy": 0.75, "accuracy": [0.5, 1.0, math.nan]}
    file = io.StringIO()
    Console("normal", file).evaluation(figures, "test")
    assert file.getvalue().splitlines() == [
        "test accuracy of the final model",
        "  task            1      2      3",
        "  accuracy %   50.0  100.0      -",
        "average accuracy 75.0 %",
    ]
    file = io.StringIO()
    Console("quiet", file).evaluation(figures, "validation")
    assert file.getvalue() == "average accuracy 75.0 %\n"


def test_it_says_from_where_a_run_goes_on() -> None:
    for done, place in ((3, "after task 2, round 1"), (4, "after task 2, round 2")):
        out = io.StringIO()
        Console("normal", out).start(run_info(TASKS, ROUNDS), FOLDER, rounds_done=done)
        assert f"  goes on  {place}\n" in out.getvalue()
    assert "goes on" not in shown("normal")


def test_the_bar_of_a_run_that_goes_on_starts_there(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 110.0])
    monkeypatch.setattr("fedqcl.run.console.time.monotonic", lambda: next(clock))
    console = Console("normal", Terminal())
    monkeypatch.setattr(console, "_start_bar", lambda rounds: None)
    console.start(run_info(TASKS, ROUNDS), FOLDER, rounds_done=4)
    console._bar = Progress()
    console._bar.add_task("", total=6, completed=4, news="")
    console._rounds_done = 5
    console._move_bar(list(run_records(3, ROUNDS))[4])
    bar = console._bar.tasks[0]
    assert (bar.completed, bar.description) == (5, "task 3/3  round 2/2")
    assert bar.fields["news"].endswith("  10 s left")  # ten seconds for the one round since, and one is left
