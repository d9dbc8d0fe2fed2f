"""The paper's Algorithm 1."""

from __future__ import annotations

from fedqcl.engine import Engine
from fedqcl.methods import Method
from fedqcl.schedule import Schedule
from fedqcl.tracker import Tracker


def fit(method: Method, engine: Engine, schedule: Schedule, tracker: Tracker) -> None:
    """Train on one task after another.

    Every rank runs this. Each works for its own clients; they meet where the server is: in the average and the sums.

    Args:
        method: what differs from FedAvg.
        engine: hosts the server and this rank's clients.
        schedule: tasks, rounds and participants.
        tracker: evaluates and records.
    """
    server = engine.server
    for task in range(schedule.num_tasks):
        engine.start_task()
        for round in range(schedule.rounds):
            tracker.start_round()
            average, stats, reports = engine.average(), [], []
            active, last = schedule.participants(task, round), schedule.is_last(round)
            for locals in engine.broadcast(active, task, last_round=last):  # w_i <- w
                engine.local_steps(locals, round)  # R epochs of SGD on the method's loss, clients in parallel
                for local in locals:
                    stats.append(engine.call(method.client_round, local))  # FedQCL: the queues
                    average.add(local.net, engine.weight(local.shard))  # n_i
                    reports.append(local.report())
            weights = average.reduce()  # sum_i p_i w_i
            if weights is not None:
                server.load(method.server_round(server.weights(), weights, engine.sum(stats), server.state))
            tracker.end_round(task, round, engine, reports)
        stats = [
            engine.call(method.client_task, local)
            for locals in engine.broadcast(schedule.everyone, task, idle_too=True)
            for local in locals
        ]
        method.server_task(server.net, engine.sum(stats), server.state, task, schedule.server_generator(task))
        engine.agree()
        tracker.end_task(task, engine)
