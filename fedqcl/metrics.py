"""Continual-learning metrics over the matrix of task-by-task accuracies.

Every metric is a pure function of an accuracy matrix ``a`` of shape [t, T]: ``a[l, j]`` is the accuracy, a
fraction, on the test images of task ``j`` after task ``l`` was learned; ``t`` tasks of ``T`` are finished.
NaN stands for "not evaluated". A metric looks at the columns of the ``t`` finished tasks, leaves out a task
without a test image, and is NaN where it is not defined: forgetting after one task, or a learning accuracy
whose rows were never measured.

:class:`ContinualAccuracy` gathers the counts behind the matrix and reports all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torchmetrics import Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def average_accuracy(matrix: Tensor) -> Tensor:
    r"""Mean accuracy over the finished tasks, after the last of them.

    .. math:: \mathrm{Acc} = \frac{1}{t} \sum_{j=1}^{t} a_{t,j}

    Args:
        matrix: accuracies [t, T], fractions.

    Returns:
        A scalar in [0, 1].

    Example:
        >>> average_accuracy(torch.tensor([[0.9, torch.nan], [0.5, 0.8]]))
        tensor(0.6500)
    """
    t = len(matrix)
    return matrix[-1, :t][_tested(matrix)].mean()


def forgetting(matrix: Tensor, all_rows: bool = False) -> Tensor:
    r"""Mean drop of each earlier task from its best accuracy to its accuracy now.

    .. math:: F = \frac{1}{t-1} \sum_{j<t} \max_{l \in \{j, \dots, t-1\}} (a_{l,j} - a_{t,j})

    Negative if the earlier tasks are at their best now. The FedQCL paper lets the maximum run over every row
    :math:`l < t`, those before task ``j`` was learned included; that differs only if those were evaluated and
    chance beats every later value.

    Args:
        matrix: accuracies [t, T], fractions.
        all_rows: take the maximum over all rows before the last, as the paper writes it.

    Returns:
        A scalar in [-1, 1]; NaN with one task.

    Example:
        >>> forgetting(torch.tensor([[0.9, torch.nan], [0.5, 0.8]]))
        tensor(0.4000)
    """
    past = len(matrix) - 1
    if past == 0:
        return matrix.new_tensor(torch.nan)
    rows = matrix[:past, :past]
    unlearned = torch.ones_like(rows, dtype=torch.bool).triu(1)
    ignored = unlearned & rows.isnan() if all_rows else unlearned
    drop = rows.masked_fill(ignored, -torch.inf).amax(0) - matrix[-1, :past]
    return drop[_tested(matrix)[:past]].mean()


def backward_transfer(matrix: Tensor) -> Tensor:
    r"""Mean change of each earlier task from when it was learned to now.

    .. math:: \mathrm{BWT} = \frac{1}{t-1} \sum_{j<t} (a_{t,j} - a_{j,j})

    Args:
        matrix: accuracies [t, T], fractions.

    Returns:
        A scalar in [-1, 1], negative where tasks were forgotten; NaN with one task.

    Example:
        >>> backward_transfer(torch.tensor([[0.9, torch.nan], [0.5, 0.8]]))
        tensor(-0.4000)
    """
    past = len(matrix) - 1
    change = matrix[-1, :past] - matrix.diagonal()[:past]
    return change[_tested(matrix)[:past]].mean()


def last_task_accuracy(matrix: Tensor) -> Tensor:
    r"""Accuracy on the newest task, :math:`a_{t,t}`.

    Args:
        matrix: accuracies [t, T], fractions.

    Returns:
        A scalar in [0, 1].

    Example:
        >>> last_task_accuracy(torch.tensor([[0.9, torch.nan], [0.5, 0.8]]))
        tensor(0.8000)
    """
    return matrix.diagonal()[-1].clone()


def learning_accuracy(matrix: Tensor) -> Tensor:
    r"""Mean accuracy on each task just after it was learned: plasticity.

    .. math:: \mathrm{LA} = \frac{1}{t} \sum_{j=1}^{t} a_{j,j}

    Args:
        matrix: accuracies [t, T], fractions.

    Returns:
        A scalar in [0, 1].

    Example:
        >>> learning_accuracy(torch.tensor([[0.9, torch.nan], [0.5, 0.8]]))
        tensor(0.8500)
    """
    return matrix.diagonal()[_tested(matrix)].mean()


def incremental_accuracy(matrix: Tensor) -> Tensor:
    r"""Average accuracy after each task, averaged over the tasks.

    .. math:: \mathrm{IA} = \frac{1}{t} \sum_{l=1}^{t} \frac{1}{l} \sum_{j \le l} a_{l,j}

    Args:
        matrix: accuracies [t, T], fractions.

    Returns:
        A scalar in [0, 1].

    Example:
        >>> incremental_accuracy(torch.tensor([[0.9, torch.nan], [0.5, 0.8]]))
        tensor(0.7750)
    """
    return torch.stack([average_accuracy(matrix[: row + 1]) for row in range(len(matrix))]).mean()


def _tested(matrix: Tensor) -> Tensor:
    """Which finished tasks have test images, bool [t]: one without has no value even in the last row."""
    return ~matrix[-1, : len(matrix)].isnan()


class ContinualAccuracy(Metric):
    """Accuracy of every task after every task, and the continual-learning metrics that follow from it.

    The states are counts of images, ``correct`` and ``total``, float64 [T, T] (row: after that task;
    column: the task the images belong to). They add up over batches and ranks, and ``state_dict`` holds them.

    Args:
        num_tasks: how many tasks T the stream has.
        kwargs: see :class:`torchmetrics.Metric`. Pass ``sync_on_compute=False`` when the counts given to
            :meth:`add` are already summed over the ranks.

    Example:
        >>> metric = ContinualAccuracy(num_tasks=2)
        >>> target, task = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 1, 1])
        >>> metric.update(torch.tensor([0, 1]), target[:2], task[:2], after=0)
        >>> metric.update(torch.tensor([0, 3, 2, 3]), target, task, after=1)
        >>> metric.compute()["forgetting"].item()
        0.5
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    correct: Tensor
    total: Tensor

    def __init__(self, num_tasks: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_tasks = num_tasks
        zeros = torch.zeros(num_tasks, num_tasks, dtype=torch.float64)
        self.add_state("correct", zeros, dist_reduce_fx="sum", persistent=True)
        self.add_state("total", zeros.clone(), dist_reduce_fx="sum", persistent=True)

    def update(self, preds: Tensor, target: Tensor, task: Tensor, after: int) -> None:
        """Count a batch of predictions.

        Args:
            preds: predicted class of each image, int64 [n].
            target: true class of each image, int64 [n].
            task: task of each image, int64 [n], in 0..T-1.
            after: the last task learned, in 0..T-1.
        """
        member = task[:, None] == torch.arange(self.num_tasks, device=task.device)
        self.correct[after] += (member & (preds == target)[:, None]).sum(0)
        self.total[after] += member.sum(0)

    def add(self, correct: Tensor, total: Tensor, after: int) -> None:
        """Add counts made elsewhere, in the place of :meth:`update`.

        Args:
            correct: images classified correctly, by task [T].
            total: images seen, by task [T].
            after: the last task learned, in 0..T-1.
        """
        self.correct[after] += correct.to(self.correct)
        self.total[after] += total.to(self.total)
        # As the base class does around `update`: forget the cached result, and know of something to compute.
        self._computed = None
        self._update_count += 1

    @property
    def matrix(self) -> Tensor:
        """Accuracy on task j (column) after task i (row), of this process's images: float64 [T, T], NaN for unknown."""
        return self.correct / self.total

    def compute(self) -> dict[str, Tensor]:
        """The metrics after the tasks seen so far.

        Returns:
            Scalars ``average_accuracy``, ``forgetting``, ``forgetting_paper`` (maximum over all rows),
            ``backward_transfer``, ``last_task_accuracy``, ``learning_accuracy`` and ``incremental_accuracy``,
            fractions, and ``accuracy_matrix`` [T, T], NaN where nothing was evaluated; all float64. The matrix of a
            single task comes as a scalar, as torchmetrics squeezes what has one element.
        """
        matrix = self.matrix
        rows = self.total.sum(1).nonzero()
        seen = matrix[: int(rows[-1]) + 1] if len(rows) else matrix[:1]
        return {
            "average_accuracy": average_accuracy(seen),
            "forgetting": forgetting(seen),
            "forgetting_paper": forgetting(seen, all_rows=True),
            "backward_transfer": backward_transfer(seen),
            "last_task_accuracy": last_task_accuracy(seen),
            "learning_accuracy": learning_accuracy(seen),
            "incremental_accuracy": incremental_accuracy(seen),
            "accuracy_matrix": matrix,
        }

    def plot(self, val: dict[str, Tensor] | None = None, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Draw the accuracy matrix as a heatmap.

        Args:
            val: what :meth:`compute` or ``forward`` returned; computed now if left out.
            ax: where to draw; a new figure if left out.

        Returns:
            The figure and its axes.
        """
        import matplotlib.pyplot as plt

        from fedqcl.plots.run import draw_accuracy_matrix

        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        matrix = (val or self.compute())["accuracy_matrix"].reshape(self.num_tasks, self.num_tasks)
        draw_accuracy_matrix(ax, matrix.tolist())
        return cast("Figure", ax.get_figure(root=True)), ax
