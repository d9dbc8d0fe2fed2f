"""Damaged files of every source: one line that names the file or its key, or images that pass the checks."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedqcl.data.sources import CIFAR10, CIFAR100, ImageFolder, Npz, TinyImageNet
from fedqcl.data.sources.base import Source
from fedqcl.errors import InputError

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise(6, 6, 3)).save(path)


def npz(root: Path) -> Source:
    labels = np.arange(4) % 2
    np.savez(root / "a.npz", x_train=noise(4, 5, 5), y_train=labels, x_test=noise(4, 5, 5), y_test=labels)
    return Npz(str(root / "a.npz"))


def folder(root: Path) -> Source:
    for number in range(8):
        picture(root / "photos" / f"class {number % 2}" / f"{number}.png")
    return ImageFolder(str(root / "photos"))


def cifar(root: Path, kind: type[CIFAR10], files: list[str], meta: str, label: str, names: str) -> Source:
    source = kind(str(root), download=False, verify=False)
    source._folder.mkdir()
    for name in files:
        content = {"data": noise(2, 3072), label: [0, 1]}
        (source._folder / name).write_bytes(pickle.dumps(content, protocol=2))
    (source._folder / meta).write_bytes(pickle.dumps({names: ["a", "b"]}, protocol=2))
    return source


def cifar10(root: Path) -> Source:
    files = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return cifar(root, CIFAR10, files, "batches.meta", "labels", "label_names")


def cifar100(root: Path) -> Source:
    return cifar(root, CIFAR100, ["train", "test"], "meta", "fine_labels", "fine_label_names")


def tiny(root: Path) -> Source:
    base = root / "tiny-imagenet-200"
    for wnid in ("n01", "n02"):
        picture(base / "train" / wnid / "images" / f"{wnid}_0.JPEG")
        picture(base / "val" / "images" / f"val_{wnid}.JPEG")
    rows = [f"val_{wnid}.JPEG\t{wnid}\t0\t0\t5\t5\n" for wnid in ("n01", "n02")]
    (base / "val" / "val_annotations.txt").write_text("".join(rows))
    return TinyImageNet(str(root), download=False, size=6)


SOURCES: dict[str, Callable[[Path], Source]] = {
    "npz": npz,
    "folder": folder,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "tiny": tiny,
}


def damage(file: Path, rng: random.Random) -> None:
    """Take a file away, cut it, or change some of its bytes."""
    content = bytearray(file.read_bytes())
    kind = rng.choice(["gone", "cut", "changed", "changed", "changed", "other"])
    if kind == "gone":
        file.unlink()
        return
    if kind == "cut":
        del content[rng.randrange(len(content)) :]
    elif kind == "other":
        content = bytearray(b"something else entirely")
    for _ in range(rng.randint(1, 8) if kind == "changed" else 0):
        content[rng.randrange(len(content))] = rng.randrange(256)
    file.write_bytes(content)


@pytest.mark.parametrize("name", SOURCES)
def test_a_damaged_file(name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    SOURCES[name](whole).load()
    rng, refused = random.Random(0), 0
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    for number in range(40):
        root = tmp_path / str(number)
        shutil.copytree(whole, root)
        damage(root / rng.choice(files), rng)
        message = refusal(source_in(name, root))
        refused += bool(message)
        assert not message or str(root) in message or message.startswith("data.source.")
        assert "\n" not in message
    assert refused > 5


def refusal(source: Source) -> str:
    """Why a source refuses its files; empty if it loads them, and then they are as promised."""
    try:
        images = source.load()
    except InputError as error:
        return str(error)
    assert images.train.x.dtype == images.test.x.dtype == np.uint8
    assert len(images.train.x) == len(images.train.y)
    assert set(images.test.y) <= set(images.train.y)
    return ""


def source_in(name: str, root: Path) -> Source:
    """The source whose files lie in a folder already."""
    made: dict[str, Callable[[], Source]] = {
        "npz": lambda: Npz(str(root / "a.npz")),
        "folder": lambda: ImageFolder(str(root / "photos")),
        "cifar10": lambda: CIFAR10(str(root), download=False, verify=False),
        "cifar100": lambda: CIFAR100(str(root), download=False, verify=False),
        "tiny": lambda: TinyImageNet(str(root), download=False, size=6),
    }
    return made[name]()
