from __future__ import annotations

from urllib.error import URLError

import numpy as np
import pytest
from jsonargparse import ArgumentParser

from fedqcl.data.sources import Images, ImageSet, Source
from fedqcl.data.sources.base import reason, shortlist, slug, stratified_split
from fedqcl.errors import InputError


def images(n: int, shape: tuple[int, ...] = (4, 5, 3)) -> np.ndarray:
    return np.arange(n * int(np.prod(shape))).reshape(n, *shape).astype(np.uint8)


def test_image_set_keeps_label_ids_and_makes_arrays_contiguous() -> None:
    x = images(3).transpose(0, 2, 1, 3)
    assert not x.flags.c_contiguous
    data = ImageSet.of(x, np.array([900, 3, 17], np.int16), x[:1], np.array([17], np.uint8), names={3: "three"})
    assert data.train.x.flags.c_contiguous
    assert data.train.x.shape == (3, 5, 4, 3)
    np.testing.assert_array_equal(data.train.x, x)
    assert data.train.y.dtype == data.test.y.dtype == np.int64
    assert data.train.y.tolist() == [900, 3, 17]
    assert [data.name(label) for label in (3, 17, 900)] == ["three", "17", "900"]
    assert len(data.train) == 3
    assert isinstance(data.test, Images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": images(2).astype(np.float32)}, r"training images are float32 of shape \[2, 4, 5, 3\]"),
        ({"x_test": images(2)[..., 0]}, r"test images are uint8 of shape \[2, 4, 5\]; expected uint8 \[n, H, W, C\]"),
        ({"x_train": images(2, (0, 5, 3))}, r"training images are uint8 of shape \[2, 0, 5, 3\]"),
        ({"y_train": np.array([1.0, 2.0])}, r"training labels are float64 of shape \[2\]; expected integers \[2\]"),
        ({"y_test": np.array([1])}, r"test labels are int64 of shape \[1\]; expected integers \[2\]"),
        ({"x_test": images(0), "y_test": np.array([], np.int64)}, "test images: there are none"),
        ({"x_test": images(2, (4, 5, 1))}, r"training images are \[4, 5, 3\] and test images \[4, 5, 1\]"),
        ({"y_test": np.array([8, 9])}, "test classes without a training image: eight, 9;"),
    ],
)
def test_image_set_refuses(change: dict[str, np.ndarray], message: str) -> None:
    arrays = {"x_train": images(2), "y_train": np.array([1, 2]), "x_test": images(2), "y_test": np.array([1, 2])}
    with pytest.raises(InputError, match=f"^somewhere: {message}") as raised:
        ImageSet.of(**{**arrays, **change}, names={8: "eight"}, where="somewhere")
    assert "\n" not in str(raised.value)


def test_stratified_split_takes_the_share_of_every_class() -> None:
    y = np.repeat([5, -1, 7, 8], [10, 5, 2, 1])
    train, test = stratified_split(y, 0.2)
    assert sorted([*train, *test]) == list(range(18))
    # 0.2 of 10 and of 5; at least one of two; a lone sample stays in training.
    assert [int((y[test] == label).sum()) for label in (5, -1, 7, 8)] == [2, 1, 1, 0]
    assert [int((y[train] == label).sum()) for label in (5, -1, 7, 8)] == [8, 4, 1, 1]


def test_stratified_split_leaves_one_to_train_on() -> None:
    train, test = stratified_split(np.zeros(4, np.int64), 1.0)
    assert (len(train), len(test)) == (1, 3)


def test_stratified_split_ignores_the_global_generator() -> None:
    y = np.repeat([0, 1], 50)
    first = stratified_split(y, 0.3)[1]
    np.random.seed(7)  # noqa: NPY002 - the legacy generator is the one that must not matter
    np.testing.assert_array_equal(stratified_split(y, 0.3)[1], first)


def test_slug() -> None:
    assert slug("My set (2)") == "my-set-2"
    assert slug("???") == "images"


def test_reason_is_one_line() -> None:
    assert reason(ValueError("two\n  lines")) == "two lines"
    assert reason(KeyError()) == "KeyError"
    assert reason(URLError("no route")) == "no route"


def test_shortlist_counts_the_rest() -> None:
    assert shortlist("abc") == "a, b, c"
    assert shortlist(range(7)) == "0, 1, 2, 3, 4 and 2 more"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--source=Digits", "--source.test_fraction=0.5"], "digits"),
        (["--source=CIFAR10", "--source.root=x", "--source.download=false"], "cifar10"),
        (["--source=CIFAR100", "--source.verify=false"], "cifar100"),
        (["--source=TinyImageNet", "--source.size=32"], "tinyimagenet"),
        (["--source=ImageFolder", "--source.root=my/Birds 2", "--source.channels=1"], "birds-2"),
        (["--source=Npz", "--source.path=some/Arrays.npz"], "arrays"),
    ],
)
def test_sources_are_configured_by_their_arguments(arguments: list[str], name: str) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--source", type=Source)
    assert parser.instantiate_classes(parser.parse_args(arguments)).source.name == name
