"""A run's folder of which a file is damaged: ``test`` and ``validate`` work, or say so in one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedqcl.cli.main import main
from fedqcl.run import pictures
from tests.helpers.process import contained

FILES = ["config.yaml", "model.ckpt", "metrics.csv", "clients.csv", "summary.json"]
NEEDED = {"config.yaml", "model.ckpt"}


def flip(path: Path) -> None:
    """Change a bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 1]),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "flipped": flip,
    "folder": become_a_folder,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder."""
    root = tmp_path_factory.mktemp("runs")
    small = {"trainer.root": root, "trainer.name": "run", "trainer.devices": 1, "trainer.rounds": 1, "data.tasks": 2}
    words = [word for key, value in small.items() for word in (f"--{key}", str(value))]
    with contained(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "plot_run", lambda path: [])  # pictures are another test's business, and slow
        assert main(["fit", "--config", "quickstart", "-q", "--trainer.epochs", "1", *words]) == 0
    return root / "run"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file(
    whole: Path, file: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    DAMAGES[damage](run / file)
    status = main(["test" if len(damage) % 2 else "validate", "--ckpt_path", str(run), "-q"])
    out, errors = capsys.readouterr()
    assert errors.count("\n") == (status == 2), errors
    assert ("average accuracy" in out) == (status == 0)
    if (file, damage) != ("config.yaml", "flipped"):  # which may still be a config
        assert status == (2 if file in NEEDED else 0)
