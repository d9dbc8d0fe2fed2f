"""A trained global model in a file."""

from __future__ import annotations

import zipfile
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn

from fedqcl.checkpoint.saving import save
from fedqcl.errors import InputError
from fedqcl.parts import Spec

# What reading raises of a file that is none of ours, or damaged.
UNREADABLE = (
    OSError, EOFError, RuntimeError, UnpicklingError, zipfile.BadZipFile, LookupError, TypeError, AttributeError,
)  # fmt: skip
_OWN = "leave --config and other options out, as the run has its own"


def save_model(path: Path, net: nn.Module, spec: Spec, labels: list[int]) -> None:
    """Write a trained global model: its weights and the problem they are for, loadable without running code.

    Args:
        path: where to.
        net: the global model.
        spec: the problem.
        labels: the label id of each output column, ``[K]``.
    """
    weights = {name: value.cpu().contiguous() for name, value in net.state_dict().items()}
    # Beside and renamed, so that there is never a part of a model under its name.
    temporary = path.with_name(f".{path.name}")
    save({"net": weights, "problem": describe_problem(spec, labels)}, temporary)
    temporary.replace(path)


def load_model(path: str, net: nn.Module, spec: Spec, labels: list[int]) -> None:
    """Load a trained global model into a net.

    Args:
        path: a run folder, or the ``model.ckpt`` in it.
        net: takes the weights.
        spec: the problem the net was made for.
        labels: the label id of each output column, ``[K]``.

    Raises:
        InputError: no such file, not a model of ours, or one for another problem or net.
    """
    file = Path(path, "model.ckpt") if Path(path).is_dir() else Path(path)
    wanted = describe_problem(spec, labels)
    try:
        with zipfile.ZipFile(file) as archive:  # PyTorch does not look at the checksums
            whole = archive.testzip() is None
        saved: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True) if whole else {}
        found = {key: saved.get("problem", {})[key] for key in wanted}
        shapes = {name: value.shape for name, value in saved["net"].items()}
    except FileNotFoundError:
        raise InputError(f"ckpt_path: {file} does not exist; a finished run's folder holds model.ckpt") from None
    except UNREADABLE:
        raise InputError(f"ckpt_path: {file} is no model that fedqcl wrote, or is damaged") from None
    for key, value in wanted.items():
        if found[key] != value:
            raise InputError(f"ckpt_path: {file} was trained on {key} {found[key]}, and the data have {value}; {_OWN}")
    if shapes != {name: value.shape for name, value in net.state_dict().items()}:
        made = type(net).__name__
        raise InputError(f"ckpt_path: {file} holds another net than {made} as model.net makes it; {_OWN}")
    net.load_state_dict(saved["net"])


def describe_problem(spec: Spec, labels: list[int]) -> dict[str, Any]:
    """A problem in plain numbers, lists and words."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(spec).items()} | {"labels": labels}
