"""Tiny ImageNet, in the layout of its official archive."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedqcl.data.sources.base import ImageSet, Source, reason, shortlist
from fedqcl.data.sources.decode import decode, list_folders, list_images
from fedqcl.data.sources.download import announce, fetch, install, require, staging, unpack
from fedqcl.errors import InputError
from fedqcl.types import Count

URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


class TinyImageNet(Source):
    """Tiny ImageNet: 200 classes of 500 training and 50 validation images, 64x64 RGB; or some of the classes.

    The classes are the wnids present in ``train``, sorted, and a label is its wnid's place among them. The
    validation images are the test images, as the official test images have no labels. The decoded images are
    kept in an ``.npz`` beside the folder, and read from there as long as the folder does not change.

    Args:
        root: the folder that holds, or gets, ``tiny-imagenet-200``. An archive ``tiny-imagenet-200.zip``
            lying there is unpacked instead of downloaded.
        download: download the images if they are not there (248 MB).
        size: height and width that the images are brought to.
    """

    def __init__(self, root: str = "data", download: bool = True, size: Count = 64) -> None:
        self.root = Path(root).expanduser()
        self.download = download
        self.size = size

    def prepare(self) -> None:
        """Download and unpack the images if they are not there, and decode them."""
        if self.download and not self._folder.is_dir():
            install(self._folder, URL, MD5, fetch, unpack)
        index = self._index()
        if self._cached("key", index) is None:
            self._decode(index)

    def load(self) -> ImageSet:
        """Read the images: ``[n, size, size, 3]`` uint8, labels ``0..K-1`` for the ``K`` classes present."""
        index = self._index()
        x = self._cached("x", index)
        if x is None:
            x = self._decode(index)
        n, y = index.num_train, index.y
        return ImageSet.of(x[:n], y[:n], x[n:], y[n:], names=index.names, where=str(self._folder))

    @property
    def _folder(self) -> Path:
        return self.root / "tiny-imagenet-200"

    @property
    def _cache(self) -> Path:
        return self.root / f"tiny-imagenet-200-{self.size}px.npz"

    def _index(self) -> _Index:
        require(self._folder)
        return _read_index(self._folder)

    def _cached(self, name: Literal["key", "x"], index: _Index) -> np.ndarray | None:
        """One of the cache's arrays; None if there is no whole cache of these very files."""
        try:
            with self._cache.open("rb") as file, np.load(file, allow_pickle=False) as cache:
                return np.asarray(cache[name]) if str(cache["key"]) == index.key else None
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            return None

    def _decode(self, index: _Index) -> np.ndarray:
        announce(f"decoding the {len(index.files)} images of {self._folder}")
        x = decode(index.files, size=self.size)
        try:
            with staging(self.root) as temporary:
                np.savez(temporary / "cache.npz", x=x, key=index.key)
                (temporary / "cache.npz").replace(self._cache)
        except (OSError, InputError) as error:  # a folder that cannot be written to only costs time
            announce(f"the decoded images are not kept for the next run: {reason(error)}")
        return x


@dataclass(frozen=True, eq=False)
class _Index:
    """What there is to decode.

    Attributes:
        files: the image files, training before test, ``[n]``.
        y: their labels, ``[n]`` int64.
        num_train: how many of them are training images.
        names: label to class name.
        key: changes when any of the files does.
    """

    files: list[Path]
    y: np.ndarray
    num_train: int
    names: dict[int, str]
    key: str


def _read_index(folder: Path) -> _Index:
    wnids = [path.name for path in list_folders(folder / "train")]
    if not wnids:
        raise InputError(f"{folder / 'train'}: holds no class folders; delete {folder} and download it again")
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    train = [(file, labels[wnid]) for wnid in wnids for file in _class_images(folder / "train" / wnid / "images")]
    test = [(file, labels[wnid]) for file, wnid in _annotations(folder / "val") if wnid in labels]
    files = [file for file, _ in train + test]
    y = np.array([label for _, label in train + test], dtype=np.int64)
    words = _words(folder / "words.txt")
    names = {label: words.get(wnid, wnid) for wnid, label in labels.items()}
    return _Index(files, y, len(train), names, _key(folder, files, y))


def _class_images(folder: Path) -> list[Path]:
    images = list_images(folder)
    if not images:
        raise InputError(f"{folder}: holds no images; put them back or remove the class's folder")
    return images


def _annotations(folder: Path) -> list[tuple[Path, str]]:
    """Every validation image with its wnid, in the order of ``val_annotations.txt``."""
    file = folder / "val_annotations.txt"
    wnids: dict[str, str] = {}
    for line in _lines(file):
        name, *fields = line.split("\t")
        if not fields or name in wnids:
            raise InputError(f"{file}: expected a new file name, a tab and a wnid, found {line[:60]!r}")
        wnids[name] = fields[0].strip()
    unlabelled = [path.name for path in list_images(folder / "images") if path.name not in wnids]
    if unlabelled:
        raise InputError(f"{file}: has no line for {shortlist(unlabelled)}; restore the official file")
    return [(folder / "images" / name, wnid) for name, wnid in wnids.items()]


def _words(file: Path) -> dict[str, str]:
    """Wnid to the first of its names; nothing if there is no such file."""
    if not file.is_file():
        return {}
    pairs = (line.split("\t", 1) for line in _lines(file) if "\t" in line)
    return {wnid: names.split(",")[0].strip() for wnid, names in pairs}


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({reason(error)}); restore the official file") from error


def _key(folder: Path, files: list[Path], y: np.ndarray) -> str:
    digest = hashlib.sha256(y.tobytes())
    for file in files:
        try:
            status = file.stat()
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror}); restore the file") from error
        digest.update(f"{file.relative_to(folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
