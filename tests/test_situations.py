"""Situations that users of such programs trip over, and the tests that hold what this one does in each."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from fedqcl.cli.main import main
from fedqcl.trainer import FederatedTrainer

TESTS = Path(__file__).parent

# A short name, and "file::test", one or several.
SITUATIONS: dict[str, str] = {
    # Data, partition, labels
    "a client drawn for a round has no images": "engine/test_ranks.py::test_a_client_without_samples_sits_out",
    "a task without images to test on": "test_metrics.py::test_a_task_without_test_images_is_left_out",
    "shards cannot be as large as asked": "data/test_partition.py::test_an_impossible_min_samples_is_found_out_soon",
    "alpha of zero": "cli/test_fuzz.py::test_wrong_values test_types.py::test_out_of_range",
    "which way alpha goes": (
        "data/test_partition.py::test_heterogeneity_grows_as_alpha_falls data/test_partition.py::test_description"
    ),
    "a large alpha that is not iid": (
        "data/test_partition.py::test_a_large_alpha_is_nearly_iid "
        "data/test_partition.py::test_every_sample_goes_to_exactly_one_client"
    ),
    "a batch of one image in BatchNorm": (
        "data/test_stream.py::test_every_sample_comes_R_times_and_a_tail_fills_the_last_batch "
        "data/test_stream.py::test_a_shard_of_one_image "
        "models/test_norm.py::test_a_single_value_a_channel_has_no_variance"
    ),
    "tasks of different numbers of classes": (
        "data/test_tasks.py::test_split data/test_tasks.py::test_split_is_as_equal_as_can_be"
    ),
    "labels that do not count from zero": "data/test_module.py::test_any_labels_become_columns",
    "a class order that reports do not follow": (
        "data/test_module.py::test_class_order data/test_module.py::test_class_names"
    ),
    "grey images in a net for colours": (
        "data/test_module.py::test_size_and_channels_are_the_images_own "
        "models/test_resnet.py::test_small_resnet_takes_any_channels_and_size"
    ),
    "arrays of another dtype or layout": (
        "data/sources/test_npz.py::test_whole_numbers_of_any_dtype data/sources/test_npz.py::test_what_is_refused "
        "data/sources/test_npz.py::test_labels_of_any_dtype data/sources/test_fuzz.py::test_a_damaged_file"
    ),
    "augmentation drawn once for all epochs": (
        "data/test_stream.py::test_every_image_of_a_stream_has_a_view_of_its_own "
        "data/test_stream.py::test_a_draw_depends_on_its_key_alone"
    ),
    # Averaging and evaluation
    "BatchNorm statistics that are not averaged": (
        "engine/test_averaging.py::test_weighted_mean_of_every_entry_in_float64 "
        "engine/test_averaging.py::test_the_sum_is_exact_so_order_and_grouping_do_not_matter"
    ),
    "accuracy that depends on the batches": (
        "test_evaluate.py::test_batches_and_ranks_do_not_matter "
        "test_trainer.py::test_the_model_evaluates_as_the_run_did"
    ),
    "accuracy of participants taken for that of all": (
        "test_loop.py::test_only_participants_train_and_everyone_ends_a_task test_tracker.py::test_records_of_a_run"
    ),
    "participants that read like one client": "run/test_console.py::test_without_a_terminal_there_is_one_line_a_round",
    "figures shown and never written": "test_trainer.py::test_tables_agree_with_the_summary",
    "the best round taken for the result": "test_trainer.py::test_summary_has_every_key",
    "classes not seen that count as zero": (
        "test_metrics.py::test_metrics_of_the_first_rows_of_a_longer_stream "
        "test_evaluate.py::test_later_tasks_are_left_out"
    ),
    "a combination that has no meaning": (
        "test_trainer.py::test_a_problem_that_the_method_refuses_leaves_nothing_behind "
        "methods/test_fot.py::test_it_is_refused_in_the_class_incremental_scenario"
    ),
    "an update that is not finite": (
        "engine/test_averaging.py::test_a_model_that_diverged_has_no_weight "
        "engine/test_faults.py::test_a_client_left_out_is_as_one_without_samples "
        "engine/test_faults.py::test_an_update_that_is_not_finite_is_refused"
    ),
    "a check for it that waits for the GPU in every step": (
        "engine/test_averaging.py::test_every_rank_learns_who_diverged_on_another "
        "methods/test_base.py::test_loss_looks_at_no_value"
    ),
    # Replay
    "stored logits narrower than the head": (
        "parts/test_logits.py::test_columns_at_storage_end_with_the_samples_own_task "
        "methods/test_lwf.py::test_distillation_leaves_the_new_head_alone"
    ),
    "a device that fills up when replay starts": (
        "data/test_pool.py::test_images_stay_bytes test_trainer.py::test_a_device_without_memory_is_one_line"
    ),
    "a memory larger than the task that makes epochs longer": (
        "data/test_stream.py::test_what_is_replayed_does_not_change_the_current_batches"
    ),
    "a memory that never fills": (
        "parts/test_memory.py::test_quotas_fill_the_memory_and_are_as_even_as_can_be "
        "parts/test_memory.py::test_quotas_by_hand"
    ),
    "replay that stops working unnoticed": (
        "test_trainer.py::test_class_incremental_runs "
        "parts/test_memory.py::test_memory_keeps_a_random_subset_that_the_generator_alone_decides"
    ),
    # Resuming, logging
    "a requeued job whose W&B run starts anew": "test_resume.py::test_the_wandb_run_goes_on_under_its_id",
    "a run that is not gone on with as asked": (
        "test_resume.py::test_a_finished_run_is_left_alone test_resume.py::test_a_run_that_is_held_is_not_touched"
    ),
    "a checkpoint that lacks a part of the state": (
        "test_resume.py::test_a_stop_at_any_place test_resume.py::test_every_method "
        "test_resume.py::test_another_number_of_ranks"
    ),
    "several runs of one process": "run/test_wandb.py::test_several_runs_of_one_process_stay_apart",
    "a folder that is taken": (
        "run/test_folder.py::test_a_taken_name_is_refused_and_a_default_one_counted_up "
        "run/test_folder.py::test_runs_started_together_get_folders_of_their_own"
    ),
    # Many clients, several devices, failures
    "values that are not resolved": "cli/test_main.py::test_a_mistake_in_a_file",
    "memory that grows with the clients": (
        "engine/test_ranks.py::test_as_many_clients_are_seated_at_once_as_run_at_once"
    ),
    "a device that another process has filled": "test_trainer.py::test_a_device_without_memory_is_one_line",
    "more clients than devices": (
        "engine/test_dealing.py::test_every_client_once_and_ranks_alike test_ranks.py::test_weights"
    ),
    "fewer tasks of Slurm than ranks": (
        "engine/test_launch.py::test_under_slurm_there_are_as_many_ranks_as_tasks "
        "engine/test_launch.py::test_in_an_interactive_job_slurm_starts_nothing"
    ),
    "a rank without data in a sum of all": (
        "engine/test_averaging.py::test_a_rank_without_clients_takes_part_in_the_sums_of_the_others "
        "test_evaluate.py::test_batches_and_ranks_do_not_matter"
    ),
    "a rank that raises, is killed or hangs": (
        "engine/test_guard.py::test_forked_ranks engine/test_guard.py::test_ranks_of_the_same_command"
    ),
    "a client that raises": (
        "engine/test_faults.py::test_an_error_names_client_task_and_round "
        "test_trainer.py::test_clients_left_out_are_named_and_take_no_steps "
        "data/sources/test_folder.py::test_a_damaged_image_is_named"
    ),
    "a last round that is cut off": "test_ranks.py::test_tables test_ranks.py::test_summary",
    # Reproducibility, configuration, speed, output
    "randomness that depends on the order of clients": (
        "test_ranks.py::test_weights test_rng.py::test_keys_that_differ_anywhere_start_different_sequences"
    ),
    "a seed that fixes the data only": (
        "test_trainer.py::test_the_same_run_again_has_the_same_weights "
        "test_learner.py::test_the_initial_net_depends_on_the_seed_alone"
    ),
    "options that are accepted and do nothing": (
        "cli/test_check.py::test_refused_on_the_command_line cli/test_check.py::test_refused_in_a_file "
        "cli/test_fuzz.py::test_keys_that_do_not_exist"
    ),
    "words in another order, or a last line without its end": (
        "cli/test_lightning.py::test_order_of_words_does_not_matter "
        "test_situations.py::test_a_config_without_a_last_newline"
    ),
    "a step that waits for the device": "methods/test_base.py::test_loss_looks_at_no_value",
    "thousands of lines": (
        "run/test_console.py::test_without_a_terminal_there_is_one_line_a_round "
        "run/test_console.py::test_quiet_says_nothing_else"
    ),
    # Disk, network, strangers
    "a full disk": "run/test_writing.py::test_a_round_that_does_not_fit_leaves_the_rounds_before",
    "a folder that cannot be written": "run/test_folder.py::test_a_root_that_is_a_file_is_refused",
    "no network": (
        "data/sources/test_download.py::test_install_without_network_names_the_host_and_the_way_out "
        "run/test_wandb_access.py::test_what_keeps_a_run_from_being_online"
    ),
    "damaged files": "test_chaos.py::test_a_damaged_file data/sources/test_fuzz.py::test_a_damaged_file",
    "keys and passwords": (
        "run/test_secrets.py::test_an_offline_run_of_w_and_b_has_none_of_them "
        "cli/test_lightning.py::test_the_config_of_a_run_holds_no_keys"
    ),
    "files from strangers": (
        "data/sources/test_download.py::test_unpack_tar_refuses_what_is_no_file_below_the_folder "
        "data/sources/test_download.py::test_unpack_refuses_members_outside_the_folder "
        "cli/test_fuzz.py::test_files_that_are_no_config "
        "checkpoint/test_model.py::test_a_file_that_is_a_program_is_not_run"
    ),
    "other machines that connect": ("engine/test_guard.py::test_ranks_of_one_machine_listen_on_its_loopback_only"),
}


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_situation_has_its_tests(situation: str) -> None:
    for test in SITUATIONS[situation].split():
        file, name = test.split("::")
        assert name in names_in(file), test


def test_a_config_without_a_last_newline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(FederatedTrainer, "fit", lambda self, *_, **__: seen.append(self.rounds))
    for end in ("", "\n"):
        (tmp_path / "last.yaml").write_text(f"trainer:\n  rounds: 7{end}")
        assert main(["fit", "--config", "quickstart", "--config", str(tmp_path / "last.yaml")]) == 0
    assert seen == [7, 7]
