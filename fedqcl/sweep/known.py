"""The runs that are there, recognised by their configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedqcl.run.config import differences
from fedqcl.run.folder import RunFolder
from fedqcl.sweep.experiment import Experiment, Planned


class KnownRuns:
    """The runs below a root, one or two folders down.

    Args:
        root: the folder of all runs.
        complete: reads a run's configuration with today's defaults for the options that it lacks, which are newer than
            the run; empty if it cannot be read any more.
    """

    def __init__(self, root: Path, complete: Callable[[Path], dict[str, Any]]) -> None:
        self.root = root
        self._complete = complete
        self._configs: dict[Path, dict[str, Any]] = {}

    def find(self, config: Mapping[str, Any]) -> RunFolder | None:
        """A run of this configuration: a finished one, else an unfinished one, else None.

        Args:
            config: a whole configuration, nested as in its file.
        """
        found = [RunFolder(path) for path in self._paths() if self._is(path, config)]
        return next((folder for folder in found if folder.finished), found[0] if found else None)

    def _is(self, path: Path, config: Mapping[str, Any]) -> bool:
        ran = self._config(path)
        if same_run(config, ran, lacking=True) and not same_run(config, ran):
            ran = self._configs[path] = self._complete(path / "config.yaml")
        return same_run(config, ran)

    def _paths(self) -> Iterator[Path]:
        for pattern in ("*/config.yaml", "*/*/config.yaml"):
            yield from (path.parent for path in sorted(self.root.glob(pattern)))

    def _config(self, path: Path) -> dict[str, Any]:
        if path not in self._configs:
            content = RunFolder(path).read_config()
            self._configs[path] = content if isinstance(content, dict) else {}
        return self._configs[path]


def same_run(config: Mapping[str, Any], ran: Mapping[str, Any], lacking: bool = False) -> bool:
    """Whether a configuration would only repeat a run.

    Args:
        config: what is asked for.
        ran: the run's.
        lacking: pass over options that the run's lacks.
    """
    return bool(ran) and not any(differences(ran, config, lacking=lacking))


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
