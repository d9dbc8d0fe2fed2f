from __future__ import annotations

import itertools

from fedqcl.rng import Purpose, generator


def test_the_same_key_starts_the_same_sequence() -> None:
    first = generator(3, Purpose.BATCHES, client=1, task=2, round=0)
    again = generator(3, Purpose.BATCHES, client=1, task=2, round=0)
    assert first.random(5).tolist() == again.random(5).tolist()


def test_keys_that_differ_anywhere_start_different_sequences() -> None:
    keys = itertools.product((0, 1), Purpose, (-1, 0, 1), (-1, 0, 1), (-1, 0, 1))
    starts = [generator(s, p, client=i, task=t, round=r).integers(2**62) for s, p, i, t, r in keys]
    assert len(set(starts)) == len(starts) == 2 * len(Purpose) * 27


def test_purposes_keep_their_numbers() -> None:
    assert {p.name: p.value for p in Purpose} == {
        "CLASS_ORDER": 1,
        "VALIDATION": 2,
        "PARTITION": 3,
        "NET": 4,
        "PARTICIPATION": 5,
        "BATCHES": 6,
        "REPLAY": 7,
        "AUGMENT": 8,
        "MEMORY": 9,
        "SERVER": 10,
        "EVALUATION": 11,
        "STEPS": 12,
    }
