from __future__ import annotations

from fedqcl.run.config import changes, differences, parse_config


def test_an_empty_file_is_a_mapping_of_nothing() -> None:
    assert parse_config("") == parse_config("# nothing\n") == {}
    assert parse_config("trainer: {rounds: 5}") == {"trainer": {"rounds": 5}}


def test_what_makes_no_difference_may_differ() -> None:
    then = {"trainer": {"devices": 2, "logger": None, "rounds": 5}, "data": {"alpha": 1}}
    now = {"trainer": {"devices": 3, "logger": {"class_path": "W"}, "rounds": 5}, "data": {"alpha": 1.0}}
    assert list(differences(then, now)) == []
    now["trainer"]["rounds"] = 6
    assert list(differences(then, now)) == ["trainer.rounds 5, now 6"]


def test_what_is_free_may_differ() -> None:
    then, now = ({"data": {"source": {"class_path": name}, "alpha": 1, "newer": 1}} for name in "AB")
    whole = {"data": then["data"].copy()}
    del then["data"]["newer"]
    assert changes(then, now, lambda config: whole, free=["data.source"]) == []
    now["data"]["alpha"] = 2
    assert changes(then, now, lambda config: whole, free=["data.source"])[0] == "data.alpha 1, now 2"


def test_the_options_of_a_class_go_by_its_key() -> None:
    then = {"model": {"method": {"class_path": "A", "init_args": {"V": 1}}}}
    now = {"model": {"method": {"class_path": "B", "init_args": {"V": 2}}}}
    assert list(differences(then, now)) == ["model.method A, now B", "model.method.V 1, now 2"]


def test_an_option_that_one_lacks_is_null_in_it_or_passed_over() -> None:
    then, now = {"trainer": {"rounds": 5}}, {"trainer": {"rounds": 5, "epochs": 1, "newer": None}}
    assert list(differences(then, now)) == ["trainer.epochs None, now 1"]
    assert list(differences(now, then)) == ["trainer.epochs 1, now None"]
    assert list(differences(then, now, lacking=True)) == list(differences(now, then, lacking=True)) == []


def test_what_a_run_lacks_had_the_default_that_it_has_now() -> None:
    then = {"trainer": {"rounds": 5}}
    whole = {"trainer": {"rounds": 5, "newer": "usual"}}
    assert changes(then, whole, lambda config: whole) == []
    other = {"trainer": {"rounds": 5, "newer": "other"}}
    assert changes(then, other, lambda config: whole) == ["trainer.newer usual, now other"]
    assert changes(then, other, lambda config: {}) == ["trainer.newer None, now other"]  # it cannot be read any more
    asked: list[object] = []
    assert changes({"trainer": {"rounds": 6}}, whole, lambda config: asked.append(config) or {})[0] == (
        "trainer.rounds 6, now 5"
    )
    assert asked == []  # nothing that it lacks would make it the same
