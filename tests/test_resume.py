"""A run that is gone on with ends as one that never stopped."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from fedqcl.data import FederatedData
from fedqcl.data.sources.base import Source
from fedqcl.errors import InputError, Interrupted
from fedqcl.methods import FedAvg, FedQCL, Method
from fedqcl.resume import find_run
from fedqcl.run import pictures
from fedqcl.run.folder import RunFolder
from fedqcl.run.records import RoundRecord
from fedqcl.run.wandb import WandbLogger
from tests.helpers.methods import method_classes, small_method
from tests.helpers.process import run_python
from tests.helpers.small import small_trainer
from tests.helpers.stopped import Tripwire, fit, outcome, small_data, small_learner, stopped
from tests.run.wandb_reader import read


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "plot_run", lambda path: [])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run that was never stopped leaves."""
    root = tmp_path_factory.mktemp("whole")
    fit(small_trainer(root, name="x"))
    return outcome(root / "x")


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.mark.parametrize("place", [(0, 0), (0, 2), (1, 1), (2, 2)])
def test_a_stop_at_any_place(place: tuple[int, int], whole: dict[str, Any], tmp_path: Path) -> None:
    stop = stopped(small_trainer(tmp_path, name="x"), *place)
    assert (stop.signal, stop.status) == (signal.SIGTERM, 128 + signal.SIGTERM)
    assert checkpoints(tmp_path / "x")[-1] == f"task-{place[0] + 1:02d}-round-{place[1] + 1:02d}"
    fit(small_trainer(tmp_path), ckpt_path=str(tmp_path / "x"))
    assert outcome(tmp_path / "x") == whole
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_stop_after_every_round(whole: dict[str, Any], tmp_path: Path) -> None:
    stopped(small_trainer(tmp_path, name="x"), 0, 0)
    for place in range(1, 9):
        stopped(small_trainer(tmp_path), *divmod(place, 3), ckpt_path=str(tmp_path / "x"))
    fit(small_trainer(tmp_path), ckpt_path=str(tmp_path / "x"))
    assert outcome(tmp_path / "x") == whole


@pytest.mark.parametrize("method", method_classes(), ids=lambda cls: cls.__name__)
def test_every_method(method: type[Method], tmp_path: Path) -> None:
    scenario: Any = "task" if method.__name__ == "FOT" else "class"  # where a method keeps the most

    def parts() -> dict[str, Any]:
        return {"learner": small_learner(small_method(method)), "data": small_data(scenario=scenario)}

    fit(small_trainer(tmp_path, name="whole", rounds=2), **parts())
    stopped(small_trainer(tmp_path, name="x", rounds=2), 1, 0, **parts())
    fit(small_trainer(tmp_path, rounds=2), ckpt_path=str(tmp_path / "x"), **parts())
    assert outcome(tmp_path / "x") == outcome(tmp_path / "whole")


def test_another_number_of_ranks(whole: dict[str, Any], tmp_path: Path) -> None:
    result = run_python("-m", "tests.helpers.stopped", str(tmp_path), "2", "3", "1", "2")
    assert result.returncode == 0, result.stderr
    assert outcome(tmp_path / "whole") == whole
    assert outcome(tmp_path / "stopped") == whole


FULL_DISK = """
import os, sys
from pathlib import Path
from fedqcl.checkpoint import directory
from fedqcl.run import pictures
from tests.helpers.small import small_trainer
from tests.helpers.stopped import fit

def save(content, path, saved=directory.save):
    if os.environ.get("LOCAL_RANK") == "1" and path.parent.name.startswith(".task-02"):
        raise OSError(28, "No space left on device")
    saved(content, path)

directory.save, pictures.plot_run = save, lambda path: []
fit(small_trainer(Path(sys.argv[1]), name="x", devices=2, console="normal"))
"""


