"""The paper's Algorithm 1."""

from __future__ import annotations

from fedqcl.checkpoint import NOTHING_KEPT, Keeper
from fedqcl.engine import Engine
from fedqcl.methods import Method
from fedqcl.schedule import Schedule
from fedqcl.tracker import Tracker


def fit(method: Method, engine: Engine, schedule: Schedule, tracker: Tracker, keeper: Keeper = NOTHING_KEPT) -> None:
    """Train on one task after another.

    Every rank runs this. Each works for its own clients; they meet where the server is: in the average and the sums.

    Args:
        method: what differs from FedAvg.
        engine: hosts the server and this rank's clients.
        schedule: tasks, rounds and participants.
        tracker: evaluates and records.
        keeper: says where to start, keeps checkpoints and stops the run if asked to.
    """
    server = engine.server
    for task, rounds in schedule.rest(keeper.position):
        for round in rounds:
            keeper.reach(task, round)  # a checkpoint, and the place to stop
            tracker.start_round()
            average, stats, reports = engine.average(), [], []
            for locals in engine.broadcast(schedule.participants(task, round), task):  # w_i <- w
                engine.local_steps(locals, round)  # R epochs of SGD on the method's loss, clients in parallel
                for local in locals:
                    stats.append(engine.call(method.client_round, local))  # FedQCL: the queues
                    average.add(local.net, weight=len(local.shard))
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
    keeper.reach(schedule.num_tasks, 0)
