"""What a source of images gives, and the checks that every source's images pass."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedqcl.errors import InputError


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their labels.

    Attributes:
        x: ``[n, H, W, C]`` uint8, C-contiguous.
        y: the data set's own label ids, ``[n]`` int64: any integers.
    """

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A data set: images to train on, images to test on, and what the classes are called.

    Attributes:
        train: at least one image.
        test: at least one image, of the training images' size, with labels that occur in training.
        names: label id to class name; may lack any of them.
    """

    train: Images
    test: Images
    names: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        x_train: np.ndarray,
        y_train: np.ndarray,
        x_test: np.ndarray,
        y_test: np.ndarray,
        *,
        names: Mapping[int, str] | None = None,
        where: str = "data.source",
    ) -> ImageSet:
        """Check the arrays and put them together.

        Args:
            x_train: training images, ``[n, H, W, C]`` uint8.
            y_train: their labels, ``[n]`` integers.
            x_test: test images, ``[m, H, W, C]`` uint8.
            y_test: their labels, ``[m]`` integers.
            names: label id to class name.
            where: the key, file or folder that an error message starts with.

        Returns:
            The data set.

        Raises:
            InputError: a wrong dtype or shape, no images, sizes that differ, or test labels not in training.
        """
        names = dict(names or {})
        train = _images(x_train, y_train, f"{where}: training")
        test = _images(x_test, y_test, f"{where}: test")
        if train.x.shape[1:] != test.x.shape[1:]:
            raise InputError(
                f"{where}: training images are {list(train.x.shape[1:])} and test images "
                f"{list(test.x.shape[1:])}; make them the same height, width and channels"
            )
        strange = np.setdiff1d(test.y, train.y)
        if len(strange):
            listed = shortlist(names.get(int(label), str(label)) for label in strange)
            raise InputError(
                f"{where}: test classes without a training image: {listed}; "
                "remove their test images or add training images"
            )
        return cls(train, test, names)

    def name(self, label: int) -> str:
        """What class ``label`` is called: its name if it has one, else the label itself."""
        return self.names.get(label, str(label))


class Source(ABC):
    """Somewhere images come from. Its constructor's typed arguments are its configuration."""

    @property
    def name(self) -> str:
        """What runs on these images are called: lower-case letters, digits and hyphens."""
        return slug(type(self).__name__)

    def prepare(self) -> None:  # noqa: B027 - most sources have nothing to prepare
        """Download, unpack and decode what is missing; one process of each machine calls it before ``load``.

        Raises:
            InputError: the images are missing and cannot be downloaded, or are damaged.
        """

    @abstractmethod
    def load(self) -> ImageSet:
        """Read the images.

        Raises:
            InputError: the images are missing, damaged or not what the source expects.
        """


def slug(text: str) -> str:
    """Make a name fit for files and run names.

    Example:
        >>> slug("My set (2)")
        'my-set-2'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "images"


def reason(error: BaseException) -> str:
    """What an exception says, on one line."""
    said = getattr(error, "reason", None) or error  # urllib keeps the plain words there
    return " ".join(str(said).split()) or type(error).__name__


def shortlist(items: Iterable[object], most: int = 5) -> str:
    """List things in a message: the first few, and how many more there are."""
    listed = [str(item) for item in items]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def stratified_split(y: np.ndarray, test_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Split samples into training and test ones, every class in the same proportion and always the same way.

    A class keeps at least one sample in training and, if it has two or more, gets at least one in test.

    Args:
        y: labels, ``[n]`` integers.
        test_fraction: share of every class that goes to test, in (0, 1].

    Returns:
        Positions of the training and of the test samples, each sorted, int64; together every position once.

    Example:
        >>> [part.tolist() for part in stratified_split(np.array([0, 0, 0, 0, 7]), test_fraction=0.25)]
        [[0, 1, 3, 4], [2]]
    """
    is_test = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        count = min(max(1, round(test_fraction * len(members))), len(members) - 1)
        is_test[np.random.default_rng(0).permutation(members)[:count]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def _images(x: np.ndarray, y: np.ndarray, what: str) -> Images:
    if x.dtype != np.uint8 or x.ndim != 4 or 0 in x.shape[1:]:
        raise InputError(f"{what} images are {x.dtype} of shape {list(x.shape)}; expected uint8 [n, H, W, C]")
    if y.dtype.kind not in "iu" or y.shape != (len(x),):
        raise InputError(f"{what} labels are {y.dtype} of shape {list(y.shape)}; expected integers [{len(x)}]")
    if len(x) == 0:
        raise InputError(f"{what} images: there are none; at least one is needed")
    return Images(np.ascontiguousarray(x), np.ascontiguousarray(y, dtype=np.int64))
