"""Finds the run to go on with, and puts its folder back to where its last checkpoint stands."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from fedqcl.checkpoint import Start
from fedqcl.checkpoint.directory import Checkpoints, is_checkpoint
from fedqcl.checkpoint.state import read_run
from fedqcl.errors import InputError
from fedqcl.run.config import Complete, changes
from fedqcl.run.folder import RunFolder

SHOWN = 3


def find_run(
    ckpt_path: str, root: str, name: str | None, config: dict[str, Any], complete: Complete = dict
) -> RunFolder | None:
    """The run that ``ckpt_path`` means.

    Args:
        ckpt_path: a run's folder, a checkpoint in it, or ``last`` or ``auto``: the newest run of this configuration,
            one that has not finished if there is any.
        root: the folder of all runs.
        name: what the run is called, if given: the only one that ``last`` and ``auto`` may mean.
        config: the configuration; empty if there is none, as in a script.
        complete: gives a run's configuration today's defaults for what it lacks.

    Returns:
        The run; None if ``auto`` has found none.

    Raises:
        InputError: there is no such run, or nothing to tell it by.
    """
    if ckpt_path not in ("last", "auto"):
        path = Path(ckpt_path)
        run = RunFolder(folder_of_run(path))
        if not (path.is_dir() and run.config.is_file()):
            raise InputError(f"ckpt_path: there is no run at {path}; give a run's folder, such as runs/NAME")
        if name and name != run.path.resolve().name:
            raise InputError(
                f"trainer.name: {path} keeps its own name and is not called {name}; leave trainer.name out"
            )
        return run
    if not name and not config:
        raise InputError(
            f"ckpt_path: {ckpt_path} finds a run by its config file, and there is none; give trainer.name or the run's "
            "folder"
        )
    folders = [Path(root, name)] if name else Path(root).glob("[!.]*")
    runs = [run for run in map(RunFolder, folders) if run.config.is_file()]
    if not name:
        runs = [run for run in runs if not changes(run.read_config(), config, complete)]
    newest = max(runs, key=lambda run: (not run.finished, _last_written(run)), default=None)
    if newest is None and ckpt_path == "last":
        raise InputError(f"ckpt_path: no run in {root} has this configuration; leave ckpt_path out to start one")
    return newest


def folder_of_run(path: Path) -> Path:
    """The run's folder, by itself, by a checkpoint or by a file in it."""
    if is_checkpoint(path) and path.parent.name == "checkpoints":
        return path.parent.parent
    return path.parent if path.is_file() else path


def go_on(run: RunFolder, ckpt_path: str, made_with: dict[str, Any], complete: Complete = dict) -> Start:
    """Put a run's folder back to its last good checkpoint.

    Args:
        run: the run.
        ckpt_path: as for :func:`find_run`; a checkpoint is gone on from itself, if it is good.
        made_with: what the run would be made with now, as :meth:`RunFolder.write_made_with` takes it.
        complete: as for :func:`find_run`.

    Raises:
        InputError: the run was made with something else, or none of its checkpoints is whole.
    """
    token = secrets.token_hex(4)
    checkpoints = Checkpoints(run.checkpoints)
    check_same(run, run.read_made_with() or {"config": run.read_config()}, made_with, complete)
    if run.finished:
        checkpoints.clear()  # it may have been killed as it did this itself
        return Start(run.path, token, lines=[f"{run.path} has finished: nothing to go on with"], finished=True)
    checkpoint, lines = _choose(checkpoints, Path(ckpt_path))
    saved = read_run(checkpoint) if checkpoint else None
    run.write_made_with(made_with)  # it may have been killed before it had done so
    checkpoints.keep_up_to(checkpoint)
    task, round = saved["position"] if saved else (0, 0)
    run.put_back(saved["tables"] if saved else {})
    if checkpoint is None:
        lines = [*lines, f"{run.path} has no checkpoint: it starts at its beginning"]
    elif lines:
        lines = [*lines, f"{checkpoint.name} is used instead"]
    run_id = saved["run_id"] if saved else None
    return Start(run.path, token, (task, round), checkpoint, run_id, lines)


def check_same(run: RunFolder, then: dict[str, Any], now: dict[str, Any], complete: Complete) -> None:
    """Check that a run was made with what is given now, as far as it is known.

    Args:
        run: the run.
        then: what it was made with.
        now: the same as it is now.
        complete: as for :func:`find_run`.

    Raises:
        InputError: it was not; the first keys that differ are named.
    """
    configs = then.get("config"), now["config"]
    if {} in configs and configs[0] != configs[1]:
        where = "from Python" if configs[1] else "by the command line"
        raise InputError(f"ckpt_path: {run.path} was made {where}; go on with it there")
    for part in then:
        found = changes(then[part], now[part], complete if part == "config" else dict)
        if found and part == "images":
            raise InputError(
                f"ckpt_path: the images or labels are not those that {run.path} was started with; "
                "put them back, or start a new run without ckpt_path"
            )
        if found:
            raise InputError(
                f"ckpt_path: {run.path} has another configuration: {_first(found)}; "
                "give the run's own, or start a new run without ckpt_path"
            )


def check_model(ckpt_path: str, config: dict[str, Any], complete: Complete) -> None:
    """Check that a run's model is evaluated as what it is, as far as its folder tells.

    Args:
        ckpt_path: the run's folder, or a file in it.
        config: the configuration to evaluate with. The images may be elsewhere, and the trainer's options any.
        complete: as for :func:`find_run`.

    Raises:
        InputError: the run was made with another method, other classes in its tasks and the like.
    """
    run = RunFolder(folder_of_run(Path(ckpt_path)))
    ran = run.read_config()
    found = changes(ran, config, complete, free=("trainer", "data.source")) if ran else []
    if found:
        raise InputError(
            f"ckpt_path: {run.path} has another configuration: {_first(found)}; "
            "leave --config and other options out, as the run has its own"
        )


def _first(found: list[str]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{', '.join(found[:SHOWN])}{more}"


def _choose(checkpoints: Checkpoints, asked: Path) -> tuple[Path | None, list[str]]:
    """The checkpoint to go on from, and a line on each one that was passed over."""
    newest, lines = checkpoints.newest_whole(up_to=asked.name if asked.parent == checkpoints.path else "")
    if newest is None and lines:
        raise InputError(f"ckpt_path: {'; '.join(lines)}; there is no other to go on from")
    return newest, lines


def _last_written(run: RunFolder) -> float:
    return max(file.stat().st_mtime for file in (run.config, run.metrics) if file.exists())
