"""A folder of the user's own images, one sub-folder a class."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from fedqcl.data.sources.base import ImageSet, Source, shortlist, slug, stratified_split
from fedqcl.data.sources.decode import decode, list_folders, list_images
from fedqcl.errors import InputError
from fedqcl.types import Count, Share


class ImageFolder(Source):
    """Images in ``root/train/CLASS/`` and ``root/test/CLASS/``, or all in ``root/CLASS/`` and split here.

    The classes are the folder names, sorted, and a label is a class's place among them. Hidden files and other
    files than images are passed over.

    Args:
        root: the folder.
        size: height and width that the images are brought to, by resizing the shorter side and cropping the
            centre; null if all have one size already.
        channels: 3 for RGB, 1 for grey.
        train: the training images' folder in ``root``. Where ``root`` has neither ``train`` nor ``test`` nor
            ``val``, its own folders are the classes.
        test: the test images' folder in ``root``; null takes ``test``, or else ``val``.
        test_fraction: share of every class kept for testing where ``root``'s own folders are the classes; the
            split is the same in every run.
    """

    def __init__(
        self,
        root: str,
        size: Count | None = None,
        channels: Literal[1, 3] = 3,
        train: str = "train",
        test: str | None = None,
        test_fraction: Share = 0.2,
    ) -> None:
        self.root = Path(root).expanduser()
        self.size = size
        self.channels = channels
        self.train = train
        self.test = test
        self.test_fraction = test_fraction

    @property
    def name(self) -> str:
        """The folder's name."""
        return slug(self.root.resolve().name)

    def load(self) -> ImageSet:
        """Read the images: ``[n, H, W, channels]`` uint8, labels ``0..K-1`` for the ``K`` class folders."""
        if not self.root.is_dir():
            raise InputError(f"data.source.root: there is no folder {self.root}")
        train, test = self._given_splits() if self._is_split() else self._own_split()
        names = sorted(train)
        pairs = [(file, y) for split in (train, test) for y, name in enumerate(names) for file in split.get(name, [])]
        x = decode([file for file, _ in pairs], self.channels, self.size)
        y = np.array([label for _, label in pairs], dtype=np.int64)
        n = sum(map(len, train.values()))
        return ImageSet.of(x[:n], y[:n], x[n:], y[n:], names=dict(enumerate(names)), where=str(self.root))

    def _is_split(self) -> bool:
        """Whether the folder has training and test images apart; if not, its own folders are the classes."""
        if (self.root / self.train).is_dir():
            return True
        is_expected = self.train != "train" or self.test is not None
        if is_expected or any((self.root / name).is_dir() for name in ("test", "val")):
            raise InputError(f"data.source.train: {self.root} has no folder {self.train}")
        return False

    def _given_splits(self) -> tuple[_Classes, _Classes]:
        folder = self._test_folder()
        train, test = _list_classes(self.root / self.train), _list_classes(folder)
        strange = sorted(test.keys() - train.keys())
        if strange:
            raise InputError(
                f"{folder}: has classes that {self.train} lacks: {shortlist(strange)}; "
                "remove them or add training images"
            )
        return train, test

    def _own_split(self) -> tuple[_Classes, _Classes]:
        train, test = {}, {}
        for name, files in _list_classes(self.root).items():
            kept, held_out = stratified_split(np.zeros(len(files), dtype=np.int64), self.test_fraction)
            train[name] = [files[i] for i in kept]
            test[name] = [files[i] for i in held_out]
        return train, test

    def _test_folder(self) -> Path:
        names = ["test", "val"] if self.test is None else [self.test]
        for name in names:
            if (self.root / name).is_dir():
                return self.root / name
        raise InputError(
            f"data.source.test: {self.root} has no folder {' or '.join(names)}; add it, "
            f"or make {self.root / self.train} the root to have its images split"
        )


_Classes = dict[str, list[Path]]
"""Class name to the class's image files; sorted by name."""


def _list_classes(folder: Path) -> _Classes:
    classes = {path.name: list_images(path) for path in list_folders(folder)}
    if not classes:
        raise InputError(f"{folder}: holds no class folders; put each class's images into a folder of its own")
    for name, files in classes.items():
        if not files:
            raise InputError(f"{folder / name}: holds no images; put the class's images there or remove it")
    return classes
