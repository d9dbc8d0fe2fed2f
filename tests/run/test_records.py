from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from fedqcl.run.records import ClientRecord, RoundRecord, State, mean
from tests.helpers.process import run_python

nan = math.nan


def record(*states: State) -> RoundRecord:
    clients = [ClientRecord(client, 10, 5, 0.5, state) for client, state in enumerate(states)]
    return RoundRecord(1, 0, [0.9, 0.8, nan], 0.85, 0.05, 0.5, 1.0, 100, 100, clients)


def test_state_is_the_mean_over_clients_task_by_task() -> None:
    state = record({"queue": [1.0, 4.0, nan], "lyapunov": 2.0}, {"queue": [3.0, nan, nan], "lyapunov": nan}).state
    assert state["queue"] == pytest.approx([2.0, 4.0, nan], nan_ok=True)
    assert state["lyapunov"] == 2.0


def test_state_of_clients_that_report_different_things() -> None:
    assert record({"drift": 1.0}, {"queue": [2.0]}, {"drift": 3.0}).state == {"drift": 2.0, "queue": [2.0]}


def test_state_without_clients_or_diagnostics_is_empty() -> None:
    assert record().state == {}
    assert record({}, {}).state == {}
    assert record().queue == []


def test_queue_is_the_state_of_that_name() -> None:
    assert record({"queue": [1.0, 2.0]}, {"queue": [2.0, 2.0]}).queue == [1.5, 2.0]
    assert record({"drift": 1.0}).queue == []


def test_active_clients_are_those_that_took_steps() -> None:
    sat_out = ClientRecord(7, 10, 0, nan, {"queue": [4.0]})
    busy = record({"queue": [2.0]})
    both = replace(busy, clients=[*busy.clients, sat_out])
    assert both.active == busy.clients
    assert both.queue == [3.0]


def test_mean_does_not_depend_on_the_order() -> None:
    rng = random.Random(0)
    values = [rng.uniform(-1, 1) * 10 ** rng.randint(-12, 12) for _ in range(200)]
    assert mean(values) == mean(sorted(values)) == mean(reversed(values))


def test_mean_leaves_nan_out() -> None:
    assert mean([1.0, nan, 2.0]) == 1.5
    assert math.isnan(mean([nan]))
    assert math.isnan(mean([]))


def test_reporting_imports_nothing_heavy() -> None:
    code = (
        "import sys, fedqcl.run, fedqcl.run.pictures;"
        "print(*sorted({'torch', 'wandb', 'matplotlib', 'rich', 'numpy'} & sys.modules.keys()))"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stdout.strip()) == (0, "")
