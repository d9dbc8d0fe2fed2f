from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dashboards import wandb_views
from fedqcl.run import WandbLogger
from tests.run.fake_run import accuracy_matrix, run_info, run_records, run_summary

ROOT = Path(__file__).parents[2]
needs_workspaces = pytest.mark.usefixtures("offline")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is none, and no server to ask."""
    pytest.importorskip("wandb_workspaces", reason="wandb-workspaces is not installed")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")


def specification(view: Any) -> dict[str, Any]:
    """What would be sent."""
    content: dict[str, Any] = json.loads(view._to_model().model_dump_json(by_alias=True))
    return content


def test_importing_it_needs_nothing_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    monkeypatch.delitem(sys.modules, "dashboards.wandb_views")
    __import__("dashboards.wandb_views")


def test_its_panels_show_what_is_logged(tmp_path: Path) -> None:
    """Every metric is one that a run logs, in a round, at a task or at its end."""
    logged: set[str] = set()
    logger = WandbLogger(mode="disabled")
    logger.start(run_info(), tmp_path)
    records = list(run_records())
    for record in records:
        logged |= logger._round_data(record).keys()
    logged |= {"task/average_accuracy", "task/forgetting", "task/accuracy_matrix", "task/queue_heatmap"}
    logged |= run_summary(records, wall_seconds=1.0).keys()
    assert accuracy_matrix(records)
    tables = (wandb_views.OVER_ROUNDS, wandb_views.OVER_TASKS, wandb_views.FINAL, wandb_views.PICTURES)
    assert {metric for table in tables for metric in table.values()} <= logged
    assert {name.partition("/")[0] for name in logged} >= {"acc", "queue"}


@needs_workspaces
def test_a_workspace_groups_a_sweep_s_runs_by_options_and_by_what_they_are_tested_on() -> None:
    content = specification(wandb_views.workspace("me", "fedqcl", "e7-V", ["model.method.init_args.V"]))
    section = content["spec"]["section"] if "spec" in content else content["section"]
    (runs,) = section["runSets"]
    assert runs["filters"]["filters"] == [
        {"key": {"section": "run", "name": "group"}, "op": "=", "value": "e7-V", "disabled": False}
    ]
    assert runs["grouping"] == [
        {"section": "config", "name": "data.value.source.class_path"},
        {"section": "config", "name": "model.value.method.init_args.V"},
        {"section": "config", "name": "data.value.validation"},
    ]
    shown = section["panelBankConfig"]["sections"]
    assert [part["name"] for part in shown] == ["Outcome", "From task to task", "From round to round", "Matrices"]
    assert [len(part["panels"]) for part in shown] == [6, 2, 6, 2]


@needs_workspaces
def test_a_workspace_of_all_runs_has_no_filter() -> None:
    content = specification(wandb_views.workspace("me", "fedqcl"))
    section = content["spec"]["section"] if "spec" in content else content["section"]
    assert section["runSets"][0]["filters"]["filters"] == []


@needs_workspaces
def test_both_are_saved(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    for cls, url in ((ws.Workspace, "https://w"), (wr.Report, "https://r")):
        monkeypatch.setattr(cls, "url", property(lambda self, url=url: f"{url}/{self.entity}/{self.project}"))
        monkeypatch.setattr(cls, "save", lambda self: self)
    monkeypatch.setattr(
        sys, "argv", ["wandb_views.py", "team", "--group", "e7-V", "--project", "mine", "--by", "data.alpha"]
    )
    wandb_views.main()
    assert capsys.readouterr().out == "workspace: https://w/team/mine\nreport: https://r/team/mine\n"


@needs_workspaces
def test_a_report_has_a_grid_for_each_section() -> None:
    import wandb_workspaces.reports.v2 as wr

    made = wandb_views.report("me", "fedqcl", "e7-V")
    assert made.title == "FedQCL: e7-V"
    grids = [block for block in made.blocks if isinstance(block, wr.PanelGrid)]
    assert [len(grid.panels) for grid in grids] == [6, 2, 6, 2]
    for grid in grids:
        runs = grid.runsets[0]
        assert (runs.project, runs.filters) == ("fedqcl", "Metric('Group') = 'e7-V'")
        assert runs.groupby == [
            "config.data.source.class_path",
            "config.model.method.class_path",
            "config.data.validation",
        ]
