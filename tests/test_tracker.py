from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedqcl import loop
from fedqcl.costs import Costs
from fedqcl.data import FederatedData
from fedqcl.evaluate import Evaluator
from fedqcl.methods import FedAvg, FedQCL, Method, Stats
from fedqcl.run.log import SilentLog
from fedqcl.run.records import RoundRecord
from fedqcl.schedule import Schedule
from fedqcl.tracker import Tracker
from tests.helpers.toy import toy_data, toy_engine, toy_learner


class Log(SilentLog):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []
        self.matrices: list[list[list[float]]] = []
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def round(self, record: RoundRecord) -> None:
        self.records.append(record)

    def task(self, record: RoundRecord, matrix: Any, queues: Any) -> None:
        assert record is self.records[-1]
        self.matrices.append(matrix)


def tracked(
    method: Method, data: FederatedData, rounds: int = 2, participation: float = 1.0
) -> tuple[Tracker, Log, Any]:
    engine = toy_engine(toy_learner(method), data, epochs=2)
    evaluator = Evaluator(engine.fabric, data.evaluation_pool(engine.fabric.device, "test"), data.spec)
    log = Log()
    assert data.spec is not None
    schedule = Schedule(data.spec.num_tasks, rounds, data.num_clients, participation, data.seed)
    tracker = Tracker(evaluator, log, schedule, Costs(engine))
    loop.fit(method, engine, schedule, tracker)
    return tracker, log, engine


def queued() -> FedQCL:
    return FedQCL(V=4, delta=-0.5, memory=6, replay_batch=2)


