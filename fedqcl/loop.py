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
            if round == 0:
                engine.start_task(task)
            tracker.start_round()
            updates = engine.updates(task, round)
            active, last = schedule.participants(task, round), schedule.is_last(round)
            for locals in engine.broadcast(active, task, last_round=last):  # w_i <- w
                for local in engine.local_steps(locals, round):  # R epochs of SGD on the method's loss, in parallel
                    with engine.faults.watching(local):
                        stats = engine.call(method.client_round, local)  # FedQCL: the queues
                        updates.add(local, stats, engine.weight(local.shard))  # w_i, n_i
            weights = engine.average(updates)  # sum_i p_i w_i
            if weights is not None:
                server.load(method.server_round(server.weights(), weights, engine.sum(updates.stats), server.state))
            tracker.end_round(task, round, engine, updates.reports)
        kept = []
        for locals in engine.broadcast(schedule.everyone, task, idle_too=True):
            for local in locals:
                with engine.faults.watching(local):
                    kept.append(engine.call(method.client_task, local))
        method.server_task(server.net, engine.sum(kept), server.state, task, schedule.server_generator(task))
        engine.agree()
        tracker.end_task(task, engine)
    keeper.reach(schedule.num_tasks, 0)
