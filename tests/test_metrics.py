from __future__ import annotations

import math

import pytest
import torch

from fedqcl.metrics import (
    ContinualAccuracy,
    average_accuracy,
    backward_transfer,
    forgetting,
    incremental_accuracy,
    last_task_accuracy,
    learning_accuracy,
)

nan = math.nan

# Row: after task 1, 2, 3; column: task 1, 2, 3. Task 1 is at its best after task 2, and chance on task 2 (0.85, before
# it was learned) beats what was learned later, so the maximum, the paper's maximum and the first value all differ.
MATRIX = torch.tensor([[0.90, 0.85, 0.20], [0.95, 0.80, 0.30], [0.70, 0.50, 0.95]], dtype=torch.float64)
LOWER = torch.where(torch.ones(3, 3, dtype=torch.bool).tril(), MATRIX, nan)


@pytest.mark.parametrize("matrix", [MATRIX, LOWER], ids=["all evaluated", "seen tasks only"])
def test_metrics_of_a_matrix_made_by_hand(matrix: torch.Tensor) -> None:
    assert average_accuracy(matrix).item() == pytest.approx((0.70 + 0.50 + 0.95) / 3)
    assert forgetting(matrix).item() == pytest.approx(((0.95 - 0.70) + (0.80 - 0.50)) / 2)
    assert backward_transfer(matrix).item() == pytest.approx(((0.70 - 0.90) + (0.50 - 0.80)) / 2)
    assert last_task_accuracy(matrix).item() == pytest.approx(0.95)
    assert learning_accuracy(matrix).item() == pytest.approx((0.90 + 0.80 + 0.95) / 3)
    by_task = [0.90, (0.95 + 0.80) / 2, (0.70 + 0.50 + 0.95) / 3]
    assert incremental_accuracy(matrix).item() == pytest.approx(sum(by_task) / 3)


def test_the_papers_forgetting_counts_rows_before_a_task_was_learned() -> None:
    assert forgetting(MATRIX, all_rows=True).item() == pytest.approx(((0.95 - 0.70) + (0.85 - 0.50)) / 2)
    assert forgetting(LOWER, all_rows=True).item() == pytest.approx(forgetting(LOWER).item())


def test_forgetting_is_negative_when_earlier_tasks_are_at_their_best() -> None:
    matrix = torch.tensor([[0.6, nan], [0.7, 0.9]])
    assert forgetting(matrix).item() == pytest.approx(-0.1)
    assert backward_transfer(matrix).item() == pytest.approx(0.1)


def test_metrics_of_the_first_rows_of_a_longer_stream() -> None:
    assert average_accuracy(MATRIX[:2]).item() == pytest.approx((0.95 + 0.80) / 2)
    assert forgetting(MATRIX[:2]).item() == pytest.approx(0.90 - 0.95)
    assert last_task_accuracy(MATRIX[:2]).item() == pytest.approx(0.80)
    assert learning_accuracy(MATRIX[:2]).item() == pytest.approx((0.90 + 0.80) / 2)


def test_one_task_has_an_accuracy_and_no_forgetting() -> None:
    assert average_accuracy(MATRIX[:1]).item() == pytest.approx(0.90)
    assert incremental_accuracy(MATRIX[:1]).item() == pytest.approx(0.90)
    for undefined in (forgetting, backward_transfer):
        assert math.isnan(undefined(MATRIX[:1]).item())
    assert math.isnan(forgetting(MATRIX[:1], all_rows=True).item())


def test_a_task_without_test_images_is_left_out() -> None:
    matrix = torch.tensor([[0.9, nan, nan], [0.6, nan, nan], [0.5, nan, 0.7]])
    assert average_accuracy(matrix).item() == pytest.approx((0.5 + 0.7) / 2)
    assert forgetting(matrix).item() == pytest.approx(0.9 - 0.5)
    assert backward_transfer(matrix).item() == pytest.approx(0.5 - 0.9)
    assert learning_accuracy(matrix).item() == pytest.approx((0.9 + 0.7) / 2)


def test_what_was_never_measured_is_not_guessed() -> None:
    only_the_end = torch.tensor([[nan, nan], [0.5, 0.7]])
    assert average_accuracy(only_the_end).item() == pytest.approx(0.6)
    for unknown in (forgetting, backward_transfer, learning_accuracy, incremental_accuracy):
        assert math.isnan(unknown(only_the_end).item())


def learned(metric: ContinualAccuracy) -> ContinualAccuracy:
    """Two tasks of 4 and 2 images: all of task 1 right, then half of it and all of task 2."""
    target, task = torch.tensor([0, 1, 1, 0, 2, 3]), torch.tensor([0, 0, 0, 0, 1, 1])
    metric.update(target[:4], target[:4], task[:4], after=0)
    metric.update(torch.tensor([0, 0]), target[:2], task[:2], after=1)
    metric.update(torch.tensor([0, 0, 2, 3]), target[2:], task[2:], after=1)
    return metric


