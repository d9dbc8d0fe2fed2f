from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedqcl.data.sources import Npz
from fedqcl.errors import InputError

BYTES = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), np.uint8)
BYTES[0, 0, 0, 0], BYTES[0, 0, 0, 1] = 0, 255
LABELS = np.array([17, 3, 900, 3, 17])


def write(folder: Path, **changes: Any) -> Npz:
    """Five training and two test images, with some arrays changed, or left out if None."""
    arrays = {"x_train": BYTES, "y_train": LABELS, "x_test": BYTES[:2], "y_test": LABELS[:2], **changes}
    path = folder / "Some arrays.npz"
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return Npz(str(path))


def write_images(folder: Path, x: np.ndarray) -> Npz:
    return write(folder, x_train=x, x_test=x[:2])


def test_bytes_and_label_ids_stay_as_they_are(tmp_path: Path) -> None:
    source = write(tmp_path)
    data = source.load()
    np.testing.assert_array_equal(data.train.x, BYTES)
    np.testing.assert_array_equal(data.test.x, BYTES[:2])
    assert data.train.y.tolist() == [17, 3, 900, 3, 17]
    assert data.name(900) == "900"
    assert source.name == "some-arrays"


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.uint64, np.float16, np.float32, np.float64, ">i4"])
def test_whole_numbers_of_any_dtype(tmp_path: Path, dtype: Any) -> None:
    np.testing.assert_array_equal(write_images(tmp_path, BYTES.astype(dtype)).load().train.x, BYTES)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_up_to_one_are_multiplied(tmp_path: Path, dtype: Any) -> None:
    np.testing.assert_array_equal(write_images(tmp_path, (BYTES / 255).astype(dtype)).load().train.x, BYTES)


def test_black_and_white_floats_are_multiplied_and_integers_are_not(tmp_path: Path) -> None:
    x = (BYTES > 127).astype(np.float32)
    np.testing.assert_array_equal(write_images(tmp_path, x).load().train.x, x * 255)
    np.testing.assert_array_equal(write_images(tmp_path, x.astype(np.int8)).load().train.x, x)


def test_both_splits_are_read_alike(tmp_path: Path) -> None:
    dark = np.minimum(BYTES[:2], 1).astype(np.float32)  # alone it would look like the range [0, 1]
    data = write(tmp_path, x_train=BYTES.astype(np.float32), x_test=dark).load()
    np.testing.assert_array_equal(data.test.x, dark)
    mixed = write(tmp_path, x_train=(BYTES > 127).astype(np.float32), x_test=(BYTES[:2] > 127).astype(np.int8))
    np.testing.assert_array_equal(mixed.load().test.x, (BYTES[:2] > 127) * 255)
    with pytest.raises(InputError, match=r"x_test: fractions, in a file with values above 1"):
        write(tmp_path, x_test=BYTES[:2] / 255).load()


def test_channels_first_and_missing_channels(tmp_path: Path) -> None:
    np.testing.assert_array_equal(write_images(tmp_path, BYTES.transpose(0, 3, 1, 2)).load().train.x, BYTES)
    grey = BYTES[..., :1]
    for x in (grey, grey[..., 0], grey.transpose(0, 3, 1, 2)):
        np.testing.assert_array_equal(write_images(tmp_path, x).load().train.x, grey)


def test_fortran_order(tmp_path: Path) -> None:
    data = write_images(tmp_path, np.asfortranarray(BYTES)).load()
    np.testing.assert_array_equal(data.train.x, BYTES)
    assert data.train.x.flags.c_contiguous


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.float32])
def test_labels_of_any_dtype(tmp_path: Path, dtype: Any) -> None:
    y = np.array([17, 3, 90, 3, 17]).astype(dtype)
    assert write(tmp_path, y_train=y, y_test=y[:2]).load().train.y.tolist() == [17, 3, 90, 3, 17]
    assert write(tmp_path, y_train=y[:, None], y_test=y[:2]).load().train.y.dtype == np.int64


