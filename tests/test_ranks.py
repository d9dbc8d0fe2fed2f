"""The same seed gives the same run on any number of CPU ranks, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedqcl.run.folder import RunFolder
from fedqcl.schedule import Schedule
from tests.helpers.process import run_python
from tests.helpers.ranks import CASES
from tests.helpers.toy import same

DEVICES = (1, 2, 3, 5)


@pytest.fixture(scope="module", params=CASES)
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """One run for each number of ranks, of which there may be as many as clients."""
    counts = [count for count in DEVICES if count <= CASES[request.param]["data"]["num_clients"]]
    root = tmp_path_factory.mktemp(request.param)
    result = run_python("-m", "tests.helpers.ranks", str(root), request.param, *map(str, counts))
    assert result.returncode == 0, result.stderr
    return [RunFolder(root / f"{request.param}-{count}") for count in counts]


def test_the_runs_were_on_as_many_ranks(folders: list[RunFolder]) -> None:
    ranks = [int(folder.read_summary()["device"].split()[0]) for folder in folders]
    assert ranks == list(DEVICES[: len(ranks)])


def test_weights(folders: list[RunFolder]) -> None:
    first, *others = (torch.load(folder.checkpoint)["net"] for folder in folders)
    assert all(same(first, other) for other in others)
    assert len({folder.checkpoint.read_bytes() for folder in folders}) == 1


def test_tables(folders: list[RunFolder]) -> None:
    assert len({folder.clients.read_bytes() for folder in folders}) == 1

    def rounds(folder: RunFolder) -> str:
        return repr([{k: v for k, v in row.items() if k != "seconds"} for row in folder.read_metrics()])

    assert len({rounds(folder) for folder in folders}) == 1


@pytest.mark.parametrize("key", ["accuracy_matrix", "queue_matrix", "forgetting", "client_steps"])
def test_summary(folders: list[RunFolder], key: str) -> None:
    first, *others = (folder.read_summary()[key] for folder in folders)
    assert first is not None
    assert all(other == first for other in others)


def test_the_problem_is_one_where_ranks_could_differ(folders: list[RunFolder]) -> None:
    rows = folders[0].read_clients()
    clients = {int(row["client"]) for row in rows}
    assert np.nanmax([row["queue_1"] for row in rows]) > 0
    if len(clients) == 3:
        idle = [(row["task"], row["client"]) for row in rows if row["steps"] == 0]
        assert idle == [(2, 0), (2, 0), (3, 1), (3, 1)]
        return
    if len(clients) == 4:
        assert all(row["steps"] > 0 for row in rows)
        return
    assert any(row["samples"] == 0 for row in rows)
    schedule = Schedule(3, 2, 5, 0.4, seed=1)
    for row in rows:
        chosen = row["client"] in schedule.participants(int(row["task"]) - 1, int(row["round"]) - 1)
        assert (row["steps"] > 0) == (chosen and row["samples"] > 0)
