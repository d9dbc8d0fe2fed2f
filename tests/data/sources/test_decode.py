from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedqcl.data.sources.decode import decode, list_folders, list_images
from fedqcl.errors import InputError


def save(path: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(path)
    return path


def test_listings_are_sorted_and_skip_what_is_hidden_or_no_image(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpeg", ".c.png", "notes.txt", "d.webp"):
        (tmp_path / name).touch()
    for name in ("two", "one", ".git"):
        (tmp_path / name).mkdir()
    assert [path.name for path in list_images(tmp_path)] == ["a.jpeg", "b.PNG", "d.webp"]
    assert [path.name for path in list_folders(tmp_path)] == ["one", "two"]


def test_listing_a_missing_folder_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: cannot be listed \(No such file"):
        list_images(tmp_path / "nowhere")


def test_decode_keeps_pixels_and_order(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (150, 3, 4, 3), np.uint8)  # more than one job
    files = [save(tmp_path / f"{i}.png", image) for i, image in enumerate(pixels)]
    np.testing.assert_array_equal(decode(files), pixels)


def test_decode_repeats_grey_and_takes_the_luminance_of_colours(tmp_path: Path) -> None:
    grey = save(tmp_path / "grey.png", np.array([[10, 200]], np.uint8))
    assert decode([grey]).tolist() == [[[[10, 10, 10], [200, 200, 200]]]]
    red = save(tmp_path / "red.png", np.array([[[255, 0, 0]]], np.uint8))
    assert decode([red], channels=1).tolist() == [[[[76]]]]  # 0.299 x 255


def test_decode_reads_palettes_and_transparency_as_colours(tmp_path: Path) -> None:
    Image.new("P", (1, 1), 1).save(tmp_path / "p.gif")
    clear = save(tmp_path / "rgba.png", np.array([[[9, 8, 7, 255]]], np.uint8))
    assert decode([clear, tmp_path / "p.gif"]).shape == (2, 1, 1, 3)
    assert decode([clear]).tolist() == [[[[9, 8, 7]]]]


def test_decode_resizes_the_shorter_side_and_crops_the_centre(tmp_path: Path) -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 90  # the middle third is all that stays
    assert (decode([save(tmp_path / "wide.png", wide)], size=4) == 90).all()
    tall = save(tmp_path / "tall.png", wide.transpose(1, 0, 2).copy())
    assert (decode([tall], size=4) == 90).all()
    # Halved: the triangle weighs rows 1/8, 3/8, 3/8, 1/8, and one of the outer ones is black. 90 x 7/8 = 78.75.
    assert (decode([tall], size=2) == 79).all()


def test_decode_refuses_unequal_sizes_with_both(tmp_path: Path) -> None:
    files = [
        save(tmp_path / "a.png", np.zeros((2, 3, 3), np.uint8)),
        save(tmp_path / "b.png", np.zeros((5, 4, 3), np.uint8)),
    ]
    with pytest.raises(InputError, match=r"^data\.source\.size: .*a\.png is 3x2 and .*b\.png is 4x5"):
        decode(files)
    assert decode(files, size=2).shape == (2, 2, 2, 3)


@pytest.mark.parametrize("position", [0, 100])
@pytest.mark.parametrize("fault", ["truncated", "text", "empty", "missing"])
def test_decode_names_the_damaged_file(tmp_path: Path, fault: str, position: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    files = [save(tmp_path / f"{i:03}.jpg", pixels) for i in range(110)]
    whole = files[position].read_bytes()
    content = {"truncated": whole[: len(whole) // 2], "text": b"not an image", "empty": b""}
    files[position].unlink()
    if fault != "missing":
        files[position].write_bytes(content[fault])
    with pytest.raises(InputError, match=rf"{position:03}\.jpg: .*; mend or remove the file$") as raised:
        decode(files)
    assert "\n" not in str(raised.value)


def test_decode_refuses_more_than_eight_bits(tmp_path: Path) -> None:
    plain = save(tmp_path / "plain.png", np.array([[40]], np.uint8))
    deep = save(tmp_path / "deep.png", np.array([[40000]], np.uint16))
    real = save(tmp_path / "real.tif", np.array([[0.5]], np.float32))
    said = r"deep\.png: has pixels of (16|more than 8) bits \(mode I(;16)?\); convert it to 8 bits a channel$"
    with pytest.raises(InputError, match=said):
        decode([plain, deep])
    with pytest.raises(
        InputError, match=r"real\.tif: has pixels of more than 8 bits \(mode F\); convert it to 8 bits a "
    ):
        decode([real])


def test_decode_says_when_memory_does_not_suffice(tmp_path: Path) -> None:
    file = save(tmp_path / "a.png", np.zeros((2, 2, 3), np.uint8))

    class Endless(list[Path]):
        def __len__(self) -> int:
            return 2**55

    with pytest.raises(InputError, match=r"^data\.source\.size: .* images of 2x2 do not fit into memory"):
        decode(Endless([file]))
