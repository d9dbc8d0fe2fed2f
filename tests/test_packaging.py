"""What a wheel and an sdist hold, and that what is said in several places agrees."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from fedqcl.version import __version__
from tests.helpers.process import REPOSITORY

SHIPPED = ("py.typed", "report/page.css", "report/page.html", "report/page.js", "report/paper.yaml")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    file = next(WheelBuilder(str(REPOSITORY)).build(directory=str(tmp_path_factory.mktemp("wheel"))))
    with zipfile.ZipFile(file) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    file = next(SdistBuilder(str(REPOSITORY)).build(directory=str(tmp_path_factory.mktemp("sdist"))))
    with tarfile.open(file) as archive:
        return {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}


def below(folder: str, pattern: str) -> set[str]:
    """Files of the repository, by their path in it."""
    return {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / folder).rglob(pattern)}


def test_a_wheel_holds_the_package_its_configs_and_nothing_else(wheel: set[str]) -> None:
    shipped = {f"fedqcl/{name}" for name in SHIPPED}
    files = below("fedqcl", "*.py") | shipped | {f"fedqcl/{name}" for name in below("configs", "*.yaml")}
    metadata = {name for name in wheel if name.startswith(f"fedqcl-{__version__}.dist-info/")}
    assert wheel - metadata == files
    assert f"fedqcl-{__version__}.dist-info/licenses/LICENSE" in metadata


def test_an_sdist_holds_what_a_wheel_is_made_from_and_tested_with(sdist: set[str]) -> None:
    package = below("fedqcl", "*.py") | {f"fedqcl/{name}" for name in SHIPPED}
    around = {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "slurm/fit.sbatch", "examples/anchored.py"}
    assert package | below("configs", "*.yaml") | below("tests", "*.py") | around <= sdist


def test_neither_holds_what_work_leaves_behind(wheel: set[str], sdist: set[str]) -> None:
    for name in wheel | sdist:
        path = Path(name)
        assert path.suffix != ".pyc", name
        assert not {"__pycache__", "runs", "wandb", ".hypothesis", ".git"} & {*path.parts}, name


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    authors = citation["preferred-citation"]["authors"]
    bibtex = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in authors)
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    assert f"author = {{{bibtex}}}" in readme
    assert citation["preferred-citation"]["title"] in readme
