"""A run's configuration as its file holds it: read, and compared with another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

import yaml

# Of the trainer's options, those that say where and how a run is computed and shown, and what becomes of it when
# something fails; the others decide what comes out.
_WHERE_AND_HOW = ("accelerator", "devices", "num_nodes", "executor", "concurrency", "deterministic", "start_method")
_SHOWN_AND_KEPT = ("root", "name", "logger", "console", "checkpoint_every", "grace", "timeout")
_WHEN_SOMETHING_FAILS = ("on_client_error", "on_nonfinite")
CIRCUMSTANCES = frozenset((*_WHERE_AND_HOW, *_SHOWN_AND_KEPT, *_WHEN_SOMETHING_FAILS))
_FREE = frozenset(f"trainer.{name}" for name in CIRCUMSTANCES)

# What experiments and reports call options.
SHORT_NAMES = {
    "method": "model.method",
    "net": "model.net",
    "lr": "model.optimizer.lr",
    "V": "model.method.V",
    "delta": "model.method.delta",
    "M": "model.method.memory",
    "weight": "model.method.weight",
    "alpha": "data.alpha",
    "scenario": "data.scenario",
    "N": "data.num_clients",
    "T": "data.tasks",
    "B": "data.batch_size",
    "R": "trainer.epochs",
    "C": "trainer.rounds",
    "seed": "seed_everything",
}

# Gives a configuration today's defaults for the options that it lacks; empty if it cannot be read any more.
Complete: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is compiled


def parse_config(text: str) -> Any:
    """What a config file holds; an empty mapping if it is empty.

    Raises:
        yaml.YAMLError: it is no YAML.
    """
    return yaml.load(text, _Loader) or {}


def changes(then: Any, now: Any, complete: Complete, free: Collection[str] = ()) -> list[str]:
    """What a run of one configuration has that another would not repeat: the keys, with both values.

    Args:
        then: the run's. Options that it lacks are newer than the run, which had what is now their default.
        now: what is asked for.
        complete: finds these defaults.
        free: the dotted keys of what may differ.
    """
    found = list(differences(then, now, free=free))
    if found and not any(differences(then, now, lacking=True, free=free)):
        completed = complete(then)
        return list(differences(completed, now, free=free)) if completed else found
    return found


def differences(then: Any, now: Any, key: str = "", lacking: bool = False, free: Collection[str] = ()) -> Iterator[str]:
    """The keys in which two configurations differ, where that changes results, with both values.

    Args:
        then: one configuration, nested as in its file.
        now: the other.
        key: the dotted key of both, if they are parts.
        lacking: pass over options that only one of them has, rather than take them for null in the other.
        free: the dotted keys of what may differ besides the trainer's circumstances.
    """
    if key in _FREE or key in free:
        return
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*then, *now]):
            if not lacking or (name in then and name in now):
                inside = key if name in ("class_path", "init_args") else f"{key}.{name}".lstrip(".")
                yield from differences(then.get(name), now.get(name), inside, lacking, free)
    elif then != now:
        yield f"{key} {_short(then)}, now {_short(now)}"


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."
