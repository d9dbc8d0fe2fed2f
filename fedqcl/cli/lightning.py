"""LightningCLI over a trainer that is no Lightning Trainer."""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined]
from lightning.fabric.utilities.seed import seed_everything
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from fedqcl.cli.check import Group, Linked, check
from fedqcl.cli.configs import find_config, read_config, shipped_configs
from fedqcl.cli.given import Given, given_in_file, given_in_words
from fedqcl.cli.words import Option, in_order, split_options
from fedqcl.data import FederatedData
from fedqcl.errors import ClassError, InputError, first_line
from fedqcl.learner import Learner
from fedqcl.resume import folder_of_run
from fedqcl.run.secrets import without_secrets
from fedqcl.signature import ClassHint, Parameter, class_hint, parameters
from fedqcl.trainer import FederatedTrainer
from fedqcl.types import Seed
from fedqcl.version import __version__

_SEEDED = ("data",)
_WORDS_ONLY = ("config", "quiet", "verbose", "help", "print_config")


def run(command: str, words: list[str]) -> None:
    """Run one command.

    Args:
        command: ``fit``, ``validate`` or ``test``.
        words: what follows it on the command line.

    Raises:
        InputError: a mistake in the command line, in a config file or in the data.
        ClassError: a class that an option chose raised.
        SystemExit: ``--help`` and ``--print_config`` end here.
    """
    cli = FederatedCLI(command, words)
    trainer: FederatedTrainer = cli.trainer
    arguments = {name: cli.config[name] for name in cli.command_arguments}
    trainer.config_text = config_yaml(cli.parser, cli.config)
    trainer.config = yaml.safe_load(trainer.config_text)
    trainer.complete = completed
    getattr(trainer, command)(cli.model, cli.datamodule, **arguments)


def whole_config(words: list[str]) -> dict[str, Any]:
    """The whole configuration that the words of ``fedqcl fit`` make, nested as in its file.

    Raises:
        InputError: a mistake in the words or in a config file.
        ClassError: a class that an option chose raised.
    """
    cli = FederatedCLI("fit", words)
    config: dict[str, Any] = yaml.safe_load(config_yaml(cli.parser, cli.config))
    return config


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration with today's defaults where it lacks an option; empty if it can no longer be used."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        yaml.safe_dump(config, file)
        file.flush()
        try:
            return whole_config([f"--config={file.name}"])
        except Exception:  # an option that is no more, or whatever a class of the user's own raises
            return {}


def config_yaml(parser: LightningArgumentParser, config: Namespace) -> str:
    """A run's whole configuration as YAML: given as ``--config`` it repeats the run, under a name of its own.

    What is named like a key or a password is left out, and must be given again.
    """
    config = config.clone()
    for name in ("config", "ckpt_path"):
        config.pop(name, None)
    config["trainer.name"] = None
    text: str = parser.dump(config, skip_none=False, skip_validation=True)  # some commands require ckpt_path
    content = yaml.safe_load(text)
    public = without_secrets(content)
    return text if public == content else yaml.safe_dump(public, sort_keys=False)


