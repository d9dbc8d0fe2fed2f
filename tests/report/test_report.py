from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

import pytest
import yaml

from fedqcl.errors import InputError
from fedqcl.report.report import make_report
from fedqcl.run import RunFolder

from ..helpers.fake_runs import made_up_summary, write_runs


def test_an_experiment_becomes_a_page_tables_and_figures(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", "e7-V", ["seed=0", "config=cifar100", "V=10,200"])
    out = tmp_path / "report"
    assert make_report([tmp_path / "runs"], out) == out / "index.html"
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.*")) == [
        *(f"figures/e7-V-sweep-V-Split-CIFAR-100-{name}.svg" for name in ("accuracy", "forgetting", "last-task")),
        "index.html",
        *(f"tables/e7-V.{suffix}" for suffix in ("csv", "md", "tex")),
    ]
    assert "54.52 ± 0.84" in (out / "tables/e7-V.md").read_text(encoding="utf-8")


def test_equal_runs_give_equal_files(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", "e9-queues-V", ["seed=0", "V=10"])
    contents = []
    for name in ("a", "b"):
        make_report([tmp_path / "runs"], tmp_path / name)
        contents.append([path.read_bytes() for path in sorted((tmp_path / name).rglob("*.*"))])
    assert contents[0] == contents[1]


def test_runs_of_no_experiment_are_compared_too(tmp_path: Path) -> None:
    for method in ("ER", "FedQCL"):
        folder = tmp_path / "runs" / method
        folder.mkdir(parents=True)
        config = {
            "seed_everything": 0,
            "trainer": {"rounds": 10},
            "model": {"method": {"class_path": f"x.{method}"}},
            "data": {"source": {"class_path": "x.Digits"}},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        summary = made_up_summary(method, 3, 0, method) | {"queue_matrix": None}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    make_report([tmp_path / "runs"], tmp_path / "report")
    assert sorted(path.name for path in (tmp_path / "report/figures").iterdir()) == [
        "other-runs-curves-Split-Digits-accuracy.svg",
        "other-runs-curves-Split-Digits-forgetting.svg",
        "other-runs-pareto-Split-Digits.svg",
    ]


def test_a_choice_may_be_a_list(tmp_path: Path) -> None:
    for path in write_runs(tmp_path / "runs", "e14-tasks", ["seed=0", "config=cifar100", "method=ER", "T=5,10"]):
        places = path / "sweep.json"
        places.write_text(places.read_text(encoding="utf-8").replace('"T": 5', '"T": [20, 80]'), encoding="utf-8")
    make_report([tmp_path / "runs"], tmp_path / "report")
    with (tmp_path / "report/tables/e14-tasks.csv").open(encoding="utf-8") as file:
        assert [row["T"] for row in csv.DictReader(file)] == ["10", "[20, 80]"]


def test_a_new_title_is_that_of_the_newest_mark(tmp_path: Path) -> None:
    first, second = write_runs(tmp_path / "runs", "e7-V", ["seed=0", "config=cifar100", "V=10,200"])
    places = RunFolder(second).read_places()
    places["e7-V"]["title"] = "A new title"
    RunFolder(second).write_places(places)
    os.utime(first / "sweep.json", (0, 0))
    assert "<h2>A new title</h2>" in make_report([tmp_path / "runs"], tmp_path / "report").read_text(encoding="utf-8")


def test_experiments_whose_names_are_alike_keep_their_files_and_sections(tmp_path: Path) -> None:
    runs = write_runs(tmp_path / "runs", "e7-V", ["seed=0", "config=cifar100", "V=10,200"])
    for path, name in zip(runs, ("a b", "a-b"), strict=True):
        places = path / "sweep.json"
        places.write_text(places.read_text(encoding="utf-8").replace("e7-V", name), encoding="utf-8")
    page = make_report([tmp_path / "runs"], tmp_path / "report").read_text(encoding="utf-8")
    for name in ("a-b", "a-b-2"):
        assert page.count(f'<section id="{name}">') == page.count(f'href="#{name}"') == 1
        assert f"Files: {name}.csv, .md and .tex in tables." in page
        assert len((tmp_path / f"report/tables/{name}.csv").read_text(encoding="utf-8").splitlines()) == 2
    assert len(list((tmp_path / "report/figures").iterdir())) == page.count("<figure>") == 6


@pytest.mark.parametrize("name", ["runs", "filter", "shown", "config", "configs"])
def test_an_experiment_called_like_a_part_of_the_page_gets_another_id(name: str, tmp_path: Path) -> None:
    (path,) = write_runs(tmp_path / "runs", "e9-queues-V", ["seed=0", "V=10"])
    places = path / "sweep.json"
    places.write_text(places.read_text(encoding="utf-8").replace("e9-queues-V", name), encoding="utf-8")
    page = make_report([tmp_path / "runs"], tmp_path / "report").read_text(encoding="utf-8")
    assert page.count(f'id="{name}"') == page.count(f'<section id="{name}-2">') == 1


@pytest.mark.parametrize("view", ["cues over V", "sweep", "table V"])
def test_a_view_that_there_is_not_is_refused(view: str, tmp_path: Path) -> None:
    (path,) = write_runs(tmp_path / "runs", "e9-queues-V", ["seed=0", "V=10"])
    places = path / "sweep.json"
    places.write_text(places.read_text(encoding="utf-8").replace("queues over V", view), encoding="utf-8")
    with pytest.raises(
        InputError,
        match=f"e9-queues-V: show: there is no view '{view}'; known: table, table by AXIS, complexity, curves",
    ):
        make_report([tmp_path / "runs"], tmp_path / "report")


def test_a_section_without_a_figure_shows_its_table(tmp_path: Path) -> None:
    (path,) = write_runs(tmp_path / "runs", "e9-queues-V", ["seed=0", "V=10"])
    places = path / "sweep.json"
    places.write_text(places.read_text(encoding="utf-8").replace("queues over V", "sweep over M"), encoding="utf-8")
    page = make_report([tmp_path / "runs"], tmp_path / "report").read_text(encoding="utf-8")
    section = page[page.index('<section id="e9-queues-V">') :].partition("</section>")[0]
    assert "<figure>" not in section
    assert section.count("<table>") == 1
    assert list((tmp_path / "report/figures").iterdir()) == []


def test_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", "e9-queues-V", ["seed=0", "V=10"])
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"out: \S+/file\S* cannot be written"):
        make_report([tmp_path / "runs"], tmp_path / "file")


def test_a_thousand_runs_take_seconds(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", "e1-methods", [f"seed={','.join(map(str, range(31)))}"])
    started = time.perf_counter()
    make_report([tmp_path / "runs"], tmp_path / "report")
    assert len(list((tmp_path / "runs/e1-methods").iterdir())) == 31 * 33
    assert time.perf_counter() - started < 30
