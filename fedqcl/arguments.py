"""What objects were made with, as far as they keep it: checked, and told in plain words, for runs made from Python."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from os import PathLike
from typing import Any

import numpy as np
from torch import Tensor

from fedqcl.errors import InputError
from fedqcl.signature import ClassHint, Parameter, class_hint, fits, parameters


def check_arguments(made: object, key: str) -> None:
    """Check what an object was made with, and the objects that it was made with, as the command line does.

    Args:
        made: keeps the arguments of its class under their names; what it does not keep, or keeps as something else than
            plain values and NumPy's numbers, is passed over.
        key: the object's key in a config file.

    Raises:
        InputError: the first value that does not fit the type or the range of its argument.
    """
    for name, parameter, value in _kept(made):
        asked = class_hint(parameter.hint)
        if asked:
            _check_object(value, asked, f"{key}.{name}")
        elif _is_plain(value) and not fits(parameter.hint, value, text=False):
            raise InputError(f"{key}.{name}: {value!r} is not accepted; give {parameter.expected()}")


def _check_object(value: Any, asked: ClassHint, key: str) -> None:
    if isinstance(value, type) and not asked.supplied:
        raise InputError(f"{key}: is the class {value.__name__}; give an object of it, {value.__name__}(...)")
    if value is not None and not isinstance(value, type):
        check_arguments(value, key)


def description(made: object, without: Collection[str] = ()) -> dict[str, Any]:
    """An object's class and what it was made with, as a config file would hold it.

    Args:
        made: as for :func:`check_arguments`.
        without: arguments to leave out.
    """
    arguments = {name: in_plain_words(value) for name, _, value in _kept(made) if name not in without}
    return {"class_path": _path(type(made)), "init_args": arguments}


def in_plain_words(value: Any) -> Any:
    """A value in numbers, words and lists; classes and functions by their path."""
    if _is_plain(value):
        return value
    if isinstance(value, list | tuple):
        return [in_plain_words(item) for item in value]
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, PathLike):
        return str(value)
    if hasattr(value, "__qualname__"):
        return _path(value)
    return description(value) if inspect.isfunction(type(value).__init__) else _path(type(value))


def _kept(made: object) -> Iterator[tuple[str, Parameter, Any]]:
    for name, parameter in (parameters(type(made)) or {}).items():
        if hasattr(made, name):
            yield name, parameter, _in_python(getattr(made, name))


def _in_python(value: Any) -> Any:
    """A value with Python's numbers in the place of NumPy's."""
    if isinstance(value, list):
        return list(map(_in_python, value))
    return value.item() if isinstance(value, np.generic) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _path(named: Any) -> str:
    return f"{named.__module__}.{named.__qualname__}"
