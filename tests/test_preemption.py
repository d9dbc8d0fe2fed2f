from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedqcl.cli import main
from fedqcl.data import FederatedData
from fedqcl.preemption import SIGNALS, Interruption, passed_on, requeue, requeue_noted
from tests.helpers.process import REPOSITORY


@pytest.fixture(autouse=True)
def _usual_handlers() -> Iterator[None]:
    """As in a terminal, wherever the tests run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def handlers() -> list[object]:
    return [signal.getsignal(signum) for signum in SIGNALS]


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_is_noted_and_no_more(signum: int) -> None:
    before = handlers()
    with Interruption(60, say=lambda line: None) as interruption:
        assert interruption.signal == 0
        os.kill(os.getpid(), signum)
        assert interruption.signal == signum
        os.kill(os.getpid(), signal.SIGTERM)  # so soon after the first, it is the same wish
        assert interruption.signal == signum
    assert handlers() == before
    assert signal.set_wakeup_fd(-1) == -1


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with passed_on(), Interruption(60) as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.signal == 0
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


CODE = """
import ctypes, signal
from fedqcl.preemption import Interruption

with Interruption({grace}, lambda line: print(line, flush=True), {at_once}, {first}):
    print("ready", flush=True)
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):  # a mutex that is locked twice is waited for for ever
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""


def started(grace: float, at_once: str = "lambda signum: 0", first: bool = True) -> subprocess.Popen[str]:
    """A process whose main thread is in a call that no signal breaks off, as in a collective."""
    code = CODE.format(grace=grace, at_once=at_once, first=first)
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_grace_time_ends_the_process() -> None:
    process = started(grace=0.3)
    since = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert 0.3 <= time.monotonic() - since < 10
    assert process.returncode == 128 + signal.SIGTERM
    assert out == "SIGTERM: stopping when this round ends; a second one stops it at once\n"
    assert err == "fedqcl: ended by SIGTERM, could not stop within 0.3 s: nothing is saved\n"


def test_a_second_signal_ends_the_process_at_once() -> None:
    process = started(grace=60)
    process.send_signal(signal.SIGINT)
    time.sleep(1.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert err == "fedqcl: ended by SIGINT, asked twice: nothing is saved\n"


def test_another_rank_leaves_in_silence_and_after_the_first() -> None:
    ranks = [started(grace=0.2, first=first) for first in (True, False)]
    for rank in ranks:
        rank.send_signal(signal.SIGTERM)
    said = ranks[0].communicate(timeout=30)[1]
    assert ranks[1].poll() is None
    assert (said.count("\n"), ranks[1].communicate(timeout=30)[1]) == (1, "")
    assert [rank.returncode for rank in ranks] == [128 + signal.SIGTERM] * 2


def test_the_status_of_a_process_that_is_to_be_started_again() -> None:
    process = started(grace=0.1, at_once="lambda signum: 75 if signum == signal.SIGUSR1 else 0")
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=30)
    assert process.returncode == 75


def waiting(seconds: float) -> None:
    with Interruption(60, say=lambda line: None) as interruption:
        until = time.monotonic() + seconds
        while not interruption.signal and time.monotonic() < until:
            time.sleep(0.01)
    os._exit(interruption.signal)


def test_signals_are_passed_on_to_forked_ranks() -> None:
    before = handlers()
    with passed_on():
        child = multiprocessing.get_context("fork").Process(target=waiting, args=(30,))
        child.start()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)
        child.join(30)
    assert child.exitcode == signal.SIGTERM
    assert handlers() == before


def test_without_ranks_a_signal_does_what_it_does() -> None:
    with pytest.raises(KeyboardInterrupt), passed_on():
        os.kill(os.getpid(), signal.SIGINT)


def test_being_asked_for_a_requeue_before_the_training_counts_in_it() -> None:
    before = handlers()
    said: list[str] = []
    with requeue_noted(), passed_on():
        inside = handlers()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert handlers() == inside
        with Interruption(60, said.append) as interruption:
            assert interruption.signal == signal.SIGUSR1
    until = time.monotonic() + 10
    while not said and time.monotonic() < until:  # by a thread
        time.sleep(0.01)
    assert said == ["SIGUSR1: stopping when this round ends; a second one stops it at once"]
    assert handlers() == before
    with Interruption(60) as later:
        assert later.signal == 0


def test_a_run_that_is_asked_for_a_requeue_before_its_training_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(data: FederatedData) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(FederatedData, "prepare_data", asked)
    noted = scontrol(tmp_path, monkeypatch)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    words = ["fit", "--config", "quickstart.yaml", "--trainer.root", str(tmp_path / "runs"), "--trainer.devices", "1"]
    assert main(words) == 128 + signal.SIGUSR1
    assert noted.read_text() == "requeue 7\n"
    (run,) = (tmp_path / "runs").iterdir()
    assert {path.name for path in run.iterdir()} == {"config.yaml", "made_with.json"}


def scontrol(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> Path:
    """A stand-in that notes what it is asked."""
    noted = folder / "noted"
    tool = folder / "scontrol"
    tool.write_text(f'#!/bin/sh\necho "$@" > {noted}\nexit {status}\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return noted


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({"SLURM_JOB_ID": "7"}, "7"),
        ({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}, "7_2"),
    ],
)
def test_slurm_is_asked_to_requeue(
    environment: dict[str, str], job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = scontrol(tmp_path, monkeypatch)
    assert not requeue()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert requeue()
    assert noted.read_text() == f"requeue {job}\n"
    scontrol(tmp_path, monkeypatch, status=1)
    assert not requeue()
    monkeypatch.setenv("PATH", "")
    assert not requeue()
