"""The runs that are there, recognised by their configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedqcl.run.folder import RunFolder
from fedqcl.run.records import DECIDING
from fedqcl.sweep.experiment import Experiment, Planned

_PARTS = ("seed_everything", "model", "data")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class KnownRuns:
    """The runs below a root, one or two folders down.

    Args:
        root: the folder of all runs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._configs: dict[Path, dict[str, Any]] = {}

    def find(self, config: Mapping[str, Any]) -> RunFolder | None:
        """A run of this configuration: a finished one, else an unfinished one, else None.

        Args:
            config: a whole configuration, nested as in its file.
        """
        found = [RunFolder(path) for path in self._paths() if same_run(config, self._config(path))]
        return next((folder for folder in found if folder.summary.exists()), found[0] if found else None)

    def _paths(self) -> Iterator[Path]:
        for pattern in ("*/config.yaml", "*/*/config.yaml"):
            yield from (path.parent for path in sorted(self.root.glob(pattern)))

    def _config(self, path: Path) -> dict[str, Any]:
        if path not in self._configs:
            try:
                content = yaml.load((path / "config.yaml").read_text(encoding="utf-8"), _Loader)
            except (OSError, yaml.YAMLError):
                content = None
            self._configs[path] = content if isinstance(content, dict) else {}
        return self._configs[path]


def same_run(config: Mapping[str, Any], ran: Mapping[str, Any]) -> bool:
    """Whether a configuration would only repeat a run.

    Args:
        config: what is asked for.
        ran: the run's; an option that it lacks is newer than the run, which had the default.
    """
    if not ran:
        return False
    trainers = ({name: (c.get("trainer") or {}).get(name) for name in DECIDING} for c in (config, ran))
    return _same(*trainers) and all(_same(config.get(part), ran.get(part)) for part in _PARTS)


def _same(asked: Any, ran: Any) -> bool:
    if isinstance(asked, Mapping) and isinstance(ran, Mapping):
        return all(_same(value, ran[key]) for key, value in asked.items() if key in ran)
    return bool(asked == ran)


def free_name(folder: Path, name: str) -> str:
    """The name, or with ``-2``, ``-3``, ... the first that no run has."""
    names = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    return next(candidate for candidate in names if not (folder / candidate).exists())


def mark(folder: RunFolder, experiment: Experiment, planned: Planned) -> None:
    """Note in a run's folder where in an experiment it lies, for reports; it may lie in several places of several."""
    notes = folder.read_places()
    places = notes.get(experiment.name, {}).get("at", [])
    at = json.loads(json.dumps(planned.at))
    notes[experiment.name] = {
        "title": experiment.title,
        "fills": experiment.fills,
        "show": experiment.show,
        "at": places if at in places else [*places, at],
    }
    folder.write_places(notes)
