"""CIFAR-10 and CIFAR-100, in the pickled layout that torchvision downloads."""

from __future__ import annotations

import io
import pickle
import socket
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedqcl.data.sources.base import ImageSet, Source, reason
from fedqcl.data.sources.download import TIMEOUT, install, require, unpack_tar
from fedqcl.errors import InputError


class CIFAR10(Source):
    """CIFAR-10: 50,000 training and 10,000 test images, 32x32 RGB, ten classes (Krizhevsky, 2009).

    torchvision knows the address, downloads and unpacks; its checksums are compared at every start.

    Args:
        root: the folder that holds, or gets, ``cifar-10-batches-py``. An archive ``cifar-10-python.tar.gz``
            lying there is unpacked instead of downloaded.
        download: download the images if they are not there (170 MB).
        verify: compare the files with the official checksums; false for a re-packed copy in the same layout.
    """

    _dataset: ClassVar[str] = "CIFAR10"
    _labels: ClassVar[str] = "labels"

    def __init__(self, root: str = "data", download: bool = True, verify: bool = True) -> None:
        self.root = Path(root).expanduser()
        self.download = download
        self.verify = verify

    def prepare(self) -> None:
        """Download and unpack the images if they are not there."""
        if self.download and not self._folder.is_dir():
            install(self._folder, self._official.url, self._official.tgz_md5, _fetch, unpack_tar)
        require(self._folder)

    def load(self) -> ImageSet:
        """Read the images: ``[n, 32, 32, 3]`` uint8, labels 0..9 (CIFAR-100: the fine ones, 0..99)."""
        require(self._folder)
        official = self._official
        if self.verify:
            self._verify([*official.train_list, *official.test_list])
            self._verify([(official.meta["filename"], official.meta["md5"])])
        x_train, y_train = self._read_images(official.train_list)
        x_test, y_test = self._read_images(official.test_list)
        listed = self._read(official.meta["filename"]).get(official.meta["key"], [])
        names = dict(enumerate(map(str, listed)))
        return ImageSet.of(x_train, y_train, x_test, y_test, names=names, where=str(self._folder))

    @property
    def _official(self) -> Any:
        """The torchvision class that knows the address, file names and checksums."""
        import torchvision.datasets

        return getattr(torchvision.datasets, self._dataset)

    @property
    def _folder(self) -> Path:
        return self.root / str(self._official.base_folder)

    def _verify(self, files: list[tuple[str, str]]) -> None:
        from torchvision.datasets.utils import check_integrity

        for name, md5 in files:
            file = self._folder / name
            if not check_integrity(str(file), md5):
                raise InputError(
                    f"{file}: missing, damaged or not the official file; delete {self._folder} and download it "
                    "again, or set data.source.verify to false if the copy is your own"
                )

    def _read_images(self, files: list[tuple[str, str]]) -> tuple[np.ndarray, np.ndarray]:
        batches = [self._read_batch(name) for name, _ in files]
        rows, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels

    def _read_batch(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        batch = self._read(name)
        missing = {"data", self._labels} - batch.keys()
        if missing:
            raise self._damaged(name, f"no {' and no '.join(sorted(missing))}")
        rows = batch["data"]
        if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.shape[1:] != (3072,):
            raise self._damaged(name, "data is not uint8 [n, 3072]")
        labels = batch[self._labels]
        if len(labels) != len(rows) or not all(type(label) is int for label in labels):
            raise self._damaged(name, f"{self._labels} are not {len(rows)} integers")
        return rows, np.array(labels, dtype=np.int64)

    def _read(self, name: str) -> dict[str, Any]:
        """One of the files; its keys are bytes or strings, depending on the Python that wrote it."""
        try:
            with (self._folder / name).open("rb") as file:
                content = _ArraysOnly(file, encoding="latin1").load()
            return {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
        except Exception as error:  # a damaged pickle raises almost anything
            raise self._damaged(name, reason(error)) from error

    def _damaged(self, name: str, problem: str) -> InputError:
        file = self._folder / name
        return InputError(f"{file}: damaged ({problem}); delete {self._folder} and download it again")


class CIFAR100(CIFAR10):
    """CIFAR-100: 50,000 training and 10,000 test images, 32x32 RGB, 100 fine classes (Krizhevsky, 2009).

    torchvision knows the address, downloads and unpacks; its checksums are compared at every start.

    Args:
        root: the folder that holds, or gets, ``cifar-100-python``. An archive ``cifar-100-python.tar.gz``
            lying there is unpacked instead of downloaded.
        download: download the images if they are not there (169 MB).
        verify: compare the files with the official checksums; false for a re-packed copy in the same layout.
    """

    _dataset: ClassVar[str] = "CIFAR100"
    _labels: ClassVar[str] = "fine_labels"


class _ArraysOnly(pickle.Unpickler):
    """Builds plain containers and arrays only, so that a foreign file cannot run code."""

    _safe: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        [
            ("_codecs", "encode"),
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy.core.numeric", "_frombuffer"),
            ("numpy._core.numeric", "_frombuffer"),
        ]
    )

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in self._safe:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which images do not need")
        return super().find_class(module, name)


def _fetch(url: str, target: Path, md5: str) -> None:
    from torchvision.datasets.utils import download_url

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)  # torchvision sets none and would wait for a silent host for ever
    try:
        with redirect_stdout(io.StringIO()):  # its progress bar is on stderr
            download_url(url, str(target.parent), target.name, md5)
    finally:
        socket.setdefaulttimeout(before)
