from __future__ import annotations

import pytest

from fedqcl.rng import Purpose, generator
from fedqcl.schedule import Schedule, round_half_up


def schedule(num_clients: int, participation: float, seed: int = 0) -> Schedule:
    return Schedule(num_tasks=2, rounds=3, num_clients=num_clients, participation=participation, seed=seed)


@pytest.mark.parametrize(
    ("num_clients", "participation", "count"),
    [(5, 1.0, 5), (5, 0.4, 2), (5, 0.5, 3), (5, 0.49, 2), (10, 0.05, 1), (10, 0.01, 1), (1, 0.3, 1), (100, 0.1, 10)],
)
def test_how_many_take_part(num_clients: int, participation: float, count: int) -> None:
    plan = schedule(num_clients, participation)
    for task in range(2):
        for round in range(3):
            active = plan.participants(task, round)
            assert len(active) == len(set(active)) == count
            assert active == sorted(active)
            assert set(active) <= set(plan.everyone)


def test_every_round_draws_afresh() -> None:
    plan = schedule(20, 0.3)
    draws = {tuple(plan.participants(task, round)) for task in range(2) for round in range(3)}
    assert len(draws) == 6
    assert plan.participants(1, 2) == plan.participants(1, 2)
    assert plan.participants(1, 2) != schedule(20, 0.3, seed=1).participants(1, 2)


def test_in_the_long_run_all_take_part_equally() -> None:
    plan = schedule(10, 0.3)
    counts = [0] * 10
    for round in range(1000):
        for client in plan.participants(0, round):
            counts[client] += 1
    # 300 each, with deviation sqrt(1000 * 0.3 * 0.7) = 14.5.
    assert max(abs(count - 300) for count in counts) < 60


def test_what_the_server_draws_is_keyed_by_seed_and_task() -> None:
    def start(task: int, seed: int = 0) -> int:
        return int(schedule(5, 1.0, seed).server_generator(task).integers(2**62))

    assert start(1) == start(1)
    assert len({start(task, seed) for task in range(3) for seed in range(2)}) == 6
    assert start(1) == generator(0, Purpose.SERVER, task=1).integers(2**62)


@pytest.mark.parametrize(("x", "whole"), [(0.0, 0), (0.49, 0), (0.5, 1), (1.5, 2), (2.5, 3)])
def test_halves_are_rounded_up(x: float, whole: int) -> None:
    assert round_half_up(x) == whole


def test_the_rest_of_the_plan() -> None:
    plan = Schedule(num_tasks=3, rounds=2, num_clients=1, participation=1.0, seed=0)

    def rest(*position: int) -> list[tuple[int, int]]:
        return [(task, round) for task, rounds in plan.rest(position) for round in rounds]  # type: ignore[arg-type]

    everything = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert rest(0, 0) == everything
    assert rest(0, 1) == everything[1:]
    assert rest(2, 0) == everything[4:]
    assert rest(3, 0) == []
