from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fedqcl.engine.launcher import ScriptLauncher, die_with_launcher
from tests.helpers.process import run_python


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


def test_a_process_nobody_launched_stays_as_it_is() -> None:
    die_with_launcher("popen")
    die_with_launcher("fork")


ORPHAN = "import os; from fedqcl.engine.launcher import die_with_launcher; die_with_launcher('popen'); print('alive')"


def test_a_process_whose_launcher_is_gone_ends() -> None:
    done = run_python("-c", ORPHAN, FEDQCL_LAUNCHER="1")
    assert (done.returncode, done.stdout) == (1, "")
