from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from fedqcl.errors import InputError
from fedqcl.sweep import Experiment

GRID = {"seed": [0, 1], "config": ["cifar100"], "method": ["ER", "FedQCL"], "alpha": [0.1, "1e5"]}


def experiment(*overrides: str, grid: Any = GRID, **more: Any) -> Experiment:
    return Experiment("mine", {"grid": grid, **more}, overrides)


def names(*overrides: str, grid: Any = GRID) -> list[str]:
    return [run.name for run in experiment(*overrides, grid=grid).runs()]


def test_the_first_axis_varies_slowest_and_the_seed_is_named_last() -> None:
    assert names() == [
        *("cifar100-ER-alpha0.1-seed0", "cifar100-ER-alpha1e5-seed0"),
        *("cifar100-FedQCL-alpha0.1-seed0", "cifar100-FedQCL-alpha1e5-seed0"),
        *("cifar100-ER-alpha0.1-seed1", "cifar100-ER-alpha1e5-seed1"),
        *("cifar100-FedQCL-alpha0.1-seed1", "cifar100-FedQCL-alpha1e5-seed1"),
    ]


def test_a_run_is_words_for_fit() -> None:
    run = experiment().runs()[1]
    assert run.at == {"seed": 0, "config": "cifar100", "method": "ER", "alpha": "1e5"}
    assert run.words() == ["--config=cifar100", "--seed_everything=0", "--model.method=ER", "--data.alpha=1e5"]


def test_a_choice_brings_its_options() -> None:
    grid = {"R": {1: {"C": 50}, 5: {"C": 10}}, "passes": {"online": {"B": 10, "data.augment": None}}}
    runs = experiment(grid=grid).runs()
    assert [run.options for run in runs] == [
        {"trainer.epochs": 1, "trainer.rounds": 50, "data.batch_size": 10, "data.augment": None},
        {"trainer.epochs": 5, "trainer.rounds": 10, "data.batch_size": 10, "data.augment": None},
    ]
    assert runs[0].name == "R1-online"
    assert "--data.augment=null" in runs[0].words()


def test_what_goes_with_a_choice_gives_way_to_an_axis() -> None:
    also = [{"when": {"config": "cifar100"}, "give": {"V": 200, "delta": 1}}]
    grid = [{"config": ["cifar100"], "V": [10]}, {"config": ["cifar100"], "delta": [0]}]
    found = [
        (run.options["model.method.V"], run.options["model.method.delta"])
        for run in experiment(grid=grid, also=also).runs()
    ]
    assert found == [(10, 1), (200, 0)]


def test_a_preset_is_a_second_config_that_wins() -> None:
    run = experiment("preset=fair", "seed=0").runs()[0]
    assert run.configs == ("cifar100", "presets/fair")
    assert run.name == "cifar100-ER-alpha0.1-fair-seed0"


def test_an_axis_goes_by_its_short_name() -> None:
    grid = {"seed_everything": [0], "model.method.memory": [50, 100]}
    assert names(grid=grid) == ["M50-seed0", "M100-seed0"]
    for override in ("M=60", "model.method.memory=60"):
        (run,) = experiment(override, grid=grid).runs()
        assert (run.at, run.options) == ({"seed": 0, "M": 60}, {"seed_everything": 0, "model.method.memory": 60})
    (run,) = experiment(grid={"M": [1]}, also=[{"when": {"model.method.memory": 1}, "give": {"V": 2}}]).runs()
    assert run.options["model.method.V"] == 2


@pytest.mark.parametrize("key", ["trainer.root", "trainer.name", "ckpt_path"])
def test_where_runs_are_kept_is_no_option_of_theirs(key: str) -> None:
    with pytest.raises(InputError, match=f"^mine: {key} is the sweep's own; --root says where runs are kept$"):
        experiment(grid={"x": {"y": {key: "a"}}}).runs()
    with pytest.raises(InputError, match=r"^mine: trainer\.name is the sweep's own"):
        experiment("trainer.name=a,b").runs()


def test_overriding_files_are_names_whatever_they_are_made_of() -> None:
    runs = experiment("preset=fair/{config},paper", grid={"config": ["cifar10"], "seed": [0]}).runs()
    assert [run.configs for run in runs] == [("cifar10", "presets/fair/cifar10"), ("cifar10", "presets/paper")]
    (run,) = experiment("preset={config}", grid={"config": ["cifar10"]}).runs()
    assert run.configs == ("cifar10", "presets/cifar10")


