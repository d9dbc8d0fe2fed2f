"""What the site says: its commands run, its files work, and it leaves nothing out."""

from __future__ import annotations

import itertools
import json
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from fedqcl.cli import main
from fedqcl.cli.configs import shipped_configs, shipped_experiments
from tests.helpers.documents import ROOT, blocks, check_parses, commands, read, titled_blocks
from tests.helpers.methods import shipped_methods
from tests.helpers.process import contained
from tests.test_imports import KNOWS, rooms_used

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
OWN = sorted(set(commands(*PAGES)) - set(commands("README.md")))
TINY = ["--data.tasks=2", "--data.num_clients=2"]
TINY += ["--trainer.devices=1", "--trainer.rounds=1", "--trainer.epochs=1", "--quiet"]
MADE = {"reproducibility.md", "changelog.md", "contributing.md"}  # when the site is built


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with every file that a page has one write, and the search path and modules as they were."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    shown = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "examples").iterdir() if file.is_file()}
    for name, code in itertools.chain(shown.items(), *(titled_blocks(page).items() for page in PAGES)):
        Path(name).write_text(code, encoding="utf-8")
        monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
    return tmp_path


def write_photos(classes: int = 4, images: int = 6) -> None:
    """Plain grey images, the shade by the class."""
    for label, number in itertools.product(range(classes), range(images)):
        folder = Path("photos", f"class-{label}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (16, 16), 60 * label + number).save(folder / f"{number}.png")


def nav_pages(entry: Any) -> list[str]:
    """All pages in a part of ``mkdocs.yml``'s navigation."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in nav_pages(part)]


@pytest.mark.parametrize("command", OWN)
def test_every_command_parses(command: str) -> None:
    check_parses(command)


def test_the_tutorial_runs_from_folders_and_from_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    write_photos()
    fit, test, *rest = commands("docs/tutorial.md")
    assert main([*shlex.split(fit)[1:], *TINY]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = "".join(blocks("docs/tutorial.md", "text")).splitlines()
    assert all(line.split() in printed for line in shown if line.startswith("  pictures"))
    assert main(shlex.split(test)[1:]) == 0
    going_on = [command for command in rest if "--ckpt_path" in command]
    for command in going_on:
        options = TINY if "--config" in command else []
        assert main([*shlex.split(command)[1:], *options]) == 0
    assert len(going_on) == 2
    assert [path.name for path in Path("runs").iterdir()] == ["photos-FedQCL-seed0"]
    runpy.run_path("arrays.py")
    (from_arrays,) = (command for command in rest if "Npz" in command)
    few = np.load("images.npz")
    np.savez("images.npz", **{name: few[name][:60] for name in few.files})
    assert main([*shlex.split(from_arrays)[1:], *TINY]) == 0
    assert main(["report", "runs"]) == 0
    assert "images-FedQCL-seed0" in Path("report/index.html").read_text(encoding="utf-8")


def test_a_run_from_python() -> None:
    with contained():
        runpy.run_path("script.py")
    summary = json.loads(Path("runs/script/summary.json").read_text(encoding="utf-8"))
    assert summary["average_accuracy"] > 0.5
    assert main(["report", "runs"]) == 0


def test_the_tutorials_digits_are_a_folder_of_ten_classes() -> None:
    runpy.run_path("digits.py")
    assert len(list(Path("photos").iterdir())) == 10
    with Image.open(next(Path("photos/digit-3").iterdir())) as image:
        assert image.size == (8, 8)


def test_the_tutorials_table_agrees_with_its_run() -> None:
    """Average accuracy and forgetting, worked out from the table."""
    text = "".join(blocks("docs/tutorial.md", "text"))
    rows = re.findall(r"^ +\d +\S+ \S+ +([\d.]+) +([\d.]+) +([\d.]+|-) +[\d.-]+$", text, re.MULTILINE)
    learned, final, forgotten = zip(*rows, strict=True)
    assert len(rows) == 5
    assert np.mean([float(value) for value in final]) == pytest.approx(92.8, abs=0.06)
    assert np.mean([float(value) for value in forgotten[:4]]) == pytest.approx(8.0, abs=0.06)
    assert np.mean([float(value) for value in learned]) == pytest.approx(98.9, abs=0.06)


def test_a_source_a_net_and_a_plot_of_ones_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    source, net = (
        next(shlex.split(command) for command in commands("docs/extending.md") if name in command)
        for name in ("stripes.Stripes", "plain.Plain")
    )
    assert main([*source[1:], *net[4:], *TINY, "--trainer.name=own"]) == 0
    config = yaml.safe_load(Path("runs/own/config.yaml").read_text(encoding="utf-8"))
    assert config["data"]["source"] == {"class_path": "stripes.Stripes", "init_args": {"classes": 10, "images": 40}}
    assert config["model"]["net"] == {"class_path": "plain.Plain", "init_args": {"width": 16}}
    assert json.loads(Path("runs/own/summary.json").read_text(encoding="utf-8"))["average_accuracy"] > 0
    monkeypatch.setattr(sys, "argv", ["drift.py", "runs/own"])
    runpy.run_path("drift.py", run_name="__main__")
    assert Path("drift.png").stat().st_size > 1000


def test_every_method_has_a_page_and_the_page_its_parts() -> None:
    names = {cls.__name__ for cls in shipped_methods()}
    listed = set(nav_pages(yaml.safe_load(read("mkdocs.yml"))["nav"]))
    assert {f"methods/{name.lower()}.md" for name in names} | {"methods/index.md"} == {
        page for page in listed if page.startswith("methods/")
    }
    for name in names:
        headings = re.findall("^## (.*)$", read(f"docs/methods/{name.lower()}.md"), re.MULTILINE)
        assert {"Objective", "What it sends, stores and computes", "Differences from its source"} <= set(headings)
    overview = re.findall(r"^\| \[(\w+)\]\(", read("docs/methods/index.md"), re.MULTILINE)
    assert set(overview) == names


def test_a_command_is_named_for_every_table_and_figure_and_every_experiment() -> None:
    page = read("docs/experiments.md").partition("```")[0]
    named = set(re.findall(r"`fedqcl sweep (\w+)`", page))
    assert {name.partition("-")[0] for name in shipped_experiments()} == named
    shown = " ".join(re.findall(r"^\| ((?:Table|Figure).*?) \|", page, re.MULTILINE))
    assert {int(number) for number in re.findall(r"(?:Figures?|and) (\d+)", shown)} == set(range(1, 11))
    assert {int(number) for number in re.findall(r"Table (\d+)", shown)} == {1, 2, 4}  # 3 lists settings


def test_every_page_is_in_the_navigation() -> None:
    listed = nav_pages(yaml.safe_load(read("mkdocs.yml"))["nav"])
    assert sorted(listed) == sorted({*(page.removeprefix("docs/") for page in PAGES), *MADE})


def test_the_rooms_are_listed_in_the_order_of_imports() -> None:
    section = read("docs/design.md").partition("## Rooms")[2].partition("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)]
    level = {room: number for number, row in enumerate(rows) for room in row}
    assert level.keys() == KNOWS.keys()
    assert not [(room, used) for room in KNOWS for used in rooms_used(room) if level[used] > level[room]]


@pytest.mark.parametrize("page", PAGES)
def test_every_config_named_is_shipped_or_shown(page: str) -> None:
    named = set(re.findall(r"\b[\w/]+\.yaml\b", read(page))) - {"config.yaml"}
    assert named <= {*shipped_configs(), *titled_blocks(page)}
