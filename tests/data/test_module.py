from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from fedqcl.data import Augment, FederatedData, pool
from fedqcl.data.module import ClientShard
from fedqcl.data.sources.base import ImageSet, Source
from fedqcl.errors import InputError
from fedqcl.rng import Purpose, generator
from tests.helpers.toy import Given, Toy, toy_data

CPU = torch.device("cpu")


class Untested(Source):
    """Nine classes of images, of which the test has three."""

    def load(self) -> ImageSet:
        x, y = np.zeros((18, 2, 2, 1), np.uint8), np.arange(18) % 9
        return ImageSet.of(x, y, x[:3], y[:3])


def test_accuracies_that_mean_less_than_they_seem_to() -> None:
    assert toy_data(Toy()).cautions() == []
    data = toy_data(Untested(), tasks=[7, 1, 1], batch_size=2)
    untested, alone = data.cautions()
    assert untested == "no test images of class 3, 4, 5, 6, 7 and 1 more: left out of accuracies"
    assert alone == "only one class in task 2, 3: no image can be wrong where its task is known"
    assert len(toy_data(Untested(), tasks=[7, 1, 1], batch_size=2, scenario="class").cautions()) == 1


def test_batches_far_above_the_shards() -> None:
    """24 images of a task on three clients."""
    assert toy_data(alpha="iid", batch_size=16).cautions() == []
    (line,) = toy_data(alpha="iid", batch_size=17).cautions()
    assert line == (
        "data.batch_size: 17 is more than twice the median shard's size, 8: most of a batch is the same images again; "
        "lower it"
    )
    # The shards of clients without any images do not count.
    assert toy_data(Given(np.zeros((24, 1, 1, 1), np.uint8), [0] * 24), tasks=1, alpha=1e-9).cautions()[1:] == []


def test_any_labels_become_columns() -> None:
    data = toy_data(Toy(labels=[900, 3, 17]), tasks=[2, 1])
    assert data.spec is not None
    assert data.spec.classes == (2, 1)
    assert sorted(set(data.train.y.tolist())) == [0, 1, 2]
    assert data.class_names == ["3", "17", "900"]
    assert data.task_classes() == [["3", "17"], ["900"]]
    # Toy puts the images of 900 first, then those of 3 and of 17.
    assert data.train.y.tolist() == [2] * 12 + [0] * 12 + [1] * 12
    assert data.test.y.tolist() == [2] * 6 + [0] * 6 + [1] * 6


def test_class_order() -> None:
    data = toy_data(Toy(labels=[3, 17, 900]), tasks=3, class_order=[17, 900, 3])
    assert data.class_names == ["17", "900", "3"]
    assert data.train.y.tolist() == [2] * 12 + [0] * 12 + [1] * 12


def test_class_names() -> None:
    class Named(Source):
        def load(self) -> ImageSet:
            x, y = np.zeros((4, 2, 2, 1), np.uint8), np.array([5, 6, 7, 8])
            return ImageSet.of(x, y, x, y, names={5: "cat", 7: "dog"})

    assert toy_data(Named(), tasks=2, num_clients=1).task_classes() == [["cat", "6"], ["dog", "8"]]


def test_size_and_channels_are_the_images_own() -> None:
    spec = toy_data(Given(np.zeros((6, 28, 28, 1), np.uint8), [0, 1, 2] * 2), tasks=3).spec
    assert spec is not None
    assert (spec.channels, spec.size) == (1, (28, 28))
    spec = toy_data(Given(np.zeros((3, 4, 7, 3), np.uint8), [0, 1, 2]), tasks=3).spec
    assert spec is not None
    assert (spec.channels, spec.size) == (3, (4, 7))


