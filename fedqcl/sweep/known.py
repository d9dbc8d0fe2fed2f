"""The runs that are there, recognised by their configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedqcl.errors import InputError
from fedqcl.run.config import Complete, changes, differences
from fedqcl.run.folder import RunFolder, numbered
from fedqcl.sweep.experiment import Experiment, Planned


class KnownRuns:
    """The runs below a root, one or two folders down.

    Args:
        root: the folder of all runs.
        complete: gives a run's configuration today's defaults for what it lacks.
    """

    def __init__(self, root: Path, complete: Complete) -> None:
        self.root = root
        self._complete = complete
        self._configs: dict[Path, dict[str, Any]] = {}
        self._completed: dict[Path, dict[str, Any]] = {}

    def find(self, config: Mapping[str, Any]) -> RunFolder | None:
        """A run of this configuration: a finished one, else an unfinished one, else None.

        Args:
            config: a whole configuration, nested as in its file.
        """
        found = [RunFolder(path) for path in self._paths() if self._is(path, config)]
        return next((folder for folder in found if folder.finished), found[0] if found else None)

    def _is(self, path: Path, config: Mapping[str, Any]) -> bool:
        def complete(ran: dict[str, Any]) -> dict[str, Any]:
            if path not in self._completed:
                self._completed[path] = self._complete(ran)
            return self._completed[path]

        ran = self._config(path)
        return bool(ran) and not changes(ran, config, complete)

    def _paths(self) -> Iterator[Path]:
        for pattern in ("*/config.yaml", "*/*/config.yaml"):
            yield from (path.parent for path in sorted(self.root.glob(pattern)))

    def _config(self, path: Path) -> dict[str, Any]:
        if path not in self._configs:
            content = RunFolder(path).read_config()
            self._configs[path] = content if isinstance(content, dict) else {}
        return self._configs[path]


def same_run(config: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two whole configurations make the same run."""
    return not any(differences(other, config))


def free_name(folder: Path, name: str) -> str:
    """The name, or with ``-2``, ``-3``, ... the first that no run has."""
    return next(candidate for candidate in numbered(name) if not (folder / candidate).exists())


def mark(folder: RunFolder, experiment: Experiment, planned: Planned) -> None:
    """Note in a run's folder where in an experiment it lies, for reports; it may lie in several places of several.

    Raises:
        InputError: the note cannot be written.
    """
    try:
        notes = folder.read_places()
    except (OSError, ValueError):
        notes = {}  # each sweep that the run is of notes its place again
    places = notes.get(experiment.name, {}).get("at", [])
    at = json.loads(json.dumps(planned.at))
    notes[experiment.name] = {
        "title": experiment.title,
        "fills": experiment.fills,
        "show": experiment.show,
        "at": places if at in places else [*places, at],
    }
    try:
        folder.write_places(notes)
    except OSError as error:
        raise InputError(f"{folder.places}: cannot be written ({error.strerror})") from None
