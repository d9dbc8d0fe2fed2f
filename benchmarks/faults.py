"""Kills a small run at random instants and goes on with it, over and over; every run must end as one left in peace.

    python benchmarks/faults.py --kills 200 --out RESULTS

A run is on 1 to 3 ranks. A kill is SIGKILL, SIGTERM or SIGINT to any of its processes, or to all at once, at a random
instant or while a checkpoint is being written; after SIGKILL what is left of the run is ended too, as a cluster would
do, after a random while; after the others it stops by itself, or is given too little time for that. The next part is
on another number of ranks, is killed in its turn or not, and in the end the files are compared with those of the run
left in peace: everything but times and devices, byte by byte.

Python and its libraries are loaded once; every part of a run is a fork. Exit status 1 if any run ended otherwise.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import ctypes
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from fedqcl.data import FederatedData
from fedqcl.data.sources import Digits
from fedqcl.errors import Interrupted
from fedqcl.learner import Learner
from fedqcl.methods import FedQCL
from fedqcl.models import SmallResNet
from fedqcl.run import pictures
from fedqcl.run.folder import RunFolder
from fedqcl.trainer import FederatedTrainer
from fedqcl.version import __version__

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 60.0  # seconds for a run that was asked to stop
SET_CHILD_SUBREAPER = 36
UNLIKE = {"device", "train_seconds", "wall_seconds"}


@dataclass(frozen=True)
class Kill:
    """One kill, as it is recorded.

    Attributes:
        run: which run, from 1.
        part: which part of it, from 1.
        ranks: of that part.
        grace: seconds that it had to stop when it was asked to; a short one ends it in the middle of a round.
        signal: what was sent.
        target: ``all`` processes, or the ``first`` one or an ``other`` one.
        aimed: at any ``instant``, or at the ``writing`` of a checkpoint.
        seconds: from the start of the part.
        writing: whether a checkpoint was being written.
        rounds: how many rounds stood in ``metrics.csv``.
        status: the exit status of the first process; negative if a signal ended it.
    """

    run: int
    part: int
    ranks: int
    grace: float
    signal: str
    target: str
    aimed: str
    seconds: float
    writing: bool
    rounds: int
    status: int


def fit(root: Path, ranks: int, grace: float) -> None:
    """Train, or go on, on so many ranks."""
    data = FederatedData(Digits(), num_clients=4, tasks=3, alpha=1.0, batch_size=32, seed=0)
    learner = Learner(
        FedQCL(V=100, delta=0.05, memory=60, replay_batch=8),
        net=lambda channels, classes: SmallResNet(channels, classes, width=4),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.001),
    )
    trainer = FederatedTrainer(
        accelerator="cpu",
        devices=ranks,
        rounds=4,
        epochs=1,
        root=str(root),
        name="run",
        grace=grace,
        start_method="fork",
    )
    trainer.fit(learner, data, ckpt_path="auto")


def start(root: Path, ranks: int, grace: float = PATIENCE) -> int:
    """Fork a part of a run into a process group of its own; its process id."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(PermissionError):
            os.setpgid(pid, pid)  # here as well, so that the group is there when this returns
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(root / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        fit(root, ranks, grace)
        status = 0
    except Interrupted as stop:
        status = stop.status
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def processes(group: int) -> list[int]:
    """The living processes of a group, the first one first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(int(stat.parent.name))
    return sorted(found, key=lambda pid: (pid != group, pid))


def end(group: int, patience: float) -> int:
    """Wait until a whole group has ended, ending what is left after a while; the first one's status."""
    status, until = 0, time.monotonic() + patience
    while True:
        try:
            pid, raw = os.waitpid(-group, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == group:
            status = os.waitstatus_to_exitcode(raw)
        elif pid == 0:
            time.sleep(0.002)
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            until = time.monotonic() + PATIENCE


def ended(pid: int) -> bool:
    """Whether a child has ended; it is left to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def is_writing(run: RunFolder) -> bool:
    """Whether there is a checkpoint that has no name yet."""
    with contextlib.suppress(OSError):
        return any(path.name.startswith(".task-") for path in run.checkpoints.iterdir())
    return False


def wait_for_moment(pid: int, run: RunFolder, aimed: str, seconds: float, rng: random.Random) -> bool:
    """Sleep until it is time to kill; False if the run has ended before."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if ended(pid):
            return False
        time.sleep(0.001)
    while aimed == "writing" and not is_writing(run):
        if ended(pid):
            return False
    if aimed == "writing":
        time.sleep(rng.uniform(0, 0.01))
    return not ended(pid)


def strike(pid: int, folder: RunFolder, rng: random.Random, seconds: float, **place: Any) -> Kill | None:
    """Kill a part of a run at a random instant; None if it has ended before."""
    aimed = rng.choice(["instant", "writing"])
    began = time.monotonic()
    alive = processes(pid) if wait_for_moment(pid, folder, aimed, rng.uniform(0, seconds), rng) else []
    if not alive:
        end(pid, PATIENCE)
        return None
    signum, target = rng.choice(SIGNALS), rng.choice(["first", "other", "all"])
    victims = {"first": alive[:1], "other": alive[1:] or alive, "all": alive}[target]
    victims = [rng.choice(victims)] if target == "other" else victims
    moment, writing = time.monotonic() - began, is_writing(folder)
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signum)
    status = end(pid, rng.uniform(0, 1) if signum == signal.SIGKILL else PATIENCE)
    rounds = len(folder.read_metrics()) if folder.metrics.exists() else 0
    name = signal.Signals(signum).name
    return Kill(**place, signal=name, target=target, aimed=aimed, seconds=round(moment, 3), writing=writing,
                rounds=rounds, status=status)  # fmt: skip


def outcome(run: RunFolder) -> dict[str, Any]:
    """All that must be the same."""
    rounds = [{name: value for name, value in row.items() if name != "seconds"} for row in run.read_metrics()]
    return {
        "files": sorted(path.name for path in run.path.iterdir()),
        "model": run.checkpoint.read_bytes(),
        "config": run.config.read_bytes(),
        "clients": run.clients.read_bytes(),
        "metrics": repr(rounds),
        "summary": repr({name: value for name, value in run.read_summary().items() if name not in UNLIKE}),
    }


def one_run(number: int, work: Path, seconds: float, rng: random.Random) -> tuple[list[Kill], dict[str, Any], str]:
    """A run that is killed now and then until it has ended; the kills, what it left and what it said."""
    root = work / str(number)
    root.mkdir()
    run = RunFolder(root / "run")
    kills: list[Kill] = []
    planned = rng.randint(1, 4)
    while len(kills) < planned:
        ranks, grace = rng.randint(1, 3), rng.choice([PATIENCE, 0.01])
        part = start(root, ranks, grace)
        kill = strike(part, run, rng, seconds, run=number, part=len(kills) + 1, ranks=ranks, grace=grace)
        if kill is None:
            break
        kills.append(kill)
    status = end(start(root, rng.randint(1, 3)), 4 * PATIENCE)
    left = outcome(run) if status == 0 else {"status": status}
    log = (root / "log").read_text(errors="replace")
    shutil.rmtree(root)
    return kills, left, log


def in_peace(work: Path) -> tuple[dict[str, Any], float]:
    """What a run leaves that is not killed, and how long it takes."""
    root = work / "peace"
    root.mkdir()
    began = time.monotonic()
    assert end(start(root, 1), 4 * PATIENCE) == 0, (root / "log").read_text()
    return outcome(RunFolder(root / "run")), time.monotonic() - began


def campaign(count: int, seed: int) -> Iterator[tuple[list[Kill], str]]:
    """Runs, until there were so many kills: the kills of each, and what was wrong with its end, if anything."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        peace, seconds = in_peace(Path(folder))
        made, number = 0, 0
        while made < count:
            number += 1
            kills, left, log = one_run(number, Path(folder), 1.2 * seconds, rng)
            made += len(kills)
            wrong = sorted(name for name in peace.keys() | left.keys() if peace.get(name) != left.get(name))
            if wrong:
                print(log, file=sys.stderr)
            yield kills, " ".join(wrong)


def tables(runs: list[tuple[list[Kill], str]], seconds: float) -> str:
    """The outcome in words and figures."""
    kills = [kill for made, _ in runs for kill in made]
    same = sum(not wrong for _, wrong in runs)
    lines = [
        f"{len(kills)} kills in {len(runs)} runs, {sum(kill.writing for kill in kills)} of them while a checkpoint was "
        f"being written: {same} of {len(runs)} runs ended with exactly the files of a run left in peace.",
        "",
        f"fedqcl {__version__}, Python {platform.python_version()}, PyTorch {torch.__version__}, {seconds:.0f} s.",
        "",
        "| kills by | |",
        "|---|--:|",
    ]
    for key in ("signal", "grace", "target", "ranks", "part"):
        counts = collections.Counter(str(getattr(kill, key)) for kill in kills)
        lines += [f"| {key} {value} | {count} |" for value, count in sorted(counts.items())]
    return "\n".join(lines) + "\n"


def write_kills(path: Path, runs: list[tuple[list[Kill], str]]) -> None:
    """A row a kill."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = [field.name for field in fields(Kill)]
        writer.writerow([*names, "wrong"])
        writer.writerows([*(getattr(kill, name) for name in names), wrong] for kills, wrong in runs for kill in kills)


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for README.md and kills.csv")
    given = parser.parse_args()
    pictures.plot_run = lambda path: []  # pictures take longer than the training here, and are drawn from the tables
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # ranks whose launcher was killed are waited for here
    torch.set_num_threads(1)
    began = time.monotonic()
    runs = []
    for kills, wrong in campaign(given.kills, given.seed):
        runs.append((kills, wrong))
        print(f"run {len(runs)}: {len(kills)} kills, {wrong or 'same'}", flush=True)
    text = tables(runs, time.monotonic() - began)
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        command = f"python benchmarks/faults.py --kills {given.kills} --seed {given.seed}"
        title = f"# Runs killed at random instants\n\n    {command}\n\n"
        (given.out / "README.md").write_text(title + text)
        write_kills(given.out / "kills.csv", runs)
    return 1 if any(wrong for _, wrong in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