def test_records_of_a_run() -> None:
    data = toy_data()
    _, log, _ = tracked(queued(), data)
    assert [(r.task, r.round) for r in log.records] == [(t, c) for t in range(3) for c in range(2)]
    for r in log.records:
        seen = r.accuracy[: r.task + 1]
        assert all(0 <= a <= 1 for a in seen)
        assert all(math.isnan(a) for a in r.accuracy[r.task + 1 :])
        assert r.average_accuracy == pytest.approx(np.mean(seen))
        assert math.isnan(r.forgetting) == (r.task == 0)
        assert [c.client for c in r.clients] == [0, 1, 2]
        assert [c.samples for c in r.clients] == [len(s) for s in data.shards[r.task]]
        assert [c.steps for c in r.clients] == [-(-2 * len(s) // 5) for s in data.shards[r.task]]
        assert r.loss == pytest.approx(sum(c.loss * c.samples for c in r.clients) / 24)
        # 5 * 16 + 5 weights of the shared layer, 6 * 5 + 6 of the heads, 4 bytes each, for three clients.
        assert r.bytes_sent == r.bytes_received == 3 * 4 * 121
        assert r.seconds > 0


def test_summary() -> None:
    data = toy_data()
    tracker, log, _ = tracked(queued(), data)
    summary = tracker.summary()
    matrix = np.array(summary["accuracy_matrix"])
    assert matrix.shape == (3, 3)
    assert np.isfinite(matrix).all()  # every task is tested after every task
    last = [r for r in log.records if r.round == 1]
    for task, r in enumerate(last):
        assert r.accuracy[: task + 1] == matrix[task, : task + 1].tolist()
    assert summary["average_accuracy"] == pytest.approx(matrix[2].mean()) == last[2].average_accuracy
    best = [max(matrix[0, 0], matrix[1, 0]), matrix[1, 1]]
    assert summary["forgetting"] == pytest.approx(np.mean(best - matrix[2, :2])) == last[2].forgetting
    assert summary["client_steps"] == sum(c.steps for r in log.records for c in r.clients)
    assert summary["train_seconds"] == pytest.approx(sum(r.seconds for r in log.records))
    queues = np.array(summary["queue_matrix"])
    assert queues.shape == (3, 3)
    # Row by task, column by past task: the mean over clients after the task's last round.
    assert np.isnan(queues).tolist() == [[True, True, True], [False, True, True], [False, False, True]]
    for task, r in enumerate(last):
        for k in range(task):
            assert queues[task, k] == pytest.approx(np.mean([c.state["queue"][k] for c in r.clients]))


def test_a_single_task_has_a_matrix_too() -> None:
    tracker, log, _ = tracked(queued(), toy_data(tasks=1))
    ((accuracy,),) = tracker.summary()["accuracy_matrix"]
    assert accuracy == log.records[-1].accuracy[0] == tracker.summary()["average_accuracy"]


def test_in_the_class_incremental_scenario_classes_to_come_are_never_predicted() -> None:
    tracker, log, engine = tracked(queued(), toy_data(scenario="class"))
    matrix = np.array(tracker.summary()["accuracy_matrix"])
    assert (matrix[np.triu_indices(3, 1)] == 0).all()
    assert (matrix.diagonal() > 0).all()
    for r in log.records[1::2]:
        assert r.accuracy[: r.task + 1] == matrix[r.task, : r.task + 1].tolist()
    # The last row is what a test of the trained model gives.
    correct, total = tracker.evaluator.count(engine.server.net, num_tasks=3)
    assert (correct / total).tolist() == matrix[2].tolist()


def test_a_task_is_measured_on_the_model_that_it_leaves_behind() -> None:
    class Single(FedAvg):
        """The server has the first class of every task win."""

        def server_task(self, net: Any, stats: Stats, server: Any, task: int, rng: np.random.Generator) -> None:
            with torch.no_grad():
                net.head.bias[::2] = 1e6

    tracker, log, _ = tracked(Single(), toy_data())
    assert tracker.summary()["accuracy_matrix"] == [[0.5] * 3] * 3
    assert [r.accuracy[r.task] for r in log.records[1::2]] == [0.5] * 3


@pytest.mark.parametrize(("seconds", "told"), [(21.0, ["21 s"] * 3), (5.0, ["5.0 s"] * 3), (4.9, [])])
def test_a_task_that_takes_long_to_end_says_so(
    seconds: float, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    class Slow(FedAvg):
        """Its rounds take no time, its tasks' ends some."""

        def server_task(self, net: Any, stats: Stats, server: Any, task: int, rng: np.random.Generator) -> None:
            nonlocal now
            now += seconds

    monkeypatch.setattr("fedqcl.tracker.time.perf_counter", lambda: now)
    tracker, log, _ = tracked(Slow(), toy_data())
    expected = [f"task {task} took {taken} to end, after its rounds" for task, taken in enumerate(told, 1)]
    assert log.lines == expected
    assert tracker.summary()["train_seconds"] == 0


def test_matrices_handed_to_the_log_grow_row_by_row() -> None:
    _, log, _ = tracked(queued(), toy_data())
    assert [int(np.isfinite(m).all(1).sum()) for m in log.matrices] == [1, 2, 3]


def test_a_method_without_queues_has_no_queue_matrix() -> None:
    tracker, log, _ = tracked(FedAvg(), toy_data(), rounds=1)
    assert tracker.summary()["queue_matrix"] is None
    assert log.records[0].clients[0].state == {}


def test_clients_that_sit_a_round_out_take_no_steps_and_send_nothing() -> None:
    data = toy_data(num_clients=5, alpha="iid")
    _, log, engine = tracked(queued(), data, participation=0.4)
    for r in log.records:
        busy = [c for c in r.clients if c.steps]
        assert [c.client for c in r.clients] == list(range(5))
        assert [c.client for c in busy] == Schedule(3, 2, 5, 0.4, data.seed).participants(r.task, r.round)
        assert all(math.isnan(c.loss) for c in r.clients if not c.steps)
        assert r.loss == pytest.approx(sum(c.loss * c.samples for c in busy) / sum(c.samples for c in busy))
        assert r.bytes_sent == 2 * 4 * engine.num_shared


def test_a_round_without_any_samples() -> None:
    data = toy_data()
    data.shards[1] = [np.array([], np.int64)] * 3
    _, log, _ = tracked(queued(), data, rounds=1)
    empty = log.records[1]
    assert math.isnan(empty.loss)
    assert empty.bytes_sent == 0
    assert math.isfinite(log.records[2].loss)


def test_a_tracker_goes_on_counting() -> None:
    tracker, _, engine = tracked(queued(), toy_data())
    other = Tracker(tracker.evaluator, Log(), tracker.schedule, Costs(engine))
    other.load(tracker.state())
    fixed = [{k: v for k, v in t.summary().items() if k != "wall_seconds"} for t in (tracker, other)]
    assert repr(fixed[0]) == repr(fixed[1])
    assert other.summary()["wall_seconds"] > tracker.state()["wall_seconds"] / 2 > 0
    half = Tracker(tracker.evaluator, Log(), tracker.schedule, Costs(engine), started=0.0)
    half.load({**tracker.state(), "queues": tracker.queues[:1], "wall_seconds": 5.0})
    assert torch.equal(half.metric.total[:1], tracker.metric.total[:1])
    assert half.metric.total[1:].sum() == 0
    assert half.wall_started == -5