def test_a_choice_may_bring_a_preset() -> None:
    grid = {"config": ["cifar100"], "what": {"a": {"preset": "fair/{config}", "method": "ER"}, "b": None}}
    first, second = experiment(grid=grid).runs()
    assert first.words() == ["--config=cifar100", "--config=presets/fair/cifar100", "--model.method=ER"]
    assert second.words() == ["--config=cifar100"]
    assert first.name == "cifar100-a"
    (both,) = experiment("preset=authors", "what=a", grid=grid).runs()
    assert both.configs == ("cifar100", "presets/authors", "presets/fair/cifar100")


def test_options_may_go_with_choices_of_several_axes() -> None:
    also = [{"when": {"config": "cifar100", "method": "ER"}, "give": {"M": 200}}]
    runs = experiment("seed=0", "alpha=0.1", "config=cifar10,cifar100.yaml", also=also).runs()
    assert ["model.method.memory" in run.options for run in runs] == [False, False, True, False]
    assert experiment("M=300", also=also).runs()[0].options["model.method.memory"] == 300


def test_two_runs_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="mine: two different runs are called x_y; name"):
        experiment(grid={"what": {"x y": {"V": 1}, "x/y": {"V": 2}}}).runs()


def test_a_preset_may_be_one_for_each_config() -> None:
    run = experiment("preset=fair/{config}", "seed=0").runs()[0]
    assert run.configs == ("cifar100", "presets/fair/cifar100")
    assert run.at["preset"] == "fair"
    assert run.name == "cifar100-ER-alpha0.1-fair-seed0"


def test_an_override_narrows_an_axis_by_either_of_its_names() -> None:
    assert names("seed=1", "method=ER", "alpha=1e5") == ["cifar100-ER-alpha1e5-seed1"]
    assert names("seed_everything=1", "model.method=ER", "data.alpha=[1e5]") == ["cifar100-ER-alpha1e5-seed1"]


SEVERAL = [{"method": ["ER", "FedQCL"], "M": [25, 50]}, {"method": ["ConstantReplay"], "weight": [0.5, 1]}]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("method=ER", ["ER-M25", "ER-M50"]),
        ("method=ConstantReplay,ER", ["ER-M25", "ER-M50", "ConstantReplay-weight0.5", "ConstantReplay-weight1"]),
        # What no grid has is for all of them.
        ("method=DER", ["DER-M25", "DER-M50", "DER-weight0.5", "DER-weight1"]),
        ("method=ER,DER", ["ER-M25", "ER-M50", "DER-M25", "DER-M50", "DER-weight0.5", "DER-weight1"]),
        ("weight=2", ["ER-M25", "ER-M50", "FedQCL-M25", "FedQCL-M50", "ConstantReplay-weight2"]),
    ],
)
def test_each_of_several_grids_is_narrowed_to_what_it_has(override: str, expected: list[str]) -> None:
    assert names(override, grid=SEVERAL) == expected


def test_an_override_keeps_what_goes_with_a_choice() -> None:
    grid = {"R": {1: {"C": 50}, 5: {"C": 10}}}
    (run,) = experiment("R=5", grid=grid).runs()
    assert run.options == {"trainer.epochs": 5, "trainer.rounds": 10}
    (new,) = experiment("R=2", grid=grid).runs()
    assert new.options == {"trainer.epochs": 2}


def test_an_override_of_one_value_is_for_every_run_and_wins() -> None:
    grid = {"R": {1: {"C": 50}, 5: {"C": 10}}}
    runs = experiment("C=2", "trainer.precision=32-true", grid=grid).runs()
    assert [run.options["trainer.rounds"] for run in runs] == [2, 2]
    assert {run.options["trainer.precision"] for run in runs} == {"32-true"}
    assert [run.name for run in runs] == ["R1", "R5"]


def test_an_override_of_several_values_is_a_new_axis() -> None:
    assert names("V=10,100", "seed=0", "alpha=0.1", "method=FedQCL") == [
        "cifar100-FedQCL-alpha0.1-V10-seed0",
        "cifar100-FedQCL-alpha0.1-V100-seed0",
    ]
    (run,) = experiment("T=[[2, 3]]", grid={"seed": [0]}).runs()
    assert run.words() == ["--seed_everything=0", "--data.tasks=[2, 3]"]


def test_an_override_of_several_values_wins_over_what_goes_with_a_choice() -> None:
    grid = {"what": {"a": {"V": 1, "C": 5}}}
    also = [{"when": {"what": "a"}, "give": {"M": 200}}]
    runs = experiment("V=10,100", "M=300,400", grid=grid, also=also).runs()
    found = [(run.options["model.method.V"], run.options["model.method.memory"]) for run in runs]
    assert found == [(10, 300), (10, 400), (100, 300), (100, 400)]
    assert {run.options["trainer.rounds"] for run in runs} == {5}


