from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from fedqcl.sweep import Job, run_jobs
from fedqcl.sweep.workers import apart


def fit(words: list[str]) -> int:
    """Stands in for a run: does what its words say."""
    what, *rest = words
    print("gpu", os.environ.get("CUDA_VISIBLE_DEVICES"))
    if what == "raise":
        raise ValueError(rest[0])
    if what == "meet":  # returns once the other has come too
        mine, other = map(Path, rest)
        mine.touch()
        while not other.exists():
            time.sleep(0.01)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "sleep":
        Path(rest[0]).write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(60)
    print("last words\n")
    return 0 if what == "meet" else len(rest)


def job(folder: Path, *words: str) -> Job:
    return Job(words[-1], words, folder / "logs" / f"{Path(words[-1]).name}.log")


def test_each_job_ends_with_its_status_and_its_last_line(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "ok"), job(tmp_path, "status", "1"), job(tmp_path, "raise", "too bad"), job(tmp_path, "kill")]
    ended = {job.words[0]: (status, job.last_line()) for job, status in run_jobs(fit, jobs, [None])}
    assert ended["ok"] == (0, "last words")
    assert ended["status"] == (1, "last words")
    assert ended["raise"] == (1, "ValueError: too bad")
    assert ended["kill"][0] == -signal.SIGKILL
    assert Job("none", (), tmp_path / "no.log").last_line() == "it printed nothing"


def test_as_many_jobs_run_at_once_as_there_are_slots(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    jobs = [job(tmp_path, "meet", a, b), job(tmp_path, "meet", b, a)]
    assert [status for _, status in run_jobs(fit, jobs, [None, None])] == [0, 0]


def test_one_slot_takes_one_job_at_a_time_in_order(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "ok"), job(tmp_path, "status", "1"), job(tmp_path, "status", "2")]
    assert [job.words[-1] for job, _ in run_jobs(fit, jobs, [None])] == ["ok", "1", "2"]


def test_a_job_sees_the_gpu_of_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest"])
    jobs = [job(tmp_path, "status", str(number)) for number in range(3)]
    assert len(list(run_jobs(fit, jobs, ["5", "GPU-7"]))) == 3
    seen = [job.log.read_text(encoding="utf-8").split()[1] for job in jobs]
    assert seen[:2] == ["5", "GPU-7"]
    assert seen[2] in seen[:2]


def test_no_job_outlives_the_sweep(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "ok"), job(tmp_path, "sleep", str(tmp_path / "pid"))]
    ended = run_jobs(fit, jobs, [None, None])
    next(ended)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text(encoding="utf-8"):
        time.sleep(0.01)
    ended.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)


def sweep(job: Job) -> None:
    list(run_jobs(fit, [job], [None]))


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_no_job_outlives_a_sweep_that_is_killed(tmp_path: Path) -> None:
    gone, held = os.pipe()
    started = job(tmp_path, "sleep", str(tmp_path / "pid"))
    process = multiprocessing.get_context("fork").Process(target=sweep, args=[started])
    process.start()
    os.close(held)
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert os.read(gone, 1) == b""  # nobody holds the other end any more


def test_a_log_is_added_to(tmp_path: Path) -> None:
    for word in ("first", "second"):
        list(run_jobs(fit, [Job("x", ("raise", word), tmp_path / "x.log")], [None]))
    text = (tmp_path / "x.log").read_text(encoding="utf-8")
    assert text.index("ValueError: first") < text.index("ValueError: second")


def interrupted(number: int, folder: Path) -> None:
    """Jobs that are under way when a signal comes."""
    timer = threading.Timer(0.5, os.kill, (os.getpid(), number))
    timer.start()
    list(run_jobs(fit, [job(folder, "sleep", str(folder / "pid"))], [None]))


def test_sigterm_ends_the_sweep_and_its_handler_is_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as left:
        interrupted(signal.SIGTERM, tmp_path)
    assert left.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_sweep_that_is_stopped_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(signal.SIGINT, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == "stopping once what runs is saved: the same command goes on with it\n"


def test_a_question_is_answered_by_another_process() -> None:
    before = set(multiprocessing.active_children())
    assert apart(os.getpid) not in (0, os.getpid())
    assert set(multiprocessing.active_children()) == before
