"""Arrays in a NumPy ``.npz`` file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from fedqcl.data.sources.base import ImageSet, Source, reason, shortlist, slug
from fedqcl.errors import InputError

_KEYS = ("x_train", "y_train", "x_test", "y_test")
_LAYOUTS = "expected [n, H, W], [n, H, W, C] or [n, C, H, W] with 1 or 3 channels C"
_VALUES = "expected whole numbers 0..255, or floats in [0, 1]"
_INT64_MAX = np.iinfo(np.int64).max
_EXACT_FLOAT = 2.0**53
_BLOCK = 1024


class Npz(Source):
    """Images and labels in an ``.npz`` file with arrays ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Images are ``[n, H, W, C]``, ``[n, C, H, W]`` or ``[n, H, W]`` with 1 or 3 channels: whole numbers 0..255
    of any dtype, or floats in [0, 1], which are multiplied by 255; both splits are read alike. Labels are any
    integers, or floats that are whole numbers, ``[n]`` or ``[n, 1]``. An optional array ``names`` of strings
    gives label ``i`` the name at position ``i``.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser()

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return slug(self.path.stem)

    def load(self) -> ImageSet:
        """Read the arrays: ``[n, H, W, C]`` uint8, labels as they are."""
        arrays = self._read()
        images = {key: self._channels_last(key, arrays[key]) for key in ("x_train", "x_test")}
        x_train, x_test = self._to_bytes(images)
        y_train, y_test = (self._labels(key, arrays[key]) for key in ("y_train", "y_test"))
        for split, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
            if len(x) != len(y):
                raise self._error(f"x_{split}", f"{len(x)} images, but y_{split} has {len(y)} labels")
        names = self._names(arrays["names"], np.union1d(y_train, y_test)) if "names" in arrays else {}
        return ImageSet.of(x_train, y_train, x_test, y_test, names=names, where=str(self.path))

    def _error(self, key: str, problem: str) -> InputError:
        return InputError(f"{self.path}: {key}: {problem}")

    def _read(self) -> dict[str, np.ndarray]:
        if not self.path.is_file():
            raise InputError(f"data.source.path: there is no file {self.path}")
        try:
            with self.path.open("rb") as file:
                if not zipfile.is_zipfile(file):
                    raise ValueError("not a zip archive, or its end is missing")
            archive = np.load(self.path, allow_pickle=False)
        except Exception as error:  # damaged files raise almost anything
            raise InputError(f"{self.path}: not a whole .npz file ({reason(error)})") from error
        with archive:
            missing = [key for key in _KEYS if key not in archive.files]
            if missing:
                found = shortlist(archive.files, most=10) or "nothing"
                raise InputError(f"{self.path}: lacks {', '.join(missing)}; the file has {found}")
            return {key: self._read_array(archive, key) for key in (*_KEYS, "names") if key in archive.files}

    def _read_array(self, archive: np.lib.npyio.NpzFile, key: str) -> np.ndarray:
        try:
            return np.asarray(archive[key])
        except Exception as error:  # as above
            raise self._error(key, f"cannot be read ({reason(error)}); write plain arrays of numbers") from error

    def _channels_last(self, key: str, x: np.ndarray) -> np.ndarray:
        if x.dtype.kind not in "uif":
            raise self._error(key, f"dtype {x.dtype}; {_VALUES}")
        if x.ndim not in (3, 4) or x.size == 0:
            raise self._error(key, f"shape {list(x.shape)}; {_LAYOUTS}")
        if x.ndim == 3:
            return x[..., np.newaxis]
        first, last = x.shape[1] in (1, 3), x.shape[3] in (1, 3)
        if not first and not last:
            raise self._error(key, f"shape {list(x.shape)}; {_LAYOUTS}")
        if first and last:
            raise self._error(key, f"shape {list(x.shape)} may have its channels first or last; use wider images")
        return x if last else x.transpose(0, 2, 3, 1)

    def _to_bytes(self, images: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Bring the images of both splits, read alike, to uint8 0..255."""
        if all(x.dtype == np.uint8 for x in images.values()):
            return list(images.values())
        for key, x in images.items():
            low, high = float(x.min()), float(x.max())
            if not (low >= 0 and high <= 255):
                found = "NaN" if np.isnan(low) else f"values from {low:g} to {high:g}"
                raise self._error(key, f"{found}; {_VALUES}")
        are_floats = any(x.dtype.kind == "f" for x in images.values())
        if are_floats and all(x.max() <= 1 for x in images.values()):
            return [_scale(x, 255) for x in images.values()]
        for key, x in images.items():
            if not all((block == np.rint(block)).all() for block in _blocks(x)):
                raise self._error(key, f"fractions, in a file with values above 1; {_VALUES}")
        return [_scale(x, 1) for x in images.values()]

    def _labels(self, key: str, y: np.ndarray) -> np.ndarray:
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.dtype.kind not in "uif" or y.ndim != 1:
            raise self._error(key, f"{y.dtype} of shape {list(y.shape)}; expected one integer an image, [n]")
        if y.dtype.kind == "f" and not ((y == np.rint(y)) & (np.abs(y) <= _EXACT_FLOAT)).all():
            raise self._error(key, "floats that are not whole numbers; expected integers")
        if y.dtype.kind == "u" and (y > _INT64_MAX).any():
            raise self._error(key, f"label {y.max()}; expected at most {_INT64_MAX}")
        return y.astype(np.int64)

    def _names(self, names: np.ndarray, labels: np.ndarray) -> dict[int, str]:
        if names.dtype.kind != "U" or names.ndim != 1:
            raise self._error("names", f"{names.dtype} of shape {list(names.shape)}; expected strings [classes]")
        nameless = labels[(labels < 0) | (labels >= len(names))]
        if len(nameless):
            raise self._error("names", f"{len(names)} names, none of them for label {shortlist(nameless)}")
        return {int(label): str(names[label]) for label in labels}


def _blocks(x: np.ndarray) -> list[np.ndarray]:
    """The images a thousand at a time, so that the copies made of them stay small."""
    return [x[start : start + _BLOCK] for start in range(0, len(x), _BLOCK)]


def _scale(x: np.ndarray, factor: float) -> np.ndarray:
    return np.concatenate([np.rint(block.astype(np.float64) * factor).astype(np.uint8) for block in _blocks(x)])
