from __future__ import annotations

from pathlib import Path

import pytest

from fedqcl.cli import main

from ..helpers.fake_runs import write_runs


@pytest.fixture(autouse=True)
def _work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_report_says_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    runs = write_runs(Path("runs"), "e9-queues-V", ["seed=0", "V=10,100"])
    assert main(["report", *map(str, runs)]) == 0
    assert capsys.readouterr().out == "report/index.html\nreport/tables\nreport/figures\n"
    assert main(["report", "runs", "--out", "a/b"]) == 0
    assert Path("a/b/index.html").is_file()


def test_a_report_in_the_place_of_another_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    runs = write_runs(Path("runs"), "e9-queues-V", ["seed=0", "V=10"])
    for words in ([], [], ["--out", "elsewhere"]):
        assert main(["report", *map(str, runs), *words]) == 0
    said = "in the place of an earlier report; --out FOLDER puts the next one elsewhere\n"
    places = "report/index.html\nreport/tables\nreport/figures\n"
    assert capsys.readouterr().out == 2 * places + said + places.replace("report", "elsewhere")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: RUNS"),
        (["nowhere"], "nowhere: there is no such folder; give runs' folders, or a folder that holds some"),
        (["."], ".: no finished run there; a finished one has a summary.json"),
    ],
)
def test_mistakes_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *words]) == 2
    assert capsys.readouterr().err == f"fedqcl report: error: {message}\n"