class FederatedCLI(LightningCLI):
    """Parses one command's options and makes the learner, the data and the trainer.

    Args:
        command: the name of a method of :class:`FederatedTrainer`.
        words: the command's options.
    """

    trainer: Any

    def __init__(self, command: str, words: list[str]) -> None:
        _prepare_libraries()
        self.command = command
        self.command_arguments: list[str] = []
        trainer_class: Any = FederatedTrainer
        super().__init__(
            Learner,
            FederatedData,
            trainer_class=trainer_class,
            parser_class=_Parser,
            parser_kwargs={
                "prog": f"fedqcl {command}",
                "usage": f"fedqcl {command} [--config FILE] [--KEY VALUE ...]",
                "description": (getattr(FederatedTrainer, command).__doc__ or "").partition("\n")[0],
                "dump_header": [f"fedqcl {__version__}"],
                "exit_on_error": False,
            },
            save_config_callback=None,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            run=False,
            args=words,
        )

    def init_parser(self, **kwargs: Any) -> LightningArgumentParser:
        """A parser with ``--config`` and nothing else."""
        parser = self.parser_class(**kwargs)
        known = ", ".join(shipped_configs())
        parser.add_argument(
            "-c", "--config", action=ActionConfigFile, help=f"YAML file, or the name of a shipped one: {known}."
        )
        return parser

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Options that are no argument of a class."""
        parser.add_argument("--seed_everything", type=Seed, default=0, help="Decides everything random.")
        for flag, level in (("--quiet", "quiet"), ("--verbose", "verbose")):
            parser.add_argument(flag[1:3], flag, action=_SetConsole, help=f"The same as --trainer.console {level}.")

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The seed's links, and the arguments of the command itself."""
        for group in _SEEDED:
            parser.link_arguments("seed_everything", f"{group}.seed")
        self.command_arguments = parser.add_method_arguments(
            FederatedTrainer, self.command, skip={"model", "datamodule"}
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Find the config files, check everything, then let jsonargparse put it together."""
        options = self._with_configs(in_order(split_options(args)))
        names = {option.name for option in options}
        if not names & {"-h", "--help"} and not any(name.endswith(".help") for name in names):
            self._check(parser, options, complete="--print_config" not in names)
        try:
            self.config = parser.parse_args([option.word() for option in options])
        except argparse.ArgumentError as error:
            raise InputError(parser_line(str(error))) from None

    def _with_configs(self, options: list[Option]) -> list[Option]:
        """Find the config files; a finished run brings its own."""
        given = dict(options)
        if not given and self.command == "fit":
            raise InputError(f"config: nothing was given; give --config and one of {', '.join(shipped_configs())}")
        checkpoint = given.get("--ckpt_path")
        by_config = self.command == "fit" and checkpoint in ("last", "auto")
        if by_config and not {"--config", "--model.method"} & given.keys():
            raise InputError(f"ckpt_path: {checkpoint} finds a run by its configuration; give --config as well")
        if checkpoint and not by_config:
            config = _config_of_run(Path(checkpoint), self.command, needed="--config" not in given)
            options = [Option("--config", str(config)), *options] if config else options
        return [Option(n, str(find_config(v or ""))) if n == "--config" else Option(n, v) for n, v in options]

    def _check(self, parser: LightningArgumentParser, options: list[Option], complete: bool) -> None:
        given: list[Given] = []
        for name, value in options:
            if name == "--config" and value:
                given += given_in_file(read_config(Path(value)), Path(value).name)
        given += given_in_words(options)
        tree = self._tree()
        defaults = _default_classes(parser, tree)
        chosen = check(tree, defaults, given, complete)
        # jsonargparse would hand the options of a default class down to the class chosen in its place.
        for key, default in defaults.items():
            cls = chosen[key]
            if cls is not None and cls is not default:
                parser.set_defaults({key: {"class_path": f"{cls.__module__}.{cls.__qualname__}"}})

    def _tree(self) -> Group:
        """All that may be given."""
        tree: dict[str, Any] = {
            name: Parameter(str, required=True, words="a run's folder, such as runs/NAME")
            for name in self.command_arguments
        }
        if self.command == "fit":
            tree["ckpt_path"] = Parameter(str | None, words="a run's folder, such as runs/NAME, or last or auto")
        tree["seed_everything"] = Parameter(Seed)
        tree["trainer"] = parameters(FederatedTrainer)
        tree["model"] = parameters(Learner)
        tree["data"] = parameters(FederatedData)
        for group in _SEEDED:
            tree[group]["seed"] = Linked(by="seed_everything")
        return tree | {name: Linked(by=f"--{name} on the command line") for name in _WORDS_ONLY}

    def _set_seed(self) -> None:
        seed_everything(self.config["seed_everything"], workers=True, verbose=False)

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        """The trainer; Lightning's callbacks have no place in it."""
        return FederatedTrainer(**self.config_init["trainer"], **kwargs)

    def before_instantiate_classes(self) -> None:
        """Have whatever a class of the user's own raises told with the option that chose it."""
        for key, asked in _class_options(self._tree()):
            if not asked.supplied:
                self.parser.add_instantiator(partial(_make, key), asked.base)


def parser_line(message: str) -> str:
    """What jsonargparse reports in many lines, for the rare mistake that :func:`check` cannot judge."""
    # Every value of a class might have been the path of a file, but was not.
    lines = [line.strip(" -") for line in message.splitlines() if "path but" not in line]
    return " ".join(" ".join(lines).replace('Parser key "', "").replace('":', ":").split())


class _Parser(LightningArgumentParser):
    """Lightning's parser takes no trainer but its own; this one takes ours."""

    def add_lightning_class_args(
        self, lightning_class: Any, nested_key: str, subclass_mode: bool = False, required: bool = True
    ) -> list[str]:
        if lightning_class is FederatedTrainer:
            names: list[str] = self.add_class_arguments(
                lightning_class, nested_key, fail_untyped=False, instantiate=False, sub_configs=True
            )
            return names
        return super().add_lightning_class_args(lightning_class, nested_key, subclass_mode, required)


class _SetConsole(argparse.Action):
    """``-q`` and ``-v``: short for a value of ``trainer.console``."""

    def __init__(self, option_strings: list[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **kwargs)
        self.level = dest

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace["trainer.console"] = self.level


def _config_of_run(checkpoint: Path, command: str, needed: bool) -> Path | None:
    """The config of the run that ``--ckpt_path`` names, by its folder or what is in it; None if not needed."""
    if not checkpoint.exists():
        raise InputError(f"ckpt_path: there is no run at {checkpoint}; give a run's folder, such as runs/NAME")
    if not needed:
        return None
    config = folder_of_run(checkpoint) / "config.yaml"
    instead = "" if command == "fit" else ", or give --config as well"
    if not config.is_file():
        raise InputError(f"ckpt_path: {config} does not exist; give a run's folder{instead}")
    if not config.stat().st_size:
        raise InputError(f"ckpt_path: {config} is empty, as of a run made from Python; go on there{instead}")
    return config


def _default_classes(parser: LightningArgumentParser, tree: Group) -> dict[str, type]:
    """The classes that are chosen if the user chooses none, by key."""
    defaults = parser.get_defaults()
    paths = {key: (asked, defaults.get(f"{key}.class_path")) for key, asked in _class_options(tree)}
    return {key: asked.find(path) for key, (asked, path) in paths.items() if path}


def _class_options(tree: Group) -> Iterator[tuple[str, ClassHint]]:
    """The options that choose a class, by key."""
    for group, options in tree.items():
        for name, option in options.items() if isinstance(options, dict) else []:
            asked = class_hint(option.hint) if isinstance(option, Parameter) else None
            if asked:
                yield f"{group}.{name}", asked


def _make(key: str, cls: type, *args: Any, **kwargs: Any) -> Any:
    try:
        return cls(*args, **kwargs)
    except InputError:
        raise
    except Exception as error:
        raise ClassError(f"{key}: {first_line(error)}") from error


def _prepare_libraries() -> None:
    """Keep remarks that are no concern of the user's off the console, and let YAML write numbers of our types."""
    # Lightning 2.6 calls jsonargparse in ways that jsonargparse has deprecated.
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # jsonargparse parses a Count to a subclass of int, and hands it on as such if another class takes a plain int.
    yaml.SafeDumper.add_multi_representer(int, lambda dumper, value: dumper.represent_int(int(value)))
    yaml.SafeDumper.add_multi_representer(float, lambda dumper, value: dumper.represent_float(float(value)))
