from __future__ import annotations

import csv
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fedqcl.errors import InputError
from fedqcl.run import ClientRecord, RoundRecord, RunFolder

from .fake_run import run_records

nan = math.nan

RECORD = RoundRecord(
    task=1,
    round=2,
    accuracy=[0.1 + 0.2, 0.5, nan],
    average_accuracy=0.4,
    forgetting=-0.05,
    loss=1 / 3,
    seconds=1.5,
    bytes_sent=1000,
    bytes_received=2000,
    clients=[
        ClientRecord(0, 26, 10, 0.25, {"queue": [1.0, nan, nan], "lyapunov": 0.5, "drift": 0.5}),
        ClientRecord(3, 13, 5, nan, {"queue": [2.0, nan, nan], "lyapunov": 2.0, "drift": -1.5}),
    ],
)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_round_as_it_is_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_round(RECORD)
    assert lines(folder.metrics) == [
        "task,round,accuracy_1,accuracy_2,accuracy_3,average_accuracy,forgetting,loss,"
        "queue_1,queue_2,queue_3,lyapunov,drift,seconds,bytes_sent,bytes_received",
        "2,3,0.30000000000000004,0.5,,0.4,-0.05,0.3333333333333333,1.5,,,1.25,-0.5,1.5,1000,2000",
    ]
    assert lines(folder.clients) == [
        "task,round,client,samples,steps,loss,queue_1,queue_2,queue_3,lyapunov,drift",
        "2,3,0,26,10,0.25,1.0,,,0.5,0.5",
        "2,3,3,13,5,,2.0,,,2.0,-1.5",
    ]


