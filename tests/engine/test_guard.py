"""One failing rank ends the job: soon, by the right status, with one cause shown and no process left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fedqcl.engine.guard import Member, Word, _short, _verdict
from fedqcl.engine.pulse import LostContactError
from fedqcl.engine.strategy import FederatedStrategy
from tests.helpers.process import REPOSITORY, run_python

# Each fault: the exit status of the job, and the last line that is shown, "" for nothing at all.
RAISED = "fedqcl fit: error: rank {rank}, client {rank}, task 1, round 2: ArithmeticError: seven is not prime"
HUNG = "fedqcl fit: error: rank {rank} (at client {rank}, task 1, round 2) made no progress for 3 s while others wait"
FAULTS = {
    "none": (0, ""),
    "raise": (1, RAISED),
    "mistake": (2, "fedqcl fit: error: model.x: this cannot be; choose another (client {rank}, task 1, round 2)"),
    "kill": (137, "rank {rank} was killed by SIGKILL; the machine may be out of memory"),
    "segfault": (139, "rank {rank} was killed by SIGSEGV"),
    "leave": (3, "fedqcl fit: error: rank {rank} ended with status 3"),
    "leave_word": (1, "fedqcl fit: error: rank {rank} ended with status 1: that will do"),
    "leave_well": (1, "fedqcl fit: error: rank {rank}, client {rank}, task 1, round 2: left in the middle of the run"),
    "end": (5, "rank {rank} ended with status 5"),
    "interrupt": (130, ""),
    "hang": (1, HUNG),
}
TRACED = {"raise", "leave_well"}
FORKED = [(fault, rank) for fault in FAULTS for rank in (0, 1) if (fault, rank) != ("hang", 1)]


def check_text(shown: str, fault: str, rank: int) -> None:
    """Nothing is shown but the cause: one line, or a traceback that ends in it."""
    lines = shown.splitlines()
    last = FAULTS[fault][1].format(rank=rank)
    if not last:
        assert lines == []
        return
    assert last in lines[-1]
    traced = lines[0].startswith("Traceback") and shown.count("Traceback") == 1
    assert (traced and fault in TRACED) or len(lines) == 1, shown


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every fault on either of two forked ranks, one run after another in one process."""
    cases = [f"{fault}:{client}" for fault, client in (*FORKED, ("listening", 0), ("listening", 1))]
    root = str(tmp_path_factory.mktemp("runs"))
    done = run_python("-m", "tests.helpers.faulty", root, "fork", *cases, TORCH_CPP_LOG_LEVEL="ERROR")
    outcomes: dict[str, dict[str, Any]] = {}
    shown: list[str] = []
    for line in done.stderr.splitlines():
        if line.startswith("err {"):
            outcome = json.loads(line[4:])
            outcomes[outcome["case"]] = outcome | {"shown": "\n".join([*shown, outcome.get("said", "")]).strip()}
            shown = []
        else:
            shown.append(line)
    assert list(outcomes) == cases, done.stderr
    outcomes["listening"] = {"hosts": [json.loads(x)["hosts"] for x in done.stdout.splitlines() if "hosts" in x]}
    return outcomes


@pytest.mark.parametrize(("fault", "rank"), FORKED)
def test_forked_ranks(forked: dict[str, dict[str, Any]], fault: str, rank: int) -> None:
    outcome = forked[f"{fault}:{rank}"]
    assert outcome["status"] == FAULTS[fault][0]
    assert outcome["seconds"] < 30
    assert outcome["left"] == 0
    check_text(outcome["shown"], fault, rank)


SCRIPTED = [("raise", 1), ("mistake", 1), ("kill", 0), ("kill", 1), ("hang", 1)]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], tuple[int, str, list[str]]]:
    """Some faults on ranks that are this command run again: status, errors shown, and the processes left."""
    processes = {}
    for fault, rank in SCRIPTED:
        root = str(tmp_path_factory.mktemp(f"{fault}-{rank}"))
        words = [sys.executable, "-m", "tests.helpers.faulty", root, "popen", f"{fault}:{rank}"]
        process = subprocess.Popen(
            words,
            cwd=REPOSITORY,
            env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes[fault, rank] = (root, process)
    outcomes = {}
    for case, (root, process) in processes.items():
        _, errors = process.communicate(timeout=120)
        outcomes[case] = (process.returncode, errors, left(root))
    return outcomes


def left(word: str) -> list[str]:
    """The processes with a word in their command line, after a moment in which they may end."""
    end = time.monotonic() + 5
    while True:
        found = [str(path.parent) for path in Path("/proc").glob("[0-9]*/cmdline") if word in _text(path)]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has just ended
        return ""


@pytest.mark.parametrize(("fault", "rank"), SCRIPTED)
def test_ranks_of_the_same_command(
    scripted: dict[tuple[str, int], tuple[int, str, list[str]]], fault: str, rank: int
) -> None:
    status, errors, processes = scripted[fault, rank]
    assert processes == []
    if (fault, rank) == ("kill", 0):  # it is the one that would say something
        assert status == -9
        assert "rror" not in errors
        return
    assert status == FAULTS[fault][0]
    check_text(errors, fault, rank)


def test_ranks_of_one_machine_listen_on_its_loopback_only(forked: dict[str, dict[str, Any]]) -> None:
    hosts = forked["listening"]["hosts"]
    assert [len(host) > 0 for host in hosts] == [True, True]
    assert {host for rank in hosts for host in rank} == {"0100007F"}  # 127.0.0.1


def test_forked_ranks_say_it_once_though_the_store_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    def gone(*_: Any) -> None:
        raise RuntimeError

    word = Word("fork")
    for rank in (0, 1):
        strategy = SimpleNamespace(global_rank=rank, store=SimpleNamespace(add=gone))
        assert word.given == bool(rank)
        Member(cast(FederatedStrategy, strategy), "fedqcl fit", word)._say("it is broken")
    assert capsys.readouterr().err == "it is broken\n"


@pytest.mark.parametrize(
    ("code", "line", "status"),
    [
        (0, "", 0),
        (5, "rank 2 ended with status 5", 5),
        (75, "", 75),  # asked to stop, and to be started again
        (143, "", 143),  # asked to stop
        (-15, "rank 2 was killed by SIGTERM", 143),
        (-9, "rank 2 was killed by SIGKILL; the machine may be out of memory", 137),
    ],
)
def test_what_became_of_a_rank(code: int, line: str, status: int) -> None:
    assert _verdict(2, code) == (line, status)


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("[/a/b.cc:561] Connection closed by peer [127.0.0.1]:39. This is typically", "Connection closed by peer"),
        ("[1] [/a/b.cc:5] Timed out waiting\nfor it", "Timed out waiting"),
        ("something else", "something else"),
    ],
)
def test_a_lost_connection_in_short(said: str, short: str) -> None:
    assert _short(LostContactError(said)).startswith(short)