def test_update_counts_images_by_task() -> None:
    metric = learned(ContinualAccuracy(num_tasks=3))
    assert metric.correct.tolist() == [[4, 0, 0], [2, 2, 0], [0, 0, 0]]
    assert metric.total.tolist() == [[4, 0, 0], [4, 2, 0], [0, 0, 0]]
    result = metric.compute()
    assert result["average_accuracy"].item() == 0.75  # mean of the tasks, whatever their sizes
    assert result["forgetting"].item() == 0.5
    assert result["forgetting_paper"].item() == 0.5
    assert result["backward_transfer"].item() == -0.5
    assert result["last_task_accuracy"].item() == 1.0
    assert result["learning_accuracy"].item() == 1.0
    assert result["incremental_accuracy"].item() == 0.875
    expected = torch.tensor([[1, nan, nan], [0.5, 1, nan], [nan, nan, nan]], dtype=torch.float64)
    torch.testing.assert_close(result["accuracy_matrix"], expected, equal_nan=True)


def test_a_single_task_can_be_drawn() -> None:
    metric = ContinualAccuracy(num_tasks=1)
    metric.add(torch.tensor([3]), torch.tensor([4]), after=0)
    assert metric.matrix.tolist() == [[0.75]]
    _, ax = metric.plot()
    assert "75.0" in {text.get_text() for text in ax.texts}


def test_add_equals_update() -> None:
    counted = ContinualAccuracy(num_tasks=3)
    counted.add(torch.tensor([4, 0, 0]), torch.tensor([4, 0, 0]), after=0)
    first = counted.compute()["average_accuracy"].item()
    counted.add(torch.tensor([2, 2, 0]), torch.tensor([4, 2, 0]), after=1)
    assert first == 1.0
    for name, value in learned(ContinualAccuracy(num_tasks=3)).compute().items():
        torch.testing.assert_close(counted.compute()[name], value, equal_nan=True, rtol=0, atol=0)


def test_forward_gives_the_batch_and_keeps_the_sum() -> None:
    metric = ContinualAccuracy(num_tasks=2)
    task = torch.tensor([0, 0])
    assert metric(torch.tensor([0, 0]), torch.tensor([0, 1]), task, 0)["average_accuracy"].item() == 0.5
    assert metric(torch.tensor([1, 1]), torch.tensor([1, 1]), task, 0)["average_accuracy"].item() == 1.0
    assert metric.compute()["average_accuracy"].item() == 0.75


def test_counts_of_two_ranks_add_up() -> None:
    here, there = learned(ContinualAccuracy(num_tasks=2)), ContinualAccuracy(num_tasks=2)
    there.update(torch.tensor([1, 1]), torch.tensor([0, 0]), torch.tensor([1, 1]), after=1)
    here.distributed_available_fn = lambda: True
    here.dist_sync_fn = lambda state, group: [state, there.correct if state is here.correct else there.total]
    assert here.compute()["accuracy_matrix"][1].tolist() == [0.5, 2 / 4]
    assert here.total.tolist() == [[4, 0], [4, 2]]  # this rank's own again


def test_summed_counts_are_not_summed_again() -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("gathered counts that are already summed")

    metric = ContinualAccuracy(2, sync_on_compute=False, dist_sync_fn=refuse, distributed_available_fn=lambda: True)
    metric.add(torch.tensor([1, 0]), torch.tensor([2, 0]), after=0)
    assert metric.compute()["average_accuracy"].item() == 0.5


def test_state_dict_restores_the_counts_and_reset_clears_them() -> None:
    metric = learned(ContinualAccuracy(num_tasks=2))
    other = ContinualAccuracy(num_tasks=2)
    other.load_state_dict(metric.state_dict())
    other.add(torch.tensor([0, 0]), torch.tensor([0, 0]), after=1)
    assert set(metric.state_dict()) == {"correct", "total"}
    assert other.compute()["average_accuracy"].item() == 0.75
    metric.reset()
    assert metric.total.sum() == 0


def test_plot_draws_the_matrix() -> None:
    import matplotlib.pyplot as plt

    metric = learned(ContinualAccuracy(num_tasks=2))
    figure, ax = metric.plot()
    assert [text.get_text() for text in ax.texts] == ["100", "50.0", "100"]
    given = figure.add_subplot()
    assert metric.plot(ax=given) == (figure, given)
    plt.close(figure)


def test_other_projects_forgetting_is_ours_in_other_terms() -> None:
    """Fed-mammoth averages what was lost since a task was learned over all tasks, the last one's zero included."""
    theirs = sum(MATRIX[j, j] - MATRIX[2, j] for j in range(3)) / 3
    assert theirs.item() == pytest.approx(-backward_transfer(MATRIX).item() * 2 / 3)