def test_several_grids_are_taken_together() -> None:
    grids = [{"method": ["FedQCL"], "V": [1, 2]}, {"method": ["FedQCL"], "delta": [0]}]
    assert names(grid=grids) == ["FedQCL-V1", "FedQCL-V2", "FedQCL-delta0"]
    assert names("V=2", grid=grids) == ["FedQCL-V2", "FedQCL-delta0"]


def test_a_view_may_be_of_an_axis_that_an_override_adds_or_leaves_out() -> None:
    grids = [{"method": ["ER"], "M": [1, 2]}, {"method": ["FedQCL"]}]
    show = ["sweep over M", "table by config"]
    assert experiment("method=FedQCL", grid=grids, show=show).show == show
    assert experiment("M=50,100", grid={"seed": [0]}, show=show).show == show
    assert experiment("M=50", grid={"seed": [0]}, show=show).show == show


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"grid": {"seed": [0]}, "shwo": []}, "mine: there is no key shwo; known: title, fills, grid, also, show"),
        ({}, r"mine: grid must hold axes, such as `seed: \[0, 1, 2\]`"),
        ({"grid": {"seed": 0}}, r"mine: grid.seed must be a list of choices, such as \[0, 1, 2\]"),
        ({"grid": {"seed": [0]}, "also": [{"method": "ER"}]}, "mine: also must hold pairs such as `{when: .*"),
        (
            {"grid": {"seed": [0]}, "also": [{"when": {"methd": "ER"}, "give": {"M": 2}}]},
            "mine: also.when: there is no axis methd; known: seed, method, .*",
        ),
        ({"grid": {"seed": [0]}, "show": "curves"}, r"mine: show must be a list of views, such as \[curves\]"),
        ({"grid": {"seed": [0]}, "show": ["curve"]}, "mine: show: there is no view 'curve'; known: table, .*"),
        (
            {"grid": {"seed": [0]}, "show": ["sweep over v"]},
            "mine: show: sweep over v: there is no axis v to show; known: config",
        ),
        (
            {"grid": [{"method": ["ER"], "M": [1]}, {"method": ["FedQCL"], "seed": [0]}], "show": ["pareto of V"]},
            "mine: show: pareto of V: there is no axis V to show; known: config, method, M",
        ),
        (
            {"grid": {"seed": [0], "V": [1]}, "show": ["table by seed"]},
            "mine: show: table by seed: there is no axis seed to show; known: config, V",
        ),
        ({"grid": {"speed": [0]}}, "mine: grid.speed is no option; name one, or give each choice its options"),
        ({"grid": {"V": [1], "model.method.V": [2]}}, "mine: grid has V twice, once as model.method.V; leave one out"),
        (
            {"grid": {"V": [dt.date(2026, 1, 1)]}},
            "mine: grid.V: 2026-01-01 is no choice; give a number, a word or a list of them",
        ),
        ({"grid": []}, r"mine: grid must hold axes, such as .*"),
        ({"grid": {"x": {}}}, r"mine: grid.x must be a list of choices, such as \[0, 1, 2\]"),
        ({"grid": {"x": {"a": 3}}}, "mine: grid.x.a must hold the options that go with the choice, such as `{V: 10}`"),
        ({"grid": {"V": [{"a": 1}]}}, "mine: grid.V: {'a': 1} is no choice; give a number, a word or a list of them"),
        ({"grid": {"seed": [0]}, "also": 3}, "mine: also must hold pairs such as `{when: .*"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        Experiment("mine", content)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "override: 'seed' is not KEY=VALUE, such as seed=0 or V=10,100"),
        ("sed=0", r"override: there is no option sed; give a dotted key or one of seed, passes, method, .*"),
        ("passes=twice", "override: passes has no choice twice; known: online, offline"),
        ("V=[1", r"override: \[1 is no value of V; quote it as in YAML"),
        ("V=[]", r"override: V=\[\] leaves no choice; give one or more, as in V=10,100"),
        ("seed=[]", r"override: seed=\[\] leaves no choice; give one or more, as in V=10,100"),
        ("seed=1: 2", "override.seed: {1: 2} is no choice; give a number, a word or a list of them"),
        ("V=[[1,[2]],3]", r"override.V: \[1, \[2\]\] is no choice; give a number, a word or a list of them"),
    ],
)
def test_an_override_that_does_not_fit_is_refused(override: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        experiment(override, grid={"seed": [0], "passes": {"online": {}, "offline": {}}})