def test_a_full_disk_of_one_rank_costs_checkpoints_and_not_the_run(whole: dict[str, Any], tmp_path: Path) -> None:
    result = run_python("-c", FULL_DISK, str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert (
        result.stdout.count(": No space left on device; make room for the next one; task-01-round-03 still stands") == 3
    )
    assert outcome(tmp_path / "x") == whole


ENDED_AT_ONCE = """
import os, signal, sys, time
from pathlib import Path
from tests.helpers.small import small_trainer
from tests.helpers.stopped import Tripwire, fit

def ask_and_stay(record):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)

for name, round in (("none", 0), ("some", 2)):
    if not os.fork():
        fit(small_trainer(Path(sys.argv[1]), name=name, grace=0.1, logger=Tripwire(0, round, ask_and_stay)))
    os.wait()
"""


def test_what_is_said_of_checkpoints_when_the_run_ends_at_once(tmp_path: Path) -> None:
    none, some = run_python("-c", ENDED_AT_ONCE, str(tmp_path)).stderr.splitlines()
    said = "fedqcl: ended by SIGTERM, could not stop within 0.1 s: "
    assert none == f"{said}there is no checkpoint to go on from"
    assert some == f"{said}the last checkpoint stands, and ckpt_path='{tmp_path / 'some'}' goes on from it"
    assert not (tmp_path / "none" / "checkpoints").exists()
    assert checkpoints(tmp_path / "some")[-1] == "task-01-round-02"


def test_partial_participation(tmp_path: Path) -> None:
    fit(small_trainer(tmp_path, name="whole", participation=0.4))
    stopped(small_trainer(tmp_path, name="x", participation=0.4), 1, 0)
    fit(small_trainer(tmp_path, participation=0.4), ckpt_path=str(tmp_path / "x"))
    assert outcome(tmp_path / "x") == outcome(tmp_path / "whole")


def test_times_go_on(tmp_path: Path) -> None:
    stopped(small_trainer(tmp_path, name="x"), 2, 1)
    before = sum(row["seconds"] for row in RunFolder(tmp_path / "x").read_metrics())
    summary = fit(small_trainer(tmp_path), ckpt_path=str(tmp_path / "x"))
    assert before < summary["train_seconds"] < summary["wall_seconds"]
    assert summary["train_seconds"] == pytest.approx(
        sum(row["seconds"] for row in RunFolder(tmp_path / "x").read_metrics())
    )


def test_checkpoints_now_and_then(whole: dict[str, Any], tmp_path: Path) -> None:
    """Killed without a warning, a run goes on from an earlier round, and its tables from there."""

    def die(record: object) -> None:
        raise RuntimeError("no warning")

    trainer = small_trainer(tmp_path, name="x", checkpoint_every=2, logger=Tripwire(1, 1, die))
    with pytest.raises(RuntimeError, match="no warning"):
        fit(trainer)
    assert checkpoints(tmp_path / "x") == ["task-01-round-02", "task-01-round-03"]
    assert len(RunFolder(tmp_path / "x").read_metrics()) == 5
    fit(small_trainer(tmp_path), ckpt_path=str(tmp_path / "x"))
    assert outcome(tmp_path / "x") == whole


def test_from_an_older_checkpoint(whole: dict[str, Any], tmp_path: Path) -> None:
    stopped(small_trainer(tmp_path, name="x"), 1, 1)
    older = tmp_path / "x" / "checkpoints" / "task-02-round-01"
    stopped(small_trainer(tmp_path), 1, 1, ckpt_path=str(older))
    assert checkpoints(tmp_path / "x") == ["task-02-round-01", "task-02-round-02"]
    fit(small_trainer(tmp_path), ckpt_path=str(older))
    assert outcome(tmp_path / "x") == whole


def test_before_the_first_checkpoint(whole: dict[str, Any], tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "x", "")
    (tmp_path / "x" / "metrics.csv").write_text("task,round,accu")
    fit(small_trainer(tmp_path), ckpt_path=str(tmp_path / "x"))
    assert outcome(tmp_path / "x") == whole


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def turn_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, turn_a_bit, Path.unlink])
@pytest.mark.parametrize("file", ["server.pt", "run.pt", "clients-0.pt", "manifest.json"])
def test_a_damaged_checkpoint_is_passed_over(
    file: str, damage: Any, whole: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(small_trainer(tmp_path, name="x"), 1, 1)
    damage(tmp_path / "x" / "checkpoints" / "task-02-round-02" / file)
    fit(small_trainer(tmp_path, console="normal"), ckpt_path=str(tmp_path / "x"))
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("checkpoint task-02-round-02 is damaged (")
    assert file in first or file == "manifest.json"  # in which any other file may be meant
    assert second == "task-02-round-01 is used instead"
    assert outcome(tmp_path / "x") == whole


def test_only_damaged_checkpoints_leave_all_as_it_is(tmp_path: Path) -> None:
    stopped(small_trainer(tmp_path, name="x"), 1, 1)
    for file in (tmp_path / "x" / "checkpoints").glob("*/server.pt"):
        cut(file)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"^ckpt_path: checkpoint task-02-round-02 is damaged \(server.pt has changed"):
        fit(small_trainer(tmp_path), ckpt_path=str(tmp_path / "x"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_checkpoint_is_plain_tensors_and_numbers_with_a_file_a_rank(tmp_path: Path) -> None:
    stopped(small_trainer(tmp_path, name="x"), 1, 1)
    newest = tmp_path / "x" / "checkpoints" / "task-02-round-02"
    names = ["clients-0.pt", "manifest.json", "run.pt", "server.pt"]
    assert sorted(path.name for path in newest.iterdir()) == names
    for path in newest.glob("*.pt"):
        torch.load(path, weights_only=True)
    assert torch.load(newest / "run.pt")["position"] == [1, 2]


@pytest.mark.parametrize("damage", [cut, Path.unlink, Path.touch])
@pytest.mark.parametrize("table", ["metrics.csv", "clients.csv"])
def test_damaged_tables_are_put_back(table: str, damage: Any, whole: dict[str, Any], tmp_path: Path) -> None:
    stopped(small_trainer(tmp_path, name="x"), 1, 1)
    damage(tmp_path / "x" / table)
    fit(small_trainer(tmp_path), ckpt_path=str(tmp_path / "x"))
    assert outcome(tmp_path / "x") == whole


@pytest.mark.parametrize("ckpt_path", ["x", "last", "auto"])
def test_a_finished_run_is_left_alone(ckpt_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = fit(small_trainer(tmp_path, name="x"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    path = str(tmp_path / "x") if ckpt_path == "x" else ckpt_path
    again = fit(small_trainer(tmp_path, name="x", console="normal"), ckpt_path=path)
    assert capsys.readouterr().out == f"{tmp_path / 'x'} has finished: nothing to go on with\n"
    assert again["average_accuracy"] == summary["average_accuracy"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


class TripwireOfWandb(WandbLogger):
    """Logs to W&B offline, and stops the run on the way."""

    def round(self, record: RoundRecord) -> None:
        super().round(record)
        Tripwire(1, 1).round(record)


def test_the_wandb_run_goes_on_under_its_id(tmp_path: Path) -> None:
    import wandb

    with pytest.raises(Interrupted):
        fit(small_trainer(tmp_path, name="x", logger=TripwireOfWandb(mode="offline")))
    fit(small_trainer(tmp_path, logger=WandbLogger(mode="offline")), ckpt_path=str(tmp_path / "x"))
    wandb.teardown()  # waits until the files are complete
    paths = sorted(tmp_path.glob("x/wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    first, second = map(read, paths)
    assert first.run["run_id"] == second.run["run_id"]
    assert (first.exit_code, second.exit_code) == (1, 0)
    assert (first.preempted, second.preempted) == (True, False)
    rounds = [[row["round"] for row in part.history if "loss" in row] for part in (first, second)]
    assert rounds == [[1, 2, 3, 4, 5], [6, 7, 8, 9]]
    # The queues of the tasks before the stop are in the last table too; after the first task there are none.
    table = paths[1].parent / "files" / second.history[-1]["task/queue_table/path"]
    assert [row[0] for row in json.loads(table.read_text())["data"]] == [2, 3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 4}, r"trainer\.rounds 3, now 4"),
        ({"epochs": 2}, r"trainer\.epochs 1, now 2"),
        ({"participation": 0.5}, r"trainer\.participation 1\.0, now 0\.5"),
        ({"data": small_data(tasks=2)}, r"data\.tasks 3, now 2"),
        ({"data": small_data(seed=4)}, r"data\.seed 1, now 4"),
        ({"data": small_data(alpha=0.5)}, r"data\.alpha \S+, now 0\.5"),
        ({"learner": small_learner(FedQCL(V=7.0))}, r"model\.method\.V \S+, now 7\.0.*"),
        ({"learner": small_learner(FedAvg())}, r"model\.method fedqcl\.\S+FedQCL, now fedqcl\.\S+FedAvg.*"),
    ],
)
def test_another_configuration_is_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    stopped(small_trainer(tmp_path, name="x"), 0, 0)
    parts = {name: options[name] for name in options if name in ("data", "learner")}
    trainer = small_trainer(tmp_path, **{name: options[name] for name in options if name not in parts})
    with pytest.raises(InputError, match=rf"^ckpt_path: .*x has another configuration: {words};"):
        fit(trainer, ckpt_path=str(tmp_path / "x"), **parts)


def test_a_run_of_the_command_line_is_refused_to_a_script(tmp_path: Path) -> None:
    """Its options would all seem to have been left out."""
    run = run_folder(tmp_path, "x", "data: {alpha: 1}", 1)
    with pytest.raises(InputError, match=r"^ckpt_path: .*x was made by the command line; go on with it there$"):
        fit(small_trainer(tmp_path), ckpt_path=str(run.path))


def test_what_becomes_of_failures_may_be_changed(whole: dict[str, Any], tmp_path: Path) -> None:
    """As the line on a run that has diverged advises."""
    stopped(small_trainer(tmp_path, name="x"), 1, 0)
    trainer = small_trainer(tmp_path, on_nonfinite="drop", on_client_error="skip")
    fit(trainer, ckpt_path=str(tmp_path / "x"))
    assert outcome(tmp_path / "x")["model"] == whole["model"]


def test_a_finished_run_of_another_configuration_is_not_returned_for_this_one(tmp_path: Path) -> None:
    fit(small_trainer(tmp_path, name="x"))
    summary = fit(small_trainer(tmp_path, name="x"), ckpt_path="auto")
    assert summary["seed"] == 1
    for other in ({"learner": small_learner(FedAvg())}, {"data": small_data(tasks=2)}):
        with pytest.raises(InputError, match=r"^ckpt_path: .*x has another configuration: "):
            fit(small_trainer(tmp_path, name="x"), ckpt_path="auto", **other)
    RunFolder(tmp_path / "x").made_with.write_text("{")  # then nothing tells
    assert fit(small_trainer(tmp_path, name="x"), ckpt_path="auto", learner=small_learner(FedAvg())) == summary


def edited_data(part: str, array: str) -> FederatedData:
    """The small data after someone has edited one of their numbers."""
    data = small_data()
    images = data.source.load()
    numbers = getattr(getattr(images, part), array)
    numbers.flat[0] = 1 - numbers.flat[0] % 2
    data.source.load = lambda: images  # type: ignore[method-assign]
    return data


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("array", ["x", "y"])
def test_other_images_are_refused(array: str, part: str, finished: bool, tmp_path: Path) -> None:
    fit(small_trainer(tmp_path, name="x")) if finished else stopped(small_trainer(tmp_path, name="x"), 0, 0)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    line = (
        f"ckpt_path: the images or labels are not those that {tmp_path / 'x'} was started with; "
        "put them back, or start a new run without ckpt_path"
    )
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
        fit(small_trainer(tmp_path, name="x"), ckpt_path="auto", data=edited_data(part, array))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_older_than_the_digest_is_gone_on_with_and_gets_one(whole: dict[str, Any], tmp_path: Path) -> None:
    stopped(small_trainer(tmp_path, name="x"), 1, 0)
    run = RunFolder(tmp_path / "x")
    made_with = run.read_made_with()
    run.write_made_with({part: made_with[part] for part in made_with if part != "images"})
    fit(small_trainer(tmp_path), ckpt_path=str(run.path))
    assert outcome(run.path) == whole
    assert run.read_made_with() == made_with


def test_another_configuration_is_refused_before_images_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder(tmp_path, "x", "data: {alpha: 1}", 1)
    monkeypatch.setattr(Source, "prepare", lambda self: pytest.fail("images are fetched"))
    trainer = small_trainer(tmp_path)
    trainer.config = {"data": {"alpha": 2}}
    with pytest.raises(InputError, match=r"^ckpt_path: .*x has another configuration: data\.alpha 1, now 2;"):
        fit(trainer, ckpt_path=str(tmp_path / "x"))


def run_folder(root: Path, name: str, config: str, seconds: int, finished: bool = False) -> RunFolder:
    run = RunFolder.create(root, name, "", config)
    os.utime(run.config, (seconds, seconds))
    if finished:
        run.write_summary({"seed": 0})
    return run


def test_the_newest_unfinished_run_of_the_configuration_is_found(tmp_path: Path) -> None:
    mine, other = {"data": {"alpha": 1}}, "data: {alpha: 2}"
    with pytest.raises(InputError, match=r"^ckpt_path: no run in .* has this configuration"):
        find_run("last", str(tmp_path / "none"), None, mine)
    assert find_run("auto", str(tmp_path), None, mine) is None
    run_folder(tmp_path, "other", other, 9)
    assert find_run("auto", str(tmp_path), None, mine) is None
    for name, seconds, finished in (("done", 8, True), ("old", 1, False), ("new", 2, False)):
        run_folder(tmp_path, name, "data: {alpha: 1}", seconds, finished)
    for ckpt_path in ("last", "auto"):
        found = find_run(ckpt_path, str(tmp_path), None, mine)
        assert found is not None
        assert found.path.name == "new"
    found = find_run("auto", str(tmp_path), "other", mine)
    assert found is not None
    assert found.path.name == "other"


@pytest.mark.parametrize("ckpt_path", ["last", "auto"])
def test_without_a_config_nothing_tells_one_run_from_another(ckpt_path: str, tmp_path: Path) -> None:
    run_folder(tmp_path, "seed0", "", 1, finished=True)
    with pytest.raises(InputError, match=rf"^ckpt_path: {ckpt_path} finds a run by its config file, and there is none"):
        fit(small_trainer(tmp_path), ckpt_path=ckpt_path)


@pytest.mark.parametrize(
    "path", ["nothing", "x/model.ckpt", "x/checkpoints/task-09-round-01", "x/copies/task-01-round-01"]
)
def test_a_path_that_is_no_run(path: str, tmp_path: Path) -> None:
    run_folder(tmp_path, "x", "", 1).checkpoint.touch()
    (tmp_path / "x" / "copies" / "task-01-round-01").mkdir(parents=True)
    with pytest.raises(InputError, match=r"^ckpt_path: there is no run at .*; give a run's folder, such as runs/NAME$"):
        find_run(str(tmp_path / path), "runs", None, {})


def test_a_run_keeps_its_name(tmp_path: Path) -> None:
    run_folder(tmp_path, "x", "", 1)
    found = find_run(str(tmp_path / "x"), "runs", "x", {})
    assert found is not None
    with pytest.raises(InputError, match=r"^trainer\.name: .*x keeps its own name and is not called y; leave"):
        find_run(str(tmp_path / "x"), "runs", "y", {})


def test_a_run_that_is_held_is_not_touched(tmp_path: Path) -> None:
    run = run_folder(tmp_path, "x", "", 1)
    with run.held(), pytest.raises(InputError, match=r"^ckpt_path: another process is at work on "):
        fit(small_trainer(tmp_path), ckpt_path=str(run.path))
    assert sorted(path.name for path in run.path.iterdir()) == ["config.yaml"]


@pytest.mark.parametrize(
    "options",
    [
        {"personal": "statistics", "evaluation": "clients"},
        {"personal": "model", "weighting": "uniform"},
        {"restart": True, "weighting": "first_task"},
    ],
)
def test_whatever_clients_keep_and_servers_restart(options: dict[str, Any], tmp_path: Path) -> None:
    fit(small_trainer(tmp_path, name="whole", **options))
    stopped(small_trainer(tmp_path, name="x", **options), 1, 1)
    stopped(small_trainer(tmp_path, **options), 2, 2, ckpt_path=str(tmp_path / "x"))
    fit(small_trainer(tmp_path, **options), ckpt_path=str(tmp_path / "x"))
    assert outcome(tmp_path / "x") == outcome(tmp_path / "whole")
