from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedqcl.checkpoint.model import load_model, save_model
from fedqcl.errors import InputError
from fedqcl.models import Net, SmallResNet
from fedqcl.parts import Spec
from tests.helpers.toy import Linear, Normed, copied, same

SPEC = Spec(channels=1, size=(4, 4), classes=(2, 2, 2))
LABELS = [0, 1, 2, 3, 4, 900]


def test_save_and_load(tmp_path: Path) -> None:
    net, other = Normed(1, 6), Normed(1, 6)
    net(torch.rand(5, 1, 4, 4))
    save_model(tmp_path / "model.ckpt", net, SPEC, LABELS)
    for path in (tmp_path, tmp_path / "model.ckpt"):
        load_model(str(path), other, SPEC, LABELS)
        assert same(copied(net), copied(other))


def test_the_file_is_plain_tensors_and_numbers(tmp_path: Path) -> None:
    save_model(tmp_path / "model.ckpt", Linear(1, 6), SPEC, LABELS)
    saved = torch.load(tmp_path / "model.ckpt", weights_only=True)
    assert saved["problem"] == {
        "channels": 1,
        "size": [4, 4],
        "classes": [2, 2, 2],
        "scenario": "task",
        "labels": LABELS,
    }
    assert all(type(value) is torch.Tensor for value in saved["net"].values())


def test_weights_are_saved_in_the_usual_layout(tmp_path: Path) -> None:
    net = SmallResNet(1, 6, width=2).to(memory_format=torch.channels_last)
    assert not all(value.is_contiguous() for value in net.state_dict().values())
    save_model(tmp_path / "model.ckpt", net, SPEC, LABELS)
    saved = torch.load(tmp_path / "model.ckpt", weights_only=True)["net"]
    assert same(saved, copied(net))
    assert all(value.is_contiguous() for value in saved.values())


def saver(net: Net, spec: Spec = SPEC, labels: list[int] = LABELS) -> Callable[[Path], None]:
    return lambda path: save_model(path, net, spec, labels)


def cut_off(path: Path) -> None:
    saver(Linear(1, 6))(path)
    path.write_bytes(path.read_bytes()[:500])


WRITERS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.touch(),
    "folder": lambda path: path.mkdir(),
    "text": lambda path: path.write_text("not a model"),
    "cut off": cut_off,
    "code": lambda path: torch.save({"net": Linear(1, 6), "problem": {}}, path),
    "number": lambda path: torch.save(5, path),
    "tensor": lambda path: torch.save(torch.zeros(3), path),
    "list": lambda path: torch.save([1], path),
    "other keys": lambda path: torch.save({"state_dict": {}}, path),
    "no weights": lambda path: torch.save({"net": 5, "problem": {}}, path),
    "weights that are none": lambda path: torch.save({"net": {"head.weight": 5}, "problem": {}}, path),
    "no problem": lambda path: torch.save({"net": Linear(1, 6).state_dict(), "problem": 5}, path),
    "half a problem": lambda path: torch.save({"net": Linear(1, 6).state_dict(), "problem": {"channels": 1}}, path),
}


def refused(folder: Path) -> str:
    """The message with which a file is refused as a model for :class:`Linear`."""
    net = Linear(1, 6)
    before = copied(net)
    with pytest.raises(InputError) as error:
        load_model(str(folder), net, SPEC, LABELS)
    assert same(copied(net), before)
    message = str(error.value)
    assert message.startswith("ckpt_path: ")
    assert "\n" not in message
    assert str(folder / "model.ckpt") in message
    return message


def test_there_is_no_file(tmp_path: Path) -> None:
    assert "does not exist; a finished run's folder holds model.ckpt" in refused(tmp_path)


class Program:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_file_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    torch.save({"net": Program(tmp_path / "made"), "problem": {}}, tmp_path / "model.ckpt")
    assert refused(tmp_path).endswith("is no model that fedqcl wrote, or is damaged")
    assert not (tmp_path / "made").exists()
    torch.load(tmp_path / "model.ckpt", weights_only=False)
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("content", WRITERS)
def test_a_file_that_is_no_model(content: str, tmp_path: Path) -> None:
    WRITERS[content](tmp_path / "model.ckpt")
    assert refused(tmp_path).endswith("is no model that fedqcl wrote, or is damaged")


@pytest.mark.parametrize(
    ("write", "difference"),
    [
        (saver(Linear(1, 8), Spec(1, (4, 4), (2, 2, 2, 2)), [*LABELS, 7, 8]), "classes [2, 2, 2, 2], and the data"),
        (saver(Linear(1, 6), Spec(1, (4, 4), (3, 3))), "classes [3, 3], and the data have [2, 2, 2]"),
        (saver(Linear(1, 6), Spec(1, (2, 8), (2, 2, 2))), "size [2, 8], and the data have [4, 4]"),
        (saver(Linear(3, 6), Spec(3, (4, 4), (2, 2, 2))), "channels 3, and the data have 1"),
        (saver(Linear(1, 6), Spec(1, (4, 4), (2, 2, 2), "class")), "scenario class, and the data have task"),
        (saver(Linear(1, 6), labels=[1, 0, 2, 3, 4, 900]), "labels [1, 0, 2, 3, 4, 900], and the data"),
    ],
)
def test_a_model_for_another_problem(write: Callable[[Path], None], difference: str, tmp_path: Path) -> None:
    write(tmp_path / "model.ckpt")
    message = refused(tmp_path)
    assert f"was trained on {difference}" in message
    assert message.endswith("; leave --config and other options out, as the run has its own")


@pytest.mark.parametrize("net", [SmallResNet(1, 6, width=2), Normed(1, 6)])
def test_the_weights_of_another_net(net: Net, tmp_path: Path) -> None:
    saver(net)(tmp_path / "model.ckpt")
    message = refused(tmp_path)
    assert "holds another net than Linear as model.net makes it; leave --config and other options out, as" in message
