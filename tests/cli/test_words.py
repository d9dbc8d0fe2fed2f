from __future__ import annotations

import pytest

from fedqcl.cli.words import Option, in_order, split_options


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--a.b", "3"], [("--a.b", "3")]),
        (["--a.b=3"], [("--a.b", "3")]),
        (["--a=x=y"], [("--a", "x=y")]),
        (["--a="], [("--a", "")]),
        (["--a", "--b", "1"], [("--a", None), ("--b", "1")]),
        (["--a"], [("--a", None)]),
        (["--delta", "-1e-3"], [("--delta", "-1e-3")]),
        (["--delta", "-inf"], [("--delta", "-inf")]),
        (["--a", "-"], [("--a", "-")]),
        (["-q", "--a", "1", "-v"], [("-q", None), ("--a", "1"), ("-v", None)]),
        (["--quiet", "stray"], [("--quiet", None), ("", "stray")]),
        (["--a", "1", "2"], [("--a", "1"), ("", "2")]),
        (["-c", "x.yaml"], [("--config", "x.yaml")]),
        (["-c=x.yaml"], [("--config", "x.yaml")]),
        (["--print_config=skip_default"], [("--print_config", "skip_default")]),
        ([], []),
    ],
)
def test_split(words: list[str], options: list[tuple[str, str | None]]) -> None:
    assert split_options(words) == options


def test_words_come_back() -> None:
    options = split_options(["--a", "1", "-q", "stray", "--b="])
    assert [option.word() for option in options] == ["--a=1", "-q", "stray", "--b="]


def test_files_come_first_then_classes_then_their_options() -> None:
    words = ["--m.method.V", "3", "--m.method", "A", "--config", "1.yaml", "--m.method", "B", "--config", "2.yaml"]
    assert in_order(split_options(words)) == [
        Option("--config", "1.yaml"),
        Option("--config", "2.yaml"),
        Option("--m.method", "A"),
        Option("--m.method", "B"),
        Option("--m.method.V", "3"),
    ]
