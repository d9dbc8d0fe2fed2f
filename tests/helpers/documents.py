"""What the documents hold: their code blocks and the commands in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fedqcl.cli import main
from fedqcl.cli.lightning import FederatedCLI
from tests.helpers.fake_runs import write_runs

ROOT = Path(__file__).parents[2]


def read(document: str) -> str:
    """A document's text."""
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of a language, but those with a title."""
    return re.findall(rf"^```{language}\n(.*?)^```$", read(document), re.DOTALL | re.MULTILINE)


def titled_blocks(document: str) -> dict[str, str]:
    """The code blocks that are files, by name."""
    return dict(re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```$', read(document), re.DOTALL | re.MULTILINE))


def commands(*documents: str) -> list[str]:
    """The ``fedqcl`` lines of all shell blocks, without comments."""
    lines = [line for document in documents for block in blocks(document, "bash") for line in block.splitlines()]
    return [shlex.join(words) for line in lines if (words := shlex.split(line, comments=True))[:1] == ["fedqcl"]]


def check_parses(command: str) -> None:
    """Check that a command is understood; what it names must be in the working folder."""
    _, job, *words = shlex.split(command)
    if job == "report":
        write_runs(Path("runs"), "e9-queues-V", ["seed=0", "V=10"])
        assert main([job, *words]) == 0
        return
    if job == "sweep":
        few = ["method=FedQCL"] if re.match(r"e\d", words[0]) else []
        assert main([job, *words, "--override", "seed=0", *few, "--list"]) == 0
        return
    if "--ckpt_path" in words:
        finished_run(Path(words[words.index("--ckpt_path") + 1]))
    assert FederatedCLI(job, words).command == job


def finished_run(folder: Path) -> None:
    """What ``test`` needs to find its options."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("data: {source: Digits}\nmodel: {method: FedQCL}\n", encoding="utf-8")
