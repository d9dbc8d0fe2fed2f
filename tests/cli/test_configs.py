from __future__ import annotations

from pathlib import Path

import pytest

from fedqcl.cli import configs
from fedqcl.cli.configs import find_config, read_config, shipped_configs, shipped_folder
from fedqcl.errors import InputError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configs folder of an installed package; the working folder is another, empty one."""
    folder = tmp_path / "site-packages" / "fedqcl" / "configs"
    (folder / "presets").mkdir(parents=True)
    for name in ("first.yaml", "presets/second.yaml"):
        (folder / name).write_text("seed_everything: 1\n")
    monkeypatch.setattr(configs, "__file__", str(folder.parent / "cli" / "configs.py"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return folder


def test_shipped_with_an_installed_package(installed: Path) -> None:
    assert shipped_folder() == installed
    assert shipped_configs() == ["first.yaml", "presets/second.yaml"]


def test_shipped_with_a_source_checkout() -> None:
    assert {"quickstart.yaml", "cifar10.yaml", "cifar100.yaml", "tinyimagenet.yaml"} <= set(shipped_configs())


@pytest.mark.parametrize("name", ["first.yaml", "first", "presets/second.yaml", "presets/second"])
def test_found_by_name(installed: Path, name: str) -> None:
    assert find_config(name) == installed / f"{name.removesuffix('.yaml')}.yaml"


def test_the_working_folder_comes_first(installed: Path) -> None:
    Path("first.yaml").touch()
    assert find_config("first.yaml") == Path("first.yaml")
    assert find_config(str(Path("first.yaml").absolute())) == Path("first.yaml").absolute()
    Path("presets").mkdir()
    assert find_config("presets/second.yaml") == installed / "presets" / "second.yaml"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("frist.yaml", "config: there is no file frist.yaml; did you mean first.yaml? shipped configs: "),
        ("nothing/like.it", "config: there is no file nothing/like.it; shipped configs: "),
        (".", "config: there is no file .; shipped configs: "),
        ("", "config: has no value; give a file, or one of the shipped configs: "),
    ],
)
def test_not_found(installed: Path, name: str, line: str) -> None:
    with pytest.raises(InputError) as refused:
        find_config(name)
    assert str(refused.value) == f"{line}first.yaml, and presets"


def test_read(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("base: &b {x: 1, y: 2}\nchild: {<<: *b, x: 3}\nlast: 1e-3")
    assert read_config(file)["child"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: [3\nb: 4\n", "a.yaml, line 2: "),
        (b"a:\n\tb: 3\n", "a.yaml, line 2: found character '\\t' that cannot start any token"),
        (b"a: b: c\n", "a.yaml, line 1: mapping values are not allowed here"),
        (b"a: 1\nb: {c: 1, c: 2}\n", "a.yaml, line 2: c is given twice"),
        (b"[1, 2]: 3\n", "a.yaml, line 1: found unhashable key"),
        (b"x: \x00\n", "a.yaml, not YAML"),
        (b"x: \xff\n", "a.yaml is not a UTF-8 text file"),
        (b"- 3\n", "a.yaml holds no options; write `key: value` lines, such as `seed_everything: 0`"),
        (b"", "a.yaml holds no options; write `key: value` lines, such as `seed_everything: 0`"),
    ],
)
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_config(Path("a.yaml"))
    assert str(refused.value).startswith(f"config: {reason}")


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^config: .* cannot be read \(Is a directory\)$"):
        read_config(tmp_path)
