from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedqcl.data.sources import ImageFolder
from fedqcl.errors import InputError


def save(path: Path, level: int, size: tuple[int, int] = (4, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, level, level)).save(path)


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """Classes ant and bee, with training images apart from test images."""
    for path, level in {
        "train/ant/1.png": 1,
        "train/ant/2.bmp": 2,
        "train/bee/3.PNG": 3,
        "test/bee/4.png": 4,
    }.items():
        save(tmp_path / path, level)
    return tmp_path


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Ten images of ant and five of bee, not split."""
    for i in range(10):
        save(tmp_path / "ant" / f"{i}.png", i)
    for i in range(5):
        save(tmp_path / "bee" / f"{i}.png", 100 + i)
    return tmp_path


def test_reads_given_splits(split: Path) -> None:
    (split / "train" / "ant" / "notes.txt").touch()
    (split / "train" / "ant" / ".hidden.png").touch()
    (split / "train" / ".cache").mkdir()
    data = ImageFolder(str(split)).load()
    assert data.train.x.shape == (3, 4, 4, 3)
    assert data.train.x[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert data.train.y.tolist() == [0, 0, 1]
    assert data.test.x[:, 0, 0, 0].tolist() == [4]
    assert data.test.y.tolist() == [1]
    assert data.names == {0: "ant", 1: "bee"}


def test_grey_and_size(split: Path) -> None:
    data = ImageFolder(str(split), size=2, channels=1).load()
    assert data.train.x.shape == (3, 2, 2, 1)
    assert data.train.x[:, 0, 0, 0].tolist() == [1, 2, 3]


def test_val_stands_in_for_test(split: Path) -> None:
    (split / "test").rename(split / "val")
    assert ImageFolder(str(split)).load().test.y.tolist() == [1]


def test_folders_of_other_names(split: Path) -> None:
    (split / "train").rename(split / "learn")
    (split / "test").rename(split / "exam")
    assert len(ImageFolder(str(split), train="learn", test="exam").load().train) == 3


def test_splits_each_class_the_same_way_every_time(whole: Path) -> None:
    first, second = (ImageFolder(str(whole), test_fraction=0.4).load() for _ in range(2))
    assert np.bincount(first.train.y).tolist() == [6, 3]
    assert np.bincount(first.test.y).tolist() == [4, 2]
    np.testing.assert_array_equal(first.test.x, second.test.x)
    levels = [*first.train.x[:, 0, 0, 0].tolist(), *first.test.x[:, 0, 0, 0].tolist()]
    assert sorted(levels) == [*range(10), *range(100, 105)]
    assert all((level >= 100) == (y == 1) for level, y in zip(levels, [*first.train.y, *first.test.y], strict=True))


def test_name_is_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "My Birds").mkdir()
    monkeypatch.chdir(tmp_path / "My Birds")
    assert ImageFolder(".").name == "my-birds"


def test_unequal_sizes_name_the_key(split: Path) -> None:
    save(split / "test" / "bee" / "5.png", 5, size=(6, 3))
    with pytest.raises(InputError, match=r"^data\.source\.size: .*1\.png is 4x4 and .*5\.png is 6x3"):
        ImageFolder(str(split)).load()
    assert len(ImageFolder(str(split), size=3).load().test) == 2


def test_a_damaged_image_is_named(split: Path) -> None:
    (split / "train" / "bee" / "3.PNG").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    with pytest.raises(InputError, match=r"3\.PNG: .*; mend or remove the file"):
        ImageFolder(str(split)).load()


def test_missing_folders(split: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^data\.source\.root: there is no folder .*nowhere"):
        ImageFolder(str(tmp_path / "nowhere")).load()
    with pytest.raises(InputError, match=r"^data\.source\.train: .* has no folder learn"):
        ImageFolder(str(split), train="learn").load()
    with pytest.raises(InputError, match=r"^data\.source\.test: .* has no folder exam;"):
        ImageFolder(str(split), test="exam").load()
    (split / "test").rename(split / "exam")
    with pytest.raises(InputError, match=r"^data\.source\.test: .* has no folder test or val; add it, or make"):
        ImageFolder(str(split)).load()


@pytest.mark.parametrize("test", [None, "val"])
def test_test_images_without_training_images(whole: Path, test: str | None) -> None:
    (whole / "bee").rename(whole / "val")
    with pytest.raises(InputError, match=r"^data\.source\.train: .* has no folder train"):
        ImageFolder(str(whole), test=test).load()


def test_a_test_class_without_training_images(split: Path) -> None:
    save(split / "test" / "cat" / "1.png", 9)
    with pytest.raises(InputError, match=r"test: has classes that train lacks: cat;"):
        ImageFolder(str(split)).load()


def test_class_folders_without_images(split: Path, tmp_path: Path) -> None:
    (split / "train" / "ant" / "1.png").unlink()
    (split / "train" / "ant" / "2.bmp").unlink()
    with pytest.raises(InputError, match=r"ant: holds no images;"):
        ImageFolder(str(split)).load()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: holds no class folders;"):
        ImageFolder(str(tmp_path / "empty")).load()


def test_one_image_a_class_cannot_be_split(tmp_path: Path) -> None:
    save(tmp_path / "ant" / "1.png", 1)
    with pytest.raises(InputError, match=r"test images: there are none"):
        ImageFolder(str(tmp_path)).load()
