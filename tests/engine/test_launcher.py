from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.multiprocessing.spawn import ProcessExitedException

from fedqcl.engine import launcher as module
from fedqcl.engine.launcher import ForkLauncher, ScriptLauncher, die_with_launcher
from tests.helpers.process import contained, run_python


def launcher(*programs: str) -> ScriptLauncher:
    environment: Any = SimpleNamespace()
    made = ScriptLauncher(environment, len(programs) + 1, 1)
    made.procs = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    return made


def test_the_first_that_fails_is_told() -> None:
    told: list[tuple[int, int]] = []
    made = launcher("", "import time; time.sleep(60)", "import sys; sys.exit(4)")
    made.on_end = lambda rank, code: told.append((rank, code))
    made._watch()
    assert told == [(3, 4)]
    made.kill(grace=0)
    assert [process.returncode for process in made.procs] == [0, -9, 4]


def test_processes_may_end_by_themselves() -> None:
    made = launcher("import time; time.sleep(0.3)")
    started = time.monotonic()
    made.kill(grace=30)
    assert [process.returncode for process in made.procs] == [0]
    assert time.monotonic() - started < 20
    made.on_end = lambda rank, code: pytest.fail("nothing failed")
    made._watch()


def fork(function: Callable[[], Any]) -> Any:
    """Call a function on each of two forked ranks."""
    strategy: Any = SimpleNamespace(cluster_environment=SimpleNamespace(main_port=0), num_processes=2)
    with contained():
        return ForkLauncher(strategy, "fork").launch(function)


def kill_the_second() -> None:
    if os.environ["LOCAL_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_the_first_forked_rank_returns() -> None:
    assert fork(lambda: os.environ["LOCAL_RANK"]) == "0"


def test_a_forked_rank_ends_by_itself_when_another_was_killed(tmp_path: Path) -> None:
    def outlive() -> None:
        signal.signal(signal.SIGTERM, lambda signum, frame: (tmp_path / "asked to stop").touch())
        kill_the_second()
        time.sleep(0.5)
        (tmp_path / "ended").touch()

    with pytest.raises(ProcessExitedException) as failure:
        fork(outlive)
    assert (failure.value.error_index, failure.value.exit_code) == (1, -signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir()] == ["ended"]


def test_a_forked_rank_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stay() -> None:
        signal.signal(signal.SIGTERM, lambda signum, frame: (tmp_path / "asked to stop").touch())
        kill_the_second()
        while True:
            time.sleep(1)

    monkeypatch.setattr(module, "GRACE_SECONDS", 0.2)
    started = time.monotonic()
    with pytest.raises(ProcessExitedException) as failure:
        fork(stay)
    assert failure.value.error_index == 1
    assert time.monotonic() - started < 10
    assert not list(tmp_path.iterdir())


def test_a_process_nobody_launched_stays_as_it_is() -> None:
    die_with_launcher("popen")
    die_with_launcher("fork")


ORPHAN = "import os; from fedqcl.engine.launcher import die_with_launcher; die_with_launcher('popen'); print('alive')"


def test_a_process_whose_launcher_is_gone_ends() -> None:
    done = run_python("-c", ORPHAN, FEDQCL_LAUNCHER="1")
    assert (done.returncode, done.stdout) == (1, "")
