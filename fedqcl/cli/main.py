"""The ``fedqcl`` command."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fedqcl.cli.configs import shipped_configs, shipped_experiments
from fedqcl.cli.lean import lean_imports
from fedqcl.cli.words import did_you_mean
from fedqcl.errors import ClassError, ClientError, InputError, RankError, account
from fedqcl.preemption import requeue_noted
from fedqcl.version import __version__

COMMANDS = {
    "fit": "train on all tasks and write a run folder",
    "validate": "evaluate a run's model on the images the run was measured on",
    "test": "evaluate a run's model on the test images",
    "sweep": "run what is missing of an experiment's runs",
    "report": "make tables, figures and a page of runs",
}


def main(args: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        args: the words after ``fedqcl``; those of this process by default.

    Returns:
        Exit status: 0, 2 after a mistake of the user's, 128 and the signal's number after a signal, 75 if the same
        command is to be run again, and otherwise 1, also if a run of a sweep failed, or what became of a rank that was
        killed.
    """
    try:
        try:
            return _answer(sys.argv[1:] if args is None else args)
        finally:
            print(end="", flush=True)  # when Python ends, it is too late to catch what that may raise
    except BrokenPipeError:  # who read the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _answer(words: list[str]) -> int:
    # PyTorch's own remarks on a connection that breaks off would bury what broke it.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    command = words[0] if words and words[0] in COMMANDS else ""
    try:
        if command:
            return _run(command, words[1:])
        print(_without_command(words))
    except (InputError, ClassError, ClientError, RankError, KeyboardInterrupt) as error:
        text, status = account(error, f"fedqcl {command}".strip())
        if text and _speaks():
            print(text, file=sys.stderr)
        return status
    return 0


def _run(command: str, words: list[str]) -> int:
    # A method of the user's own lies in the working folder; last, lest a file there hide a library.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    if command == "report":  # quick, as it needs no torch
        from fedqcl.cli.report import report

        return report(words)
    if command == "sweep":
        from fedqcl.cli.sweep import sweep

        return sweep(words)
    with requeue_noted():
        with lean_imports():
            from fedqcl.cli.lightning import run
        run(command, words)
    return 0


def _without_command(words: list[str]) -> str:
    """Answer a command line that starts with no command.

    Raises:
        InputError: it is neither ``--help`` nor ``--version`` nor empty.
    """
    if not words or words[0] in ("-h", "--help"):
        return _help()
    if words[0] == "--version":
        return f"fedqcl {__version__}"
    if words[0].startswith("-"):
        command = next((word for word in words if word in COMMANDS), "fit")
        rest = [word for word in words if word != command]
        raise InputError(f"{words[0]}: options come after the command; say `fedqcl {command} {' '.join(rest)}`")
    hint = did_you_mean(words[0], list(COMMANDS))
    there = "There" if hint else "there"
    raise InputError(f"{words[0]}: there is no such command; {hint}{there} are {', '.join(COMMANDS)}")


def _help() -> str:
    commands = "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())
    return f"""\
usage: fedqcl [-h] [--version] {{{",".join(COMMANDS)}}} [--config FILE] [options]

Federated continual learning as drift-plus-penalty control.

commands:
{commands}

Start with `fedqcl fit --config quickstart.yaml`. `fedqcl fit --help` lists every option.
Shipped configs: {", ".join(shipped_configs())}
Shipped experiments: {", ".join(shipped_experiments())}"""


def _speaks() -> bool:
    """Whether this is the first rank; the others have met the same mistake."""
    return (os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_PROCID") or "0") == "0"
