from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fedqcl.run.secrets import secrets_off_command_line, without_secrets
from fedqcl.run.wandb import WandbLogger
from tests.run.fake_run import run_info


def test_entries_named_like_secrets_are_left_out() -> None:
    config = {
        "api_key": "x",
        "WANDB_API_KEY": "x",
        "sources": [{"hub_token": "x", "root": "data"}],
        "tokens": 5,
        "model": {"password": "x", "mySecretKeys": ["x"], "V": 1.0},
    }
    assert without_secrets(config) == {"sources": [{"root": "data"}], "tokens": 5, "model": {"V": 1.0}}


def test_words_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["fedqcl", "fit", "--a.api_key", "x", "--token=x", "--b", "y", "--secret=x", "z", "--key", "-q", "key"]
    monkeypatch.setattr(sys, "argv", words)
    with secrets_off_command_line():
        assert sys.argv == [
            *["fedqcl", "fit", "--a.api_key", "***", "--token=***", "--b", "y", "--secret=***", "z", "--key", "-q"],
            "key",
        ]
    assert sys.argv is words


def test_an_offline_run_of_w_and_b_has_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the configuration, and not in the command line and the environment, which wandb records by itself."""
    import wandb

    seen: list[list[str]] = []
    init = wandb.init
    monkeypatch.setattr(wandb, "init", lambda **options: (seen.append(sys.argv), init(**options))[1])
    monkeypatch.setattr(sys, "argv", ["fedqcl", "--model.method.api_key", "word-of-mine", "--data.alpha", "1"])
    monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
    monkeypatch.setenv("MY_TOKEN", "env-of-mine")
    logger = WandbLogger(mode="offline")
    config = {"model": {"api_key": "config-of-mine", "public": "plain"}}
    logger.start(run_info(config=config), tmp_path, say=lambda line: None)
    logger.finish({})
    assert seen == [["fedqcl", "--model.method.api_key", "***", "--data.alpha", "1"]]
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"plain" in written
    for secret in (b"word-of-mine", b"env-of-mine", b"config-of-mine", b"f" * 40):
        assert secret not in written
