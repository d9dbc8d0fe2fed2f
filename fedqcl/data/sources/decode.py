"""Listing image files and decoding them in parallel threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from fedqcl.data.sources.base import reason
from fedqcl.errors import InputError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"})
"""File names that count as images, in either case."""

_THREADS = 8
_FILES_A_JOB = 64


def list_folders(folder: Path) -> list[Path]:
    """The folders in ``folder``, hidden ones left out, sorted by name."""
    return sorted(path for path in _entries(folder) if path.is_dir())


def list_images(folder: Path) -> list[Path]:
    """The image files in ``folder``, hidden ones left out, sorted by name."""
    return sorted(path for path in _entries(folder) if path.suffix.lower() in SUFFIXES)


def decode(files: Sequence[Path], channels: Literal[1, 3] = 3, size: int | None = None) -> np.ndarray:
    """Decode image files.

    Args:
        files: at least one file.
        channels: 3 for RGB (grey images are repeated), 1 for grey (colours become their luminance).
        size: height and width that every image is brought to, by resizing its shorter side and cropping the
            centre; None if all have one size already.

    Returns:
        ``[n, H, W, C]`` uint8, in the order of ``files``.

    Raises:
        InputError: a file that is missing, damaged or not 8-bit; sizes that differ; too little memory.
    """
    first = _read(files[0], channels, size)
    try:
        images = np.empty((len(files), *first.shape), dtype=np.uint8)
    except MemoryError as error:
        problem = f"{len(files)} images of {_size(first)} do not fit into memory"
        raise InputError(f"data.source.size: {problem}; choose a smaller size") from error

    def fill(start: int) -> None:
        for i in range(start, min(start + _FILES_A_JOB, len(files))):
            image = _read(files[i], channels, size)
            if image.shape != first.shape:
                raise InputError(
                    f"data.source.size: {files[0]} is {_size(first)} and {files[i]} is {_size(image)} "
                    "(width x height); set it to bring all images to one size"
                )
            images[i] = image

    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        for _ in pool.map(fill, range(0, len(files), _FILES_A_JOB)):
            pass
    return images


def _entries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed ({error.strerror})") from error


def _read(path: Path, channels: Literal[1, 3], size: int | None) -> np.ndarray:
    try:
        with Image.open(path) as file:
            if file.mode[0] in "IF":
                bits = "16 bits" if "16" in file.mode else "more than 8 bits"
                raise InputError(f"{path}: has pixels of {bits} (mode {file.mode}); convert it to 8 bits a channel")
            mode = "RGB" if channels == 3 else "L"
            image: Image.Image = file if file.mode == mode else file.convert(mode)
            if size is not None and image.size != (size, size):
                image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
            pixels = np.asarray(image)
    except InputError:
        raise
    except UnidentifiedImageError as error:
        raise InputError(f"{path}: not an image of a known format; mend or remove the file") from error
    except Exception as error:  # Pillow's decoders raise almost anything on damaged files
        raise InputError(f"{path}: cannot be decoded ({reason(error)}); mend or remove the file") from error
    return pixels.reshape(*pixels.shape[:2], channels)


def _size(image: np.ndarray) -> str:
    return f"{image.shape[1]}x{image.shape[0]}"
