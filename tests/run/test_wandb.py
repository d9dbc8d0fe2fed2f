from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedqcl.run import RunInfo, WandbLogger
from fedqcl.run import wandb as module

from .fake_run import accuracy_matrix, run_info, run_records, run_summary
from .wandb_reader import WandbFile, read

TASKS, ROUNDS = 3, 2
pytestmark = pytest.mark.usefixtures("no_account")


def log_run(logger: WandbLogger, folder: Path, info: RunInfo | None = None, queues: bool = True) -> list[str]:
    """Log a whole made-up run; returns what was said."""
    said: list[str] = []
    logger.start(info or run_info(TASKS, ROUNDS), folder, say=said.append)
    records = []
    for record in run_records(TASKS, ROUNDS, queues=queues):
        records.append(record)
        logger.round(record)
        if record.round == ROUNDS - 1:
            logger.task(record, accuracy_matrix(records), [r.queue for r in records[ROUNDS - 1 :: ROUNDS]])
    logger.finish(run_summary(records))
    return said


def logged(folder: Path) -> WandbFile:
    import wandb

    wandb.teardown()  # `finish` may return a moment before the file is complete; this waits for W&B's process
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    return read(path)


def test_an_offline_run_read_back(tmp_path: Path) -> None:
    said = log_run(WandbLogger(tags=["mine"], mode="offline"), tmp_path)
    (line,) = said
    (place,) = tmp_path.glob("wandb/offline-run-*")
    assert line == f"W&B: logging offline (as asked); `wandb sync {place}` uploads it"

    content = logged(tmp_path)
    assert content.run.pop("run_id")
    assert content.run == {
        "project": "fedqcl",
        "display_name": "digits-fedqcl-0",
        "run_group": "digits-task-N5-T3",
        "job_type": "fit",
        "tags": ["digits", "FedQCL", "mine"],
    }
    assert content.exit_code == 0

    config = content.config
    assert config["model"] == {
        "method": {"class_path": "fedqcl.methods.FedQCL", "init_args": {"V": 20.0, "delta": 1.0}}
    }
    assert config["data"]["alpha"] == 10.0
    assert config["data"]["source"] == {"init_args": {}}  # the key in it stays at home
    assert config["versions"]["torch"] == "2.14.1"
    assert "hush" not in str(config)

    for name in ("cl/*", "acc/*", "queue/*", "comm/*", "loss", "lyapunov", "drift"):
        assert content.axes[name] == "round"
    assert content.axes["task/*"] == "task"

    rounds = [row for row in content.history if "loss" in row]
    for number, (row, record) in enumerate(zip(rounds, run_records(TASKS, ROUNDS), strict=True), start=1):
        assert row["round"] == number
        assert row["task"] == record.task + 1
        assert row["cl/average_accuracy"] == pytest.approx(record.average_accuracy)
        assert row["comm/bytes_sent"] == record.bytes_sent
        assert ("cl/forgetting" in row) == (record.task > 0)
        seen = [f"acc/task_{j:02d}" for j in range(1, record.task + 2)]
        past = [f"queue/task_{j:02d}" for j in range(1, record.task + 1)]
        assert sorted(key for key in row if key.startswith(("acc/", "queue/"))) == sorted(seen + past)
        for key in past:
            assert row[key] == pytest.approx(record.queue[int(key[-2:]) - 1])
        assert row["lyapunov"] == pytest.approx(record.state["lyapunov"])

    tasks = [row for row in content.history if "task/average_accuracy" in row]
    assert [row["task"] for row in tasks] == [1, 2, 3]
    files = place / "files"
    for picture in ("accuracy_matrix", "queue_heatmap"):
        image = Path(tasks[-1][f"task/{picture}/path"])
        assert (files / image).read_bytes().startswith(b"\x89PNG")
    table = json.loads((files / tasks[-1]["task/accuracy_table/path"]).read_text())
    assert table["columns"] == ["after task", "task 1", "task 2", "task 3"]
    last = list(run_records(TASKS, ROUNDS))[-1]
    assert table["data"][-1] == [3, *(pytest.approx(value) for value in last.accuracy)]
    queues = json.loads((files / tasks[-1]["task/queue_table/path"]).read_text())
    assert queues["data"][-1] == [3, pytest.approx(last.queue[0]), pytest.approx(last.queue[1]), None]

    assert content.summary["average_accuracy"] == pytest.approx(last.average_accuracy)
    assert content.summary["forgetting"] == pytest.approx(last.forgetting)