@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_shards_and_held_out_images_are_all_images_once(validation: float) -> None:
    data = toy_data(validation=validation)
    dealt = [i for task in data.shards for shard in task for i in shard.tolist()]
    held_out = np.flatnonzero(data.held_out).tolist()
    assert sorted(dealt + held_out) == list(range(72))
    assert np.bincount(data.train.y[held_out], minlength=6).tolist() == [round(12 * validation)] * 6
    for task, shards in enumerate(data.shards):
        for shard in shards:
            assert (data.train.y[shard] // 2 == task).all()


def test_validation_decides_what_a_run_is_measured_on() -> None:
    assert toy_data().evaluated_on == "test"
    data = toy_data(validation=0.25)
    assert data.evaluated_on == "validation"
    x, y, _ = data.evaluation_pool(CPU, "validation").gather(torch.arange(18))
    own, own_y, _ = data.train_pool(CPU).gather(torch.from_numpy(np.flatnonzero(data.held_out)))
    assert torch.equal(x, own)
    assert torch.equal(y, own_y)
    assert len(data.evaluation_pool(CPU, "test").y) == 36


@pytest.mark.parametrize("validation", [0.9, 0.01])
def test_a_validation_share_that_leaves_nothing_is_an_input_error(validation: float) -> None:
    with pytest.raises(InputError, match=r"^data.validation: "):
        toy_data(Toy(per_class=3), validation=validation)


def test_a_seed_decides_split_and_validation() -> None:
    def picture(seed: int) -> tuple[list[list[list[int]]], list[bool]]:
        data = toy_data(validation=0.25, seed=seed)
        return [[s.tolist() for s in task] for task in data.shards], data.held_out.tolist()

    assert picture(0) == picture(0)
    assert picture(0)[0] != picture(1)[0]
    assert picture(0)[1] != picture(1)[1]


def test_setting_up_twice_changes_nothing() -> None:
    data = toy_data()
    shards = data.shards
    data.setup("fit")
    assert data.shards is shards


def test_mistakes_are_input_errors() -> None:
    for options, key in (
        ({"tasks": 7}, "data.tasks"),
        ({"class_order": [1, 2]}, "data.class_order"),
        ({"min_samples": 100}, "data.min_samples"),
    ):
        with pytest.raises(InputError, match=f"^{key}: "):
            toy_data(**options)


def test_images_come_out_normalised_by_the_training_images() -> None:
    data = toy_data(Toy(channels=3))
    x, _, _ = data.train_pool(CPU).gather(torch.arange(72))
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(x.std((0, 2, 3), correction=0), torch.ones(3), rtol=0, atol=1e-5)
    seen, _, _ = data.evaluation_pool(CPU, "test").gather(torch.arange(36))
    mean, std = (data.train.x / 255).mean((0, 1, 2)), (data.train.x / 255).std((0, 1, 2))
    np.testing.assert_allclose(seen.permute(0, 2, 3, 1), (data.test.x / 255 - mean) / std, atol=1e-5)


def test_a_flat_channel_is_only_centred() -> None:
    x = np.random.default_rng(0).integers(0, 256, (6, 2, 2, 2), np.uint8)
    x[..., 1] = 51
    seen, _, _ = toy_data(Given(x, range(6))).train_pool(CPU).gather(torch.arange(6))
    torch.testing.assert_close(seen[:, 1], torch.zeros(6, 2, 2), rtol=0, atol=1e-6)
    assert seen[:, 0].std() > 0.5


def test_only_training_images_are_padded() -> None:
    data = toy_data(augment=Augment(crop=2))
    assert data.train_pool(CPU).images.shape[1:3] == (8, 8)
    assert data.evaluation_pool(CPU, "test").images.shape[1:3] == (4, 4)


def shard(data: FederatedData, client: int, task: int) -> ClientShard:
    return ClientShard(client, task, data.shards[task][client], data.train_pool(CPU), data.seed)


def test_client_shard() -> None:
    data = toy_data(augment=Augment(crop=2))
    mine = shard(data, 1, 2)
    assert len(mine) == len(data.shards[2][1])
    x, y, columns = mine.samples(torch.tensor([60, -1, 71]))
    assert x.shape == (3, 1, 4, 4)
    assert y[[0, 2]].tolist() == [5, 5]
    assert columns[0].tolist() == [False] * 4 + [True] * 2


def test_in_the_class_incremental_scenario_a_shard_shows_the_classes_so_far() -> None:
    data = toy_data(scenario="class")
    assert data.spec is not None
    assert data.spec.scenario == "class"
    mine, first = shard(data, 1, 1), torch.tensor([0, -1])
    assert mine.samples(first)[2].tolist() == [[True] * 4 + [False] * 2] * 2
    assert mine.samples(first, newest=0)[2].tolist() == [[True] * 2 + [False] * 4] * 2
    assert mine.samples(first, newest=2)[2].tolist() == [[True] * 6] * 2


def test_the_scenario_changes_nothing_else() -> None:
    task, both = toy_data(validation=0.25), toy_data(validation=0.25, scenario="class")
    assert task.spec is not None
    assert task.spec.scenario == "task"
    assert (task.held_out == both.held_out).all()
    for a, b in zip(task.shards, both.shards, strict=True):
        assert [s.tolist() for s in a] == [s.tolist() for s in b]


def test_memory_choice_is_keyed_by_seed_client_and_task() -> None:
    data = toy_data()

    def first(client: int, task: int) -> int:
        return int(shard(data, client, task).memory_generator().integers(2**62))

    assert first(0, 0) == first(0, 0)
    assert len({first(client, task) for client in range(3) for task in range(3)}) == 9


def test_cumulative_clients_keep_what_they_had() -> None:
    plain, kept = toy_data(), toy_data(cumulative=True)
    for task in range(3):
        for client in range(3):
            own = np.concatenate([plain.shards[k][client] for k in range(task + 1)])
            assert kept.shards[task][client].tolist() == own.tolist()
    assert kept.split == plain.split
    # Task-incrementally each image competes under its own task's head.
    _, y, columns = kept.train_pool(CPU).gather(torch.from_numpy(kept.shards[2][0]), 2)
    assert columns.tolist() == [[c // 2 == int(label) // 2 for c in range(6)] for label in y]


def test_what_the_images_were_dealt_out_by_cannot_be_changed_afterwards() -> None:
    data = toy_data(tasks=[2, 4])
    data.batch_size = 7
    data.setup()
    data.tasks[0] = 3  # type: ignore[index]
    with pytest.raises(
        InputError, match=r"^data\.tasks: changed from \[2, 4\] to \[3, 4\] when .*; make a new FederatedData$"
    ):
        data.setup()


def test_equalised() -> None:
    data = toy_data(Toy(per_class=15), alpha=0.1, equalise=True)
    assert [[len(shard) for shard in task] for task in data.shards] == [[10] * 3] * 3
    assert sum(len(set(shard)) < 10 for task in data.shards for shard in task) > 0


@pytest.mark.parametrize("part", ["test", "validation"])
def test_clients_have_images_of_their_own_to_be_tested_on(part: Literal["test", "validation"]) -> None:
    data = toy_data(validation=0.5)
    shards, pool = data.evaluation_shards(part), data.evaluation_pool(CPU, part)
    assert sorted(i for task in shards for shard in task for i in shard.tolist()) == list(range(len(pool.y)))
    for task, of_task in enumerate(shards):
        assert all((pool.y[torch.from_numpy(shard)] // 2 == task).all() for shard in of_task)
    assert [len(shard) for shard in shards[0]] != [len(shard) for shard in data.shards[0]]  # a draw of its own
    equal = toy_data(validation=0.5, equalise=True).evaluation_shards(part)
    assert {len(shard) for task in equal for shard in task} == {len(pool.y) // 3 // 3}


def test_frozen_images_look_the_same_wherever_they_are_seen() -> None:
    data = toy_data(augment=Augment(crop=1, flip=True, jitter=0.3, frozen=True))
    pool, again = data.train_pool(CPU), data.train_pool(CPU)
    index = torch.arange(len(pool.y))
    seen, plain = pool.look(index), toy_data().train_pool(CPU).look(index)
    assert torch.equal(seen, again.look(index))
    changed = (seen != plain).flatten(1).any(1)
    assert changed.float().mean() > 0.9
    # They are views as fresh ones are: with the same crops and mirrors the same images.
    fresh = toy_data(augment=Augment(crop=1, flip=True, jitter=0.3)).train_pool(CPU)
    views = data.augment.draw((len(index),), generator(data.seed, Purpose.AUGMENT))
    assert torch.equal(seen, fresh.look(index, views))
    assert torch.equal(data.evaluation_pool(CPU, "test").images, toy_data().evaluation_pool(CPU, "test").images)


def test_many_images_are_frozen_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen() -> torch.Tensor:
        return toy_data(augment=Augment(crop=1, frozen=True)).train_pool(CPU).images

    at_once = seen()
    monkeypatch.setattr(pool, "FROZEN", 7)
    assert torch.equal(seen(), at_once)
