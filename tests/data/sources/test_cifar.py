from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torchvision.datasets

from fedqcl.data.sources import CIFAR10, CIFAR100
from fedqcl.errors import InputError

TRAIN = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), np.uint8)
TEST = np.random.default_rng(1).integers(0, 256, (2, 3, 32, 32), np.uint8)
LABELS = [3, 0, 99, 3, 99, 0]


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small CIFAR-100 in torchvision's layout, made the official one for the test's duration."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    files = {
        "train": {"data": TRAIN.reshape(6, -1), "fine_labels": LABELS, "filenames": ["x.png"] * 6},
        "test": {"data": TEST.reshape(2, -1), "fine_labels": [99, 0]},
        "meta": {"fine_label_names": [f"class {i}" for i in range(100)]},
    }
    for name, content in files.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    official = torchvision.datasets.CIFAR100
    monkeypatch.setattr(official, "train_list", [["train", md5(folder / "train")]])
    monkeypatch.setattr(official, "test_list", [["test", md5(folder / "test")]])
    monkeypatch.setattr(official, "meta", {**official.meta, "md5": md5(folder / "meta")})
    monkeypatch.setattr(official, "url", "http://127.0.0.1:9/cifar-100-python.tar.gz")
    return tmp_path


@pytest.fixture
def archive(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as an archive only."""
    folder, file = root / "cifar-100-python", tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(folder, folder.name)
    for part in folder.iterdir():
        part.unlink()
    folder.rmdir()
    monkeypatch.setattr(torchvision.datasets.CIFAR100, "tgz_md5", md5(file))
    return file


def test_reads_images_labels_and_names(root: Path) -> None:
    source = CIFAR100(str(root), download=False)
    source.prepare()
    data = source.load()
    np.testing.assert_array_equal(data.train.x, TRAIN.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(data.test.x, TEST.transpose(0, 2, 3, 1))
    assert data.train.y.tolist() == LABELS
    assert data.test.y.tolist() == [99, 0]
    assert data.name(99) == "class 99"


def test_reads_the_five_batches_of_cifar10_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for i in range(5):
        batch = {b"data": TRAIN[i : i + 1].reshape(1, -1), b"labels": [i]}  # as Python 3 writes them
        (folder / f"data_batch_{i + 1}").write_bytes(pickle.dumps(batch))
    (folder / "test_batch").write_bytes(pickle.dumps({b"data": TEST.reshape(2, -1), b"labels": [4, 0]}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["plane", "car", "bird", "cat", "deer"]}))
    data = CIFAR10(str(tmp_path), verify=False).load()
    np.testing.assert_array_equal(data.train.x, TRAIN[:5].transpose(0, 2, 3, 1))
    assert data.train.y.tolist() == [0, 1, 2, 3, 4]
    assert data.name(2) == "bird"


def test_prepare_unpacks_an_archive_that_is_there(archive: Path) -> None:
    source = CIFAR100(str(archive.parent))
    source.prepare()
    np.testing.assert_array_equal(source.load().test.x, TEST.transpose(0, 2, 3, 1))
    assert sorted(path.name for path in archive.parent.iterdir()) == ["cifar-100-python", archive.name]


def test_prepare_downloads_through_torchvision(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def copy(url: str, root: str, filename: str, md5: str) -> None:
        assert url == torchvision.datasets.CIFAR100.url
        assert md5 == torchvision.datasets.CIFAR100.tgz_md5
        print("chatter")
        (Path(root) / filename).write_bytes(archive.read_bytes())

    monkeypatch.setattr("torchvision.datasets.utils.download_url", copy)
    source = CIFAR100(str(tmp_path / "new"))
    source.prepare()
    assert source.load().train.y.tolist() == LABELS
    assert capsys.readouterr().out == ""


def test_no_network_is_one_line(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^data\.source\.download: no cifar-100-python\.tar\.gz from 127\.0\.0\.1 \("):
        CIFAR100(str(tmp_path / "new")).prepare()


def test_missing_without_download_names_the_key(tmp_path: Path) -> None:
    source = CIFAR100(str(tmp_path), download=False)
    for step in (source.prepare, source.load):
        with pytest.raises(InputError, match=r"^data\.source\.root: .* has no folder cifar-100-python;"):
            step()


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_a_file_that_is_not_official_is_refused(root: Path, name: str) -> None:
    file = root / "cifar-100-python" / name
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(InputError, match=rf"cifar-100-python/{name}: .*delete .* and download it again, or set"):
        CIFAR100(str(root)).load()
    assert len(CIFAR100(str(root), verify=False).load().train) == 6


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("evil",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Ran out of input"),
        (pickle.dumps({"data": TRAIN.reshape(6, -1)})[:5000], "truncated"),
        (pickle.dumps([1, 2]), "'list' object has no attribute 'items'"),
        (pickle.dumps({}), "no data and no fine_labels"),
        (pickle.dumps({"data": TRAIN, "fine_labels": LABELS}), r"data is not uint8 \[n, 3072\]"),
        (pickle.dumps({"data": TRAIN.reshape(6, -1), "fine_labels": [1]}), "fine_labels are not 6 integers"),
        (pickle.dumps({"data": TRAIN.reshape(6, -1), "fine_labels": [0.5] * 6}), "fine_labels are not 6 integers"),
        (pickle.dumps(Evil()), "it asks for .*mkdir, which images do not need"),
    ],
)
def test_a_damaged_pickle_is_one_line_and_runs_no_code(
    root: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.chdir(root)
    (root / "cifar-100-python" / "train").write_bytes(content)
    with pytest.raises(InputError, match=rf"cifar-100-python/train: damaged \(.*{message}.*\); delete") as raised:
        CIFAR100(str(root), verify=False).load()
    assert "\n" not in str(raised.value)
    assert not (root / "evil").exists()
