from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from fedqcl.report.report import make_report

from ..helpers.browser import ask, needs_browser
from ..helpers.fake_runs import write_runs


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 4 runs of FedQCL and 2 of ER, and one that has not ended."""
    folder = tmp_path_factory.mktemp("page")
    write_runs(folder / "runs", "e7-V", ["seed=0,1", "config=cifar100", "V=10,200"])
    (er, _) = write_runs(folder / "runs", "e1-methods", ["seed=0,1", "config=cifar10", "method=ER"])
    (er / "config.yaml").write_text((er / "config.yaml").read_text() + "# </script><b>&amp;\n", encoding="utf-8")
    (folder / "runs/e7-V/unfinished").mkdir()
    (folder / "runs/e7-V/unfinished/config.yaml").touch()
    return make_report([folder / "runs"], folder / "report")


def test_it_is_one_file_that_asks_for_no_other(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"(?:src|href)=\"(.*?)\"", text)
    assert links
    assert not [link for link in links if not link.startswith(("#", "data:"))]
    assert "@import" not in text
    assert "url(" not in text


def test_it_is_readable_without_scripts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<h1>FedQCL: 6 runs</h1>" in text
    assert text.count("<tr><td><button data-run=") == 6
    assert re.search(r"Left out as unfinished: \S+/e7-V/unfinished\.", text)
    assert '<section id="e1-methods">' in text
    assert "Figure 3, left two of the paper. Seeds: 2." in text
    assert text.count("<figure>") == 3
    assert text.count("<td>test</td>") == 6
    (configs,) = re.findall(r'<script type="application/json" id="configs">(.*?)</script>', text, re.DOTALL)
    assert "V: 200" in json.loads(configs)[-1]


@needs_browser
def test_its_table_filters_and_sorts(page: Path) -> None:
    found = ask(
        page,
        """
        const shown = () => rows.filter((row) => !row.hidden).map((row) => row.cells[0].textContent);
        const box = document.querySelector("#filter");
        const type = (text) => { box.value = text; box.dispatchEvent(new Event("input")); return shown(); };
        const column = (name) => [...table.tHead.rows[0].cells].find((head) => head.textContent === name);
        const click = (name) => { column(name).querySelector("button").click(); return shown(); };
        const values = (name) => rows.map((row) => row.cells[column(name).cellIndex].textContent);
        const found = {all: shown(), two: type("V200 FEDQCL"), none: type("nothing"), again: type("").length};
        click("accuracy %"); found.up = values("accuracy %").map(Number);
        click("accuracy %"); found.down = values("accuracy %").map(Number); found.aria = column("accuracy %").ariaSort;
        click("V"); found.v = values("V");
        click("V"); found.vDown = values("V");
        found.count = document.querySelector("#shown").textContent;
        return found;
        """,
    )
    assert len(found["all"]) == found["again"] == 6
    assert found["two"] == ["cifar100-FedQCL-V200-seed0", "cifar100-FedQCL-V200-seed1"]
    assert found["none"] == []
    assert found["up"] == sorted(found["up"])
    assert found["down"] == found["up"][::-1]
    assert found["aria"] == "descending"
    assert found["v"] == ["10", "10", "200", "200", "", ""]
    assert found["vDown"] == ["200", "200", "10", "10", "", ""]  # what has no value stays at the end
    assert found["count"] == "6 of 6"


@needs_browser
def test_every_run_s_configuration_is_one_click_away(page: Path) -> None:
    found = ask(
        page,
        """
        return Object.fromEntries(rows.map((row) => {
          row.querySelector("button").click();
          const seen = [dialog.open, dialog.querySelector("pre").textContent];
          dialog.close();
          return [dialog.querySelector("h3").textContent, seen];
        }));
        """,
    )
    assert len(found) == 6
    assert all(opened for opened, _ in found.values())
    config = yaml.safe_load(found["cifar100-FedQCL-V200-seed1"][1])
    assert (config["seed_everything"], config["model"]["method"]["init_args"]["V"]) == (1, 200)
    assert found["cifar10-fair-ER-seed0"][1].endswith("# </script><b>&amp;\n")


@needs_browser
def test_it_fits_a_phone_and_follows_the_dark(page: Path, tmp_path: Path) -> None:
    frame = tmp_path / "phone.html"
    source = json.dumps(page.read_text(encoding="utf-8")).replace("<", "\\u003c")
    frame.write_text(f"<title></title><iframe width=390 height=800></iframe><script>const page = {source}</script>")
    look = """
        const frame = document.querySelector("iframe");
        const inside = frame.contentDocument;
        inside.open(); inside.write(page); inside.close();
        const root = inside.scrollingElement;
        const color = frame.contentWindow.getComputedStyle(inside.body).backgroundColor;
        return [root.scrollWidth, frame.contentWindow.innerWidth, color];
    """
    wide, window, color = ask(frame, look)
    assert wide <= window
    assert color == "rgb(255, 255, 255)"
    assert ask(frame, look, "--force-dark-mode")[2] == "rgb(26, 26, 26)"
