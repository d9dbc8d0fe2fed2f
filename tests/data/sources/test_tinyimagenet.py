from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedqcl.data.sources import TinyImageNet, tinyimagenet
from fedqcl.errors import InputError

GREY = {"n01": (10, 20), "n02": (30, 40), "n05": (50, 60)}
"""Wnid to the grey levels of its training images."""


def save(path: Path, level: int, size: int = 64, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (size, size), level if mode == "L" else (level, level, level)).save(path, "JPEG", quality=100)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three classes of two training and one validation image, and a validation image of a class left out."""
    folder = tmp_path / "root" / "tiny-imagenet-200"
    for wnid, levels in GREY.items():
        for i, level in enumerate(levels):
            save(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", level, mode="L" if i else "RGB")
    for i, level in enumerate((200, 210, 220, 230)):
        save(folder / "val" / "images" / f"val_{i}.JPEG", level)
    lines = [f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62\n" for i, wnid in enumerate(("n05", "n99", "n01", "n02"))]
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn05\tbell frog\nn99\tother\n")
    return tmp_path / "root"


def test_reads_the_classes_present(root: Path) -> None:
    source = TinyImageNet(str(root), download=False)
    source.prepare()
    data = source.load()
    assert data.train.x.shape == (6, 64, 64, 3)
    assert data.train.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.train.x[:, 5, 7].tolist() == [[level] * 3 for level in (10, 20, 30, 40, 50, 60)]
    assert data.test.y.tolist() == [2, 0, 1]  # the image of n99 is left out
    assert data.test.x[:, 0, 0, 0].tolist() == [200, 220, 230]
    assert [data.name(label) for label in range(3)] == ["goldfish", "n02", "bell frog"]


def test_size_resizes_and_has_its_own_cache(root: Path) -> None:
    assert TinyImageNet(str(root)).load().train.x.shape == (6, 64, 64, 3)
    assert TinyImageNet(str(root), size=16).load().test.x.shape == (3, 16, 16, 3)


def test_the_cache_is_read_until_the_folder_changes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = TinyImageNet(str(root))
    source.prepare()
    assert "decoding the 9 images" in capsys.readouterr().err
    source.prepare()
    first = source.load()
    assert capsys.readouterr().err == ""
    images = root / "tiny-imagenet-200" / "train" / "n02" / "images"
    save(images / "n02_9.JPEG", 70)
    second = source.load()
    assert "decoding the 10 images" in capsys.readouterr().err
    assert (len(first.train), len(second.train)) == (6, 7)
    status = (images / "n02_0.JPEG").stat()
    save(images / "n02_0.JPEG", 99)  # an image replaced: as many files as before
    os.utime(images / "n02_0.JPEG", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert source.load().train.x[2, 0, 0, 0] == 99


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file"])
def test_a_damaged_cache_is_made_again(root: Path, content: bytes) -> None:
    cache = root / "tiny-imagenet-200-64px.npz"
    cache.write_bytes(content)
    source = TinyImageNet(str(root))
    source.prepare()
    assert len(source.load().train) == 6
    assert len(cache.read_bytes()) > 9 * 64 * 64 * 3


def test_a_folder_that_cannot_be_written_is_read_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    assert len(TinyImageNet(str(root)).load().train) == 6
    assert "not kept for the next run" in capsys.readouterr().err


def test_downloads_and_unpacks(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "tiny-imagenet-200"), "zip", root, "tiny-imagenet-200"))
    monkeypatch.setattr(tinyimagenet, "URL", archive.as_uri())
    monkeypatch.setattr(tinyimagenet, "MD5", hashlib.md5(archive.read_bytes()).hexdigest())
    source = TinyImageNet(str(tmp_path / "new"))
    source.prepare()
    assert source.load().train.y.tolist() == [0, 0, 1, 1, 2, 2]
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["tiny-imagenet-200", "tiny-imagenet-200-64px.npz"]


def test_missing_without_download(tmp_path: Path) -> None:
    source = TinyImageNet(str(tmp_path), download=False)
    for step in (source.prepare, source.load):
        with pytest.raises(InputError, match=r"^data\.source\.root: .* has no folder tiny-imagenet-200;"):
            step()


def test_a_damaged_image_is_named(root: Path) -> None:
    file = root / "tiny-imagenet-200" / "train" / "n02" / "images" / "n02_1.JPEG"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(InputError, match=r"n02_1\.JPEG: .*; mend or remove the file"):
        TinyImageNet(str(root)).prepare()
    assert not (root / "tiny-imagenet-200-64px.npz").exists()


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("val/val_annotations.txt", None, r"val_annotations\.txt: cannot be read"),
        ("val/val_annotations.txt", b"\xff\xfe", r"val_annotations\.txt: cannot be read"),
        ("val/val_annotations.txt", b"val_0.JPEG n01\n", r"expected a new file name, a tab and a wnid, found 'val_0"),
        ("val/val_annotations.txt", b"a\tn01\na\tn01\n", r"expected a new file name, a tab and a wnid, found 'a"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn01\n", r"no line for val_1\.JPEG, val_2\.JPEG, val_3\.JPEG;"),
        ("val/images/val_0.JPEG", None, r"val_0\.JPEG: cannot be read"),
        ("train/n01/images/n01_0.JPEG", b"text", r"n01_0\.JPEG: not an image"),
    ],
)
def test_a_damaged_folder_is_one_line(root: Path, path: str, content: bytes | None, message: str) -> None:
    file = root / "tiny-imagenet-200" / path
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        TinyImageNet(str(root)).load()
    assert "\n" not in str(raised.value)


def test_classes_without_images(root: Path) -> None:
    folder = root / "tiny-imagenet-200" / "train"
    shutil.rmtree(folder / "n02" / "images")
    (folder / "n02" / "images").mkdir()
    with pytest.raises(InputError, match=r"n02/images: holds no images"):
        TinyImageNet(str(root)).load()
    shutil.rmtree(folder)
    folder.mkdir()
    with pytest.raises(InputError, match=r"train: holds no class folders"):
        TinyImageNet(str(root)).load()


def test_no_validation_image_of_the_classes_present(root: Path) -> None:
    for wnid in ("n01", "n02"):
        shutil.rmtree(root / "tiny-imagenet-200" / "train" / wnid)
    annotations = root / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    annotations.write_text(annotations.read_text().replace("n05", "n01"))
    with pytest.raises(InputError, match=r"tiny-imagenet-200: test images: there are none"):
        TinyImageNet(str(root)).load()


def test_pixels_survive_the_cache(root: Path) -> None:
    decoded, cached = TinyImageNet(str(root)).load(), TinyImageNet(str(root)).load()
    np.testing.assert_array_equal(decoded.train.x, cached.train.x)
    np.testing.assert_array_equal(decoded.test.x, cached.test.x)