def test_a_method_without_diagnostics_has_no_columns_for_them(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for record in run_records(queues=False):
        folder.write_round(record)
    header = lines(folder.metrics)[0]
    assert header.endswith("forgetting,loss,seconds,bytes_sent,bytes_received")
    assert lines(folder.clients)[0] == "task,round,client,samples,steps,loss"


def test_every_round_and_client_is_read_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    records = list(run_records(tasks=3, rounds=2, clients=4, participants=2))
    for record in records:
        folder.write_round(record)
    metrics, clients = folder.read_metrics(), folder.read_clients()
    assert len(metrics) == 6
    assert len(clients) == 24
    for row, record in zip(metrics, records, strict=True):
        assert (row["task"], row["round"]) == (record.task + 1, record.round + 1)
        assert [row[f"accuracy_{j}"] for j in (1, 2, 3)] == pytest.approx(record.accuracy, rel=0, abs=0, nan_ok=True)
        assert [row[f"queue_{j}"] for j in (1, 2, 3)] == pytest.approx(record.queue, rel=0, abs=0, nan_ok=True)
        assert row["loss"] == record.loss
        assert row["bytes_sent"] == record.bytes_sent
    assert [row["client"] for row in clients] == [c.client for record in records for c in record.clients]
    assert isinstance(clients[0]["samples"], int)


def test_equal_runs_give_equal_files(tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        folder = RunFolder.create(tmp_path, name, "run")
        for record in run_records():
            reordered = record.clients[::-1] if name == "b" else record.clients
            folder.write_round(replace(record, clients=reordered))
        texts.append(folder.metrics.read_bytes())
    assert texts[0] == texts[1]


def test_a_diagnostic_that_comes_later_gets_its_columns(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_round(replace(RECORD, round=0, clients=[]))
    folder.write_round(RECORD)
    folder.write_round(replace(RECORD, clients=[]))
    first, second, third = folder.read_metrics()
    assert math.isnan(first["queue_1"])
    assert second["queue_1"] == 1.5
    assert math.isnan(third["queue_1"])
    assert {first["loss"], second["loss"], third["loss"]} == {1 / 3}
    assert len({len(row) for row in csv.reader(lines(folder.metrics))}) == 1
    assert len(folder.read_clients()) == 2


def test_a_folder_opened_again_goes_on_where_it_was(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_round(RECORD)
    RunFolder(tmp_path).write_round(RECORD)
    written = lines(RunFolder(tmp_path).metrics)
    assert len(written) == 3
    assert written[1] == written[2]


def test_infinity_is_written_and_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_round(replace(RECORD, loss=math.inf))
    assert folder.read_metrics()[0]["loss"] == math.inf


def test_nothing_written_reads_as_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_metrics() == folder.read_clients() == []
    assert folder.read_summary() == {}


def test_summary_is_json_that_any_reader_takes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    summary = {
        "forgetting": nan,
        "accuracy_matrix": [[1.0, nan], [0.5, 0.25]],
        "seconds": math.inf,
        "device": "CPU",
        "versions": {"torch": "2.14.1"},
        "empty": [],
    }
    folder.write_summary(summary)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    read = json.loads(folder.summary.read_text(), parse_constant=refuse)
    assert read == folder.read_summary()
    assert read == {
        **summary,
        "forgetting": None,
        "accuracy_matrix": [[1.0, None], [0.5, 0.25]],
        "seconds": None,
    }
    assert "    [0.5, 0.25]\n" in folder.summary.read_text()


def test_a_summary_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_summary({"seed": 1})
    with pytest.raises(TypeError):
        folder.write_summary({"seed": object()})
    assert folder.read_summary() == {"seed": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_create_takes_the_name(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path / "runs", "mine", "default").path == tmp_path / "runs" / "mine"
    assert RunFolder.create(tmp_path / "runs", None, "default").path == tmp_path / "runs" / "default"
    assert (tmp_path / "runs" / "default").is_dir()


def test_a_taken_name_is_refused_and_a_default_one_counted_up(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "mine", "default")
    with pytest.raises(InputError, match=r"^trainer\.name: .*mine already exists; choose another name"):
        RunFolder.create(tmp_path, "mine", "default")
    names = [RunFolder.create(tmp_path, None, "default").path.name for _ in range(3)]
    assert names == ["default", "default-2", "default-3"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp/x", "../x"])
def test_a_name_that_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"^trainer\.name: .* is no plain folder name"):
        RunFolder.create(tmp_path, name, "default")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("root", ["file", "file/below"])
def test_a_root_that_is_a_file_is_refused(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("mine", None):
        with pytest.raises(InputError, match=r"^trainer\.root: "):
            RunFolder.create(tmp_path / root, name, "default")


def test_runs_started_together_get_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        made = pool.map(lambda _: RunFolder.create(tmp_path, None, "run").path.name, range(16))
    assert set(made) == {"run", *(f"run-{number}" for number in range(2, 17))}


def test_a_folder_has_its_config_from_the_first_moment_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Path, target: Path) -> None:
        assert (self / "config.yaml").read_text() == "seed: 1\n"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stop)
        with pytest.raises(KeyboardInterrupt):
            RunFolder.create(tmp_path, "mine", "", "seed: 1\n")
    assert [path.name[:6] for path in tmp_path.iterdir()] == [".mine."]
    assert RunFolder.create(tmp_path, "mine", "", "seed: 1\n").config.read_text() == "seed: 1\n"


def test_tables_are_put_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.tables() == {}
    for record in run_records(tasks=3, rounds=2, clients=2):
        folder.write_round(record)
        if (record.task, record.round) == (1, 0):
            before = folder.tables()
    folder.clients.write_text("damaged")
    folder.put_back(before)
    assert folder.tables() == before
    assert len(folder.read_metrics()) == 3
    assert len(folder.read_clients()) == 6
    folder.put_back({})
    assert list(tmp_path.iterdir()) == []


def test_one_process_holds_a_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "mine", "")
    taken = pytest.raises(InputError, match=r"^ckpt_path: another process is at work on .*; wait until it ends$")
    with folder.held(), taken, folder.held():
        pass
    with folder.held():
        pass
    (tmp_path / "other").mkdir()
    missing = pytest.raises(InputError, match=r"^ckpt_path: .*config\.yaml cannot be written: No such file")
    with missing, RunFolder(tmp_path / "other").held():
        pass


def test_what_a_killed_run_left_as_it_made_its_folder_is_removed(tmp_path: Path) -> None:
    def hidden(name: str, file: str, age: float) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / file).touch()
        os.utime(folder, times=(time.time() - age, time.time() - age))
        return folder

    stale = hidden(".x.0123abcd", "config.yaml", age=3700)
    others = [
        hidden(".x.89abcdef", "config.yaml", age=3500),  # another process may be at it
        hidden(".mine.0123abcd", "notes", age=3700),
        hidden(".x.settings", "config.yaml", age=3700),
    ]
    run = RunFolder.create(tmp_path, None, "x")
    assert not stale.exists()
    assert sorted(tmp_path.iterdir()) == sorted([*others, run.path])
