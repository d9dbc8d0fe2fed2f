"""Configuration files: finding the shipped ones by name, and reading one strictly."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from fedqcl.cli.words import did_you_mean
from fedqcl.errors import InputError

EXPERIMENTS = "experiments"


def shipped_folder() -> Path:
    """Where the shipped configs lie: inside an installed package, beside it in a source checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def shipped_configs() -> list[str]:
    """Names of the shipped configs, such as ``cifar100.yaml`` or ``presets/paper.yaml``, sorted."""
    folder = shipped_folder()
    names = (path.relative_to(folder) for path in folder.rglob("*.yaml"))
    return sorted(name.as_posix() for name in names if name.parts[0] != EXPERIMENTS)


def shipped_experiments() -> list[str]:
    """Names of the shipped experiments, such as ``e7-V``, in the order of their numbers."""
    names = [path.stem for path in (shipped_folder() / EXPERIMENTS).glob("*.yaml")]
    return sorted(names, key=lambda name: (len(name.partition("-")[0]), name))


def find_experiment(name: str) -> Path:
    """The file of an experiment: a path that exists, else a shipped one, whose number is enough: ``e7``.

    Raises:
        InputError: there is no such file.
    """
    shipped = shipped_experiments()
    if Path(name).is_file():
        return Path(name)
    for known in shipped:
        if name.lower().removesuffix(".yaml") in (known.lower(), known.partition("-")[0]):
            return shipped_folder() / EXPERIMENTS / f"{known}.yaml"
    raise InputError(
        f"{name}: there is no such experiment; {did_you_mean(name, shipped)}shipped ones: {', '.join(shipped)}"
    )


def read_experiment(file: Path) -> dict[str, Any]:
    """Read an experiment; a file that its ``also`` names, from its own folder on, is read in the place of the name.

    Raises:
        InputError: as for :func:`read_config`.
    """
    content = read_config(file)
    if isinstance(content.get("also"), str):
        content |= read_config(file.parent / content["also"])
    return content


def find_config(name: str) -> Path:
    """The file that ``--config name`` means: a path that exists, else a shipped config; ``.yaml`` may be left out.

    Raises:
        InputError: there is no such file.
    """
    shipped = shipped_configs()
    known = f"shipped configs: {', '.join(name for name in shipped if '/' not in name)}, and presets"
    if not name:
        raise InputError(f"config: has no value; give a file, or one of the {known}")
    for folder in (Path(), shipped_folder()):
        for candidate in (folder / name, folder / f"{name}.yaml"):
            if candidate.is_file():
                return candidate
    raise InputError(f"config: there is no file {name}; {did_you_mean(name, shipped)}{known}")


def read_config(path: Path) -> dict[str, Any]:
    """Read a YAML file of nested mappings.

    Raises:
        InputError: not readable, not YAML, not a mapping, or a key given twice.
    """
    try:
        with path.open(encoding="utf-8") as file:
            content = yaml.load(file, _StrictLoader)
    except OSError as error:
        raise InputError(f"config: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"config: {path} is not a UTF-8 text file") from None
    except yaml.YAMLError as error:
        raise InputError(f"config: {path}, {_where_and_what(error)}") from None
    if not isinstance(content, dict):
        raise InputError(f"config: {path} holds no options; write `key: value` lines, such as `seed_everything: 0`")
    return content


class _StrictLoader(yaml.SafeLoader):
    """A SafeLoader that refuses a key given twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _where_and_what(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not YAML"
    return f"line {mark.line + 1}: {problem}" if mark else problem