def test_several_runs_of_one_process_stay_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        log_run(WandbLogger(mode="offline"), tmp_path / name, run_info(TASKS, ROUNDS, name=name), queues=False)
    a, b = logged(tmp_path / "a"), logged(tmp_path / "b")
    assert (a.run["display_name"], b.run["display_name"]) == ("a", "b")
    assert a.run["run_id"] != b.run["run_id"]
    assert a.run["run_group"] == b.run["run_group"]
    assert len(a.history) == len(b.history) == TASKS * ROUNDS + TASKS
    assert not [key for row in a.history for key in row if "queue" in key]


def test_a_run_that_fails_and_is_continued(tmp_path: Path) -> None:
    logger = WandbLogger(mode="offline", project="other", group="mine")
    logger.start(run_info(), tmp_path, run_id="abc123", say=lambda _: None)
    assert logger.run_id == "abc123"
    logger.fail()
    assert logger.run_id is None
    content = logged(tmp_path)
    assert (content.exit_code, content.preempted) == (1, False)
    assert (content.run["run_id"], content.run["project"], content.run["run_group"]) == ("abc123", "other", "mine")


def test_without_a_key_it_logs_offline_and_says_so(tmp_path: Path) -> None:
    (line,) = log_run(WandbLogger(), tmp_path)
    assert line.startswith("W&B: logging offline (no API key); `wandb sync ")
    assert len(logged(tmp_path).history) == TASKS * ROUNDS + TASKS


def test_when_the_server_fails_it_logs_offline_under_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    init, modes = wandb.init, []

    def fail_online(**kwargs: Any) -> Any:
        modes.append(kwargs["mode"])
        assert not sys.stdin.isatty()
        if kwargs["mode"] == "online":
            raise wandb.errors.CommError("Run initialization has timed out after 30.0 sec.\nmore")
        return init(**kwargs)

    monkeypatch.setattr(wandb, "init", fail_online)
    monkeypatch.setattr(module, "obstacle", lambda: None)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    said: list[str] = []
    logger = WandbLogger(mode="online")
    logger.start(run_info(), tmp_path, run_id="abc123", say=said.append)
    logger.finish({})
    assert modes == ["online", "offline"]
    assert len(said) == 1
    assert "offline (Run initialization has timed out after 30.0 sec); " in said[0]
    assert logged(tmp_path).run["run_id"] == "abc123"
    assert sys.stdin.isatty()


def test_if_not_even_offline_works_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    def fail(**kwargs: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(wandb, "init", fail)
    assert log_run(WandbLogger(), tmp_path) == ["W&B: off (no space left on device)"]


@pytest.mark.parametrize("broken", ["log", "finish"])
def test_w_and_b_breaking_later_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    import wandb

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the service is gone")

    run = SimpleNamespace(
        id="abc", dir="runs/x/wandb/run-1/files", define_metric=lambda *args, **kwargs: None,
        log=lambda data: None, finish=lambda exit_code: None, summary={},
    )  # fmt: skip
    setattr(run, broken, fail)
    monkeypatch.setattr(wandb, "init", lambda **kwargs: run)
    offline, stopped = log_run(WandbLogger(mode="offline"), tmp_path)
    assert "offline" in offline
    assert stopped == "W&B: stopped (the service is gone); `wandb sync runs/x/wandb/run-1` uploads what there is"


def test_without_wandb_it_says_so_and_disabled_it_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert log_run(WandbLogger(), tmp_path) == ["W&B: off (wandb is not installed)"]
    assert log_run(WandbLogger(mode="disabled"), tmp_path) == []
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert log_run(WandbLogger(), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_environment_wins_over_auto_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    (line,) = log_run(WandbLogger(), tmp_path)
    assert "(as asked)" in line
    assert log_run(WandbLogger(mode="disabled"), tmp_path) == []
