"""Saves a workspace and a report in Weights & Biases that compare runs.

    pip install "fedqcl[wandb-workspaces]"
    wandb login
    python dashboards/wandb_views.py TEAM                                               # all runs of the project
    python dashboards/wandb_views.py TEAM --group e7-V --by model.method.init_args.V    # a sweep's, by what it varies

Runs on one data set that are alike in an option, the method if no other is named, are a line of their mean with the
standard deviation around it; those tested on held-out images stand apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wandb_workspaces.reports.v2 import Report
    from wandb_workspaces.workspaces import Workspace

DATASET, METHOD = "data.source.class_path", "model.method.class_path"
# Above 0, the accuracies are of images held out from training: not to be averaged with those of test images.
HELD_OUT = "data.validation"
SEED = "seed_everything"
OVER_ROUNDS = {
    "average accuracy": "cl/average_accuracy",
    "forgetting": "cl/forgetting",
    "loss": "loss",
    "Lyapunov function": "lyapunov",
}
OVER_TASKS = {
    "average accuracy after each task": "task/average_accuracy",
    "forgetting after each task": "task/forgetting",
}
FINAL = {
    "average accuracy": "average_accuracy",
    "forgetting": "forgetting",
    "last task accuracy": "last_task_accuracy",
    "seconds": "wall_seconds",
}
PICTURES = {"accuracy matrix": "task/accuracy_matrix", "queues": "task/queue_heatmap"}
# Options that the paper's experiments vary; a parallel plot of them shows what accuracy and forgetting go with.
VARIED = ("data.alpha", "model.method.init_args.V", "model.method.init_args.delta", "model.method.init_args.memory")


def sections() -> dict[str, list[Any]]:
    """Panels by section."""
    import wandb_workspaces.reports.v2 as wr

    mean = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    final = [wr.BarPlot(title=title, metrics=[metric], **mean) for title, metric in FINAL.items()]
    against = wr.ScatterPlot(
        title="accuracy against forgetting",
        x=wr.SummaryMetric("forgetting"),
        y=wr.SummaryMetric("average_accuracy"),
    )
    options = [wr.ParallelCoordinatesPlotColumn(metric=wr.Config(option)) for option in VARIED]
    outcomes = [
        wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric(name)) for name in ("forgetting", "average_accuracy")
    ]
    over_tasks = [wr.LinePlot(title=title, x="task", y=[metric], **mean) for title, metric in OVER_TASKS.items()]
    over_rounds = [wr.LinePlot(title=title, x="round", y=[metric], **mean) for title, metric in OVER_ROUNDS.items()]
    each_task = [
        wr.LinePlot(title=title, x="round", metric_regex=f"{group}/task_.*", **mean)
        for title, group in (("accuracy on each task", "acc"), ("queue of each task", "queue"))
    ]
    pictures = [wr.MediaBrowser(title=title, media_keys=[key], num_columns=3) for title, key in PICTURES.items()]
    return {
        "Outcome": [
            *final,
            against,
            wr.ParallelCoordinatesPlot(title="options and outcome", columns=[*options, *outcomes]),
        ],
        "From task to task": over_tasks,
        "From round to round": [*over_rounds, *each_task],
        "Matrices": pictures,
    }


def workspace(entity: str, project: str, group: str | None = None, by: Sequence[str] = (METHOD,)) -> Workspace:
    """A saved view of the project.

    Args:
        entity: the user or team.
        project: the project that runs are logged to.
        group: the sweep whose runs are shown; all runs if left out.
        by: options; runs that are alike in them are shown as their mean.
    """
    import wandb_workspaces.workspaces as ws

    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"FedQCL {group}" if group else "FedQCL",
        sections=[ws.Section(name=name, panels=panels, is_open=True) for name, panels in sections().items()],
        runset_settings=ws.RunsetSettings(
            filters=ws.And(ws.Metric("Group") == group) if group else "",
            groupby=[ws.Config(option) for option in (DATASET, *by, HELD_OUT)],
            order=[ws.Ordering(ws.Summary("average_accuracy"), ascending=False)],
            pinned_columns=["summary:average_accuracy", "summary:forgetting", f"config:{SEED}"],
        ),
    )


def report(entity: str, project: str, group: str | None = None, by: Sequence[str] = (METHOD,)) -> Report:
    """The same panels as a report, with room for words; see :func:`workspace`."""
    import wandb_workspaces.reports.v2 as wr

    runs = wr.Runset(
        entity=entity,
        project=project,
        name=group or "all runs",
        filters=f"Metric('Group') = '{group}'" if group else "",
        groupby=[f"config.{option}" for option in (DATASET, *by, HELD_OUT)],
    )
    blocks = [
        block
        for name, panels in sections().items()
        for block in (wr.H2(text=name), wr.PanelGrid(runsets=[runs], panels=panels))
    ]
    alike = " and ".join([DATASET, *by, HELD_OUT])
    about = wr.P(text=f"A line or bar is the mean over runs of one {alike}, with the standard deviation around it.")
    return wr.Report(
        entity=entity,
        project=project,
        title=f"FedQCL: {group or 'all runs'}",
        description="Accuracy and forgetting of federated continual learning methods.",
        blocks=[about, *blocks],
        width="fluid",
    )


def main() -> None:
    """Save both, and say where they are."""
    parser = argparse.ArgumentParser(description="Save a workspace and a report in Weights & Biases that compare runs.")
    parser.add_argument("entity", help="user or team")
    parser.add_argument("--project", default="fedqcl")
    parser.add_argument("--group", help="the sweep whose runs are shown, such as e7-V; all runs if left out")
    parser.add_argument(
        "--by", nargs="+", default=[METHOD], help="options that are to be told apart (default: the method)"
    )
    options = parser.parse_args()
    for make in (workspace, report):
        saved = make(options.entity, options.project, options.group, options.by).save()
        print(f"{make.__name__}: {saved.url}")


if __name__ == "__main__":
    main()
