"""An experiment: a grid of runs, each an ordinary ``fedqcl fit``.

Its file has a ``title``, says what it ``fills`` and what a report is to ``show`` of it, and holds a ``grid``, or a list
of grids whose runs are taken together. A grid has axes, the first varying slowest. An axis is an option, by its short
name or by its dotted key, or ``config`` or ``preset``, which are files; it has a list of choices, or a mapping of each
choice to the options that go with it, files among them. An axis of another name has such a mapping only. What goes with
choices of several axes is listed under ``also``: ``when`` all these are met, ``give`` these options, unless an axis has
them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeAlias

import yaml

from fedqcl.errors import InputError
from fedqcl.report.views import parse_view
from fedqcl.run.config import SHORT_NAMES

FILES = {"config": "{}", "preset": "presets/{}"}
BASE = "{config}"  # in the name of a preset that there is one of for each config
_KEYS = ("title", "fills", "grid", "also", "show")
_NAME_OF = {option: name for name, option in SHORT_NAMES.items()}
# Options that a sweep gives its runs itself.
_OWN = ("trainer.root", "trainer.name", "ckpt_path")

Options: TypeAlias = dict[str, Any]
Axis: TypeAlias = "dict[Any, Options]"


@dataclass(frozen=True)
class Planned:
    """One run of an experiment.

    Attributes:
        name: its folder's name.
        at: where in the grid it lies, the choice by axis.
        configs: its config files, the later one wins.
        options: other options by dotted key.
    """

    name: str
    at: dict[str, Any]
    configs: tuple[str, ...]
    options: Options

    def words(self) -> list[str]:
        """What follows ``fedqcl fit``."""
        files = [f"--config={config}" for config in self.configs]
        return files + [f"--{key}={_text(value)}" for key, value in self.options.items()]


class Experiment:
    """A grid of runs.

    Args:
        name: the experiment's name.
        content: what its file holds.
        overrides: ``KEY=VALUE``. ``VALUE`` may be several, with commas between. An axis gets these choices, but each of
            several grids only those that it has, unless none has them. Another option becomes an axis if there are
            several, and else is given to every run.

    Raises:
        InputError: a file or an override that does not fit together.

    Example:
        >>> content = {"grid": {"seed": [0, 1, 2], "config": ["quickstart"], "V": [10, 100]}}
        >>> runs = Experiment("e7", content, overrides=["seed=0", "R=1"]).runs()
        >>> [run.name for run in runs]
        ['quickstart-V10-seed0', 'quickstart-V100-seed0']
        >>> runs[0].words()
        ['--config=quickstart', '--seed_everything=0', '--model.method.V=10', '--trainer.epochs=1']
    """

    def __init__(self, name: str, content: Mapping[str, Any], overrides: Iterable[str] = ()) -> None:
        self.name = name
        for key in content:
            if key not in _KEYS:
                raise InputError(f"{name}: there is no key {key}; known: {', '.join(_KEYS)}")
        self.title = str(content.get("title") or name)
        self.fills = str(content.get("fills") or "")
        grid = content.get("grid")
        self._grids = [_grid(name, one) for one in (grid if isinstance(grid, list) and grid else [grid])]
        self._axes = list(dict.fromkeys([*itertools.chain(*self._grids), *SHORT_NAMES, *FILES]))
        also = content.get("also") or []
        self._also = [_condition(name, one, self._axes) for one in (also if isinstance(also, list) else [also])]
        self._fixed: Options = {}
        to_show = list(itertools.chain(*self._grids))
        for override in overrides:
            self._override(*_split(override))
        # An override may add an axis, or a single choice; one that it leaves out is no mistake.
        to_show += [*itertools.chain(*self._grids), *(_NAME_OF.get(option, option) for option in self._fixed)]
        self.show = _views(name, content.get("show") or ["table"], to_show)

    def _override(self, key: str, values: list[Any]) -> None:
        key = _NAME_OF.get(key, key)
        holders = [grid for grid in self._grids if key in grid]
        if holders:
            self._choose(holders, key, [_choice("override", key, value) for value in values])
            return
        if key not in SHORT_NAMES | FILES and "." not in key:
            known = ", ".join(self._axes)
            raise InputError(f"override: there is no option {key}; give a dotted key or one of {known}")
        if len(values) > 1 or key in FILES:
            for grid in self._grids:
                grid[key] = {_choice("override", key, value): {} for value in values}
        else:
            self._fixed[SHORT_NAMES.get(key, key)] = values[0]

    def _choose(self, holders: list[dict[str, Axis]], key: str, values: list[Any]) -> None:
        """Give each grid those of the choices that it has, and those that none has; leave it out if that is nothing."""
        known = [set(map(str, grid[key])) for grid in holders]
        new = {str(value) for value in values}.difference(*known)
        for grid, has in zip(holders, known, strict=True):
            grid[key] = {value: _linked(key, grid[key], value) for value in values if str(value) in has | new}
        self._grids = [grid for grid in self._grids if grid.get(key, True)]

    def runs(self) -> list[Planned]:
        """All runs in order; equal ones of several grids once.

        Raises:
            InputError: two different runs have one name.
        """
        runs: dict[str, Planned] = {}
        for run in itertools.chain.from_iterable(map(self._expand, self._grids)):
            if runs.setdefault(run.name, run) != run:
                raise InputError(f"{self.name}: two different runs are called {run.name}; name their choices apart")
        return list(runs.values())

    def _expand(self, grid: Mapping[str, Axis]) -> Iterator[Planned]:
        for choices in itertools.product(*(axis.items() for axis in grid.values())):
            at = {axis: value for axis, (value, _) in zip(grid, choices, strict=True)}
            yield self._planned(at, [linked for _, linked in choices])

    def _planned(self, at: Mapping[str, Any], linked: Sequence[Options]) -> Planned:
        options: Options = {}
        files = [(axis, str(at[axis])) for axis in FILES if axis in at]
        where = {**at, **{axis: PurePath(file.removesuffix(f"/{BASE}")).stem for axis, file in files}}
        for given in [*linked, *(give for when, give in self._also if when.items() <= where.items())]:
            options |= {key: value for key, value in given.items() if key not in FILES}
            files += [(kind, given[kind]) for kind in FILES if kind in given]
        base = str(where.get("config", ""))
        configs = tuple(FILES[kind].format(file.replace(BASE, base)) for kind, file in files)
        options |= {SHORT_NAMES.get(axis, axis): value for axis, value in at.items() if _is_option(axis)} | self._fixed
        for key in _OWN:
            if key in options:
                raise InputError(f"{self.name}: {key} is the sweep's own; --root says where runs are kept")
        return Planned(_name(where), where, configs, options)


def _grid(experiment: str, axes: Any) -> dict[str, Axis]:
    if not isinstance(axes, Mapping) or not axes:
        raise InputError(f"{experiment}: grid must hold axes, such as `seed: [0, 1, 2]`")
    grid: dict[str, Axis] = {}
    for axis, choices in axes.items():
        name = _NAME_OF.get(str(axis), str(axis))
        if name in grid:
            raise InputError(f"{experiment}: grid has {name} twice, once as {SHORT_NAMES[name]}; leave one out")
        grid[name] = _axis(experiment, name, choices)
    return grid


def _axis(experiment: str, name: str, choices: Any) -> Axis:
    """The choices of an axis with the options that go with each."""
    where = f"{experiment}: grid"
    if isinstance(choices, Mapping) and choices:
        return {
            _choice(where, name, choice): _options(f"{where}.{name}.{choice}", linked)
            for choice, linked in choices.items()
        }
    if not isinstance(choices, list) or not choices:
        raise InputError(f"{where}.{name} must be a list of choices, such as [0, 1, 2]")
    if not _is_option(name) and name not in FILES:
        raise InputError(f"{where}.{name} is no option; name one, or give each choice its options")
    return {_choice(where, name, choice): {} for choice in choices}


def _options(where: str, linked: Any) -> Options:
    """Options by dotted key."""
    if linked is not None and not isinstance(linked, Mapping):
        raise InputError(f"{where} must hold the options that go with the choice, such as `{{V: 10}}`")
    return {SHORT_NAMES.get(str(key), str(key)): value for key, value in (linked or {}).items()}


def _views(experiment: str, show: Any, axes: Sequence[str]) -> list[str]:
    """The views that a report is to show, each of which there is, and each of an axis that there is."""
    if not isinstance(show, list):
        raise InputError(f"{experiment}: show must be a list of views, such as [{show}]")
    views = list(map(str, show))
    known = dict.fromkeys(["config", *axes])  # every run has a data set
    known.pop("seed", None)  # a report takes the mean over seeds
    for view in views:
        _, axis = parse_view(experiment, view)
        if axis is not None and axis not in known:
            raise InputError(f"{experiment}: show: {view}: there is no axis {axis} to show; known: {', '.join(known)}")
    return views


def _condition(experiment: str, content: Any, axes: Sequence[str]) -> tuple[dict[str, Any], Options]:
    """Choices by axis, and the options given where all of them are met."""
    parts = content if isinstance(content, Mapping) else {}
    if set(parts) != {"when", "give"} or not all(isinstance(part, Mapping) for part in parts.values()):
        raise InputError(f"{experiment}: also must hold pairs such as `{{when: {{method: ER}}, give: {{M: 200}}}}`")
    when = {_NAME_OF.get(str(axis), str(axis)): choice for axis, choice in content["when"].items()}
    for axis in when:
        if axis not in axes:
            raise InputError(f"{experiment}: also.when: there is no axis {axis}; known: {', '.join(axes)}")
    return when, _options(f"{experiment}: also.give", content["give"])


def _choice(where: str, axis: str, value: Any) -> Hashable:
    """A choice as a key; a list, such as tasks of unequal size, becomes a tuple."""
    parts = value if isinstance(value, list) else [value]
    if not all(part is None or isinstance(part, str | int | float) for part in parts):
        raise InputError(f"{where}.{axis}: {value} is no choice; give a number, a word or a list of them")
    return tuple(parts) if isinstance(value, list) else value


def _linked(key: str, axis: Axis, value: Any) -> Options:
    """The options that go with an overriding choice."""
    named = {str(known): options for known, options in axis.items()}
    if str(value) not in named and not _is_option(key) and key not in FILES:
        raise InputError(f"override: {key} has no choice {value}; known: {', '.join(named)}")
    return named.get(str(value), {})


def _split(override: str) -> tuple[str, list[Any]]:
    key, equals, text = override.partition("=")
    if not key or not equals or not text:
        raise InputError(f"override: {override!r} is not KEY=VALUE, such as seed=0 or V=10,100")
    if key in FILES:
        return key, [file.strip() for file in text.strip("[]").split(",")]
    several = text if text[0] in "[{" else f"[{text}]" if "," in text else text
    try:
        value = yaml.safe_load(several)
    except yaml.YAMLError:
        raise InputError(f"override: {text} is no value of {key}; quote it as in YAML") from None
    if value == []:
        raise InputError(f"override: {override} leaves no choice; give one or more, as in V=10,100")
    return key, value if isinstance(value, list) else [value]


def _is_option(axis: str) -> bool:
    return axis in SHORT_NAMES or "." in axis


def _name(at: Mapping[str, Any]) -> str:
    """A run's name: its choices, the seed last, a number with its axis before it."""
    parts = []
    for axis in sorted(at, key=lambda axis: axis == "seed"):
        text = _text(at[axis])
        parts.append(f"{axis.rpartition('.')[2]}{text}" if _stands_for_number(text) else text)
    return re.sub(r"[^\w.+-]+", "_", "-".join(parts))


def _stands_for_number(text: str) -> bool:
    """Whether a text is a number, ``1e5`` included, which YAML takes for text."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