def test_names(tmp_path: Path) -> None:
    y = np.array([0, 2, 2, 0, 2])
    data = write(tmp_path, y_train=y, y_test=y[:2], names=np.array(["ant", "bee", "cat"])).load()
    assert data.names == {0: "ant", 2: "cat"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, "lacks x_test, y_test; the file has x_train, y_train"),
        ({"x_train": np.zeros((5, 48), np.uint8)}, r"x_train: shape \[5, 48\]; expected \[n, H, W\], \[n, H, W, C\]"),
        ({"x_train": np.zeros((5, 6, 7, 4), np.uint8)}, r"x_train: shape \[5, 6, 7, 4\]; expected"),
        ({"x_train": np.zeros((5, 3, 7, 3), np.uint8)}, r"x_train: shape \[5, 3, 7, 3\] may have its channels first"),
        ({"x_train": np.zeros((0, 6, 7, 3), np.uint8)}, r"x_train: shape \[0, 6, 7, 3\]; expected"),
        ({"x_train": BYTES > 9}, r"x_train: dtype bool; expected whole numbers 0\.\.255, or floats in \[0, 1\]"),
        ({"x_train": BYTES.astype(complex)}, "x_train: dtype complex128"),
        ({"x_train": BYTES.astype(str)}, "x_train: dtype <U"),
        ({"x_train": BYTES.astype(object)}, "x_train: cannot be read .*allow_pickle=False"),
        ({"x_train": BYTES.astype(np.int16) - 1}, "x_train: values from -1 to 254; expected"),
        ({"x_train": BYTES.astype(np.int16) + 1}, "x_train: values from 1 to 256; expected"),
        ({"x_test": np.where(BYTES[:2] == 0, np.nan, BYTES[:2] / 255)}, "x_test: NaN; expected"),
        ({"x_test": np.where(BYTES[:2] == 0, np.inf, BYTES[:2] / 255)}, "x_test: values from .* to inf; expected"),
        ({"x_train": (BYTES / 255 - 0.5) / 0.25, "x_test": BYTES[:2] / 255}, "x_train: values from -2 to 2; expected"),
        ({"x_train": BYTES * 0.9}, "x_train: fractions, in a file with values above 1; expected"),
        ({"x_test": BYTES[:2, :5]}, r"training images are \[6, 7, 3\] and test images \[5, 7, 3\]"),
        ({"y_train": LABELS[:4]}, "x_train: 5 images, but y_train has 4 labels"),
        ({"y_train": np.eye(5, dtype=int)}, r"y_train: int64 of shape \[5, 5\]; expected one integer an image"),
        ({"y_train": LABELS + 0.5}, "y_train: floats that are not whole numbers"),
        ({"y_train": np.where(LABELS == 3, np.nan, LABELS)}, "y_train: floats that are not whole numbers"),
        ({"y_train": np.where(LABELS == 3, np.inf, LABELS)}, "y_train: floats that are not whole numbers"),
        ({"y_train": LABELS.astype(np.uint64) + 2**63}, r"y_train: label 92\d+; expected at most 92\d+"),
        ({"y_train": LABELS.astype(str)}, r"y_train: <U21 of shape \[5\]; expected one integer"),
        ({"y_train": LABELS > 3}, r"y_train: bool of shape \[5\]; expected one integer"),
        ({"y_test": np.array([3, 4])}, "test classes without a training image: 4;"),
        ({"names": np.array(["ant", "bee"])}, "names: 2 names, none of them for label 3, 17, 900"),
        ({"names": np.arange(901)}, r"names: int64 of shape \[901\]; expected strings"),
    ],
)
def test_what_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"Some arrays\.npz: {message}") as raised:
        write(tmp_path, **changes).load()
    assert "\n" not in str(raised.value)


def test_a_missing_file_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^data\.source\.path: there is no file .*nothing\.npz"):
        Npz(str(tmp_path / "nothing.npz")).load()
    with pytest.raises(InputError, match=r"^data\.source\.path: there is no file"):
        Npz(str(tmp_path)).load()


@pytest.mark.parametrize("content", ["", "text", "npy", "half"])
def test_a_file_of_another_kind(tmp_path: Path, content: str) -> None:
    path = write(tmp_path).path
    if content == "npy":
        with path.open("wb") as file:
            np.save(file, BYTES)
    else:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if content == "half" else content.encode())
    with pytest.raises(InputError, match=r"Some arrays\.npz: not a whole \.npz file \("):
        Npz(str(path)).load()


def test_a_damaged_array_is_named(tmp_path: Path) -> None:
    path = write(tmp_path).path
    content = bytearray(path.read_bytes())
    content[content.index(BYTES[2].tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x_train: cannot be read \(Bad CRC-32"):
        Npz(str(path)).load()


def test_members_that_are_not_arrays(tmp_path: Path) -> None:
    path = tmp_path / "Some arrays.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(key, "text")
    with pytest.raises(InputError, match=r"x_train: "):
        Npz(str(path)).load()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "text")
    with pytest.raises(InputError, match=r"lacks x_train, y_train, x_test, y_test; the file has readme\.txt"):
        Npz(str(path)).load()
