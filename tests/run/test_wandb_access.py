from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from fedqcl.run import wandb_access as module

pytestmark = pytest.mark.usefixtures("no_account")


def test_what_keeps_a_run_from_being_online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.obstacle() == "no API key"
    (tmp_path / "netrc").write_text("machine 127.0.0.1:9 login user password " + "a" * 40)
    assert module.obstacle() == "no connection to 127.0.0.1"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        assert module.obstacle() is None  # what is reached first is the proxy


def test_keys_in_a_netrc_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password " + "a" * 40)
    assert module._key_in_netrc("https://api.wandb.ai")
    assert module._key_in_netrc("https://api.forge.coreweave.com")
    assert not module._key_in_netrc("https://wandb.example.org")
    (tmp_path / "netrc").write_text("machine")
    assert not module._key_in_netrc("https://api.wandb.ai")


def test_a_name_that_never_resolves_costs_no_more_than_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def resolve(*args: object, **kwargs: object) -> None:
        release.wait(5)
        raise OSError("unknown name")

    monkeypatch.setattr(module, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(socket, "create_connection", resolve)
    since = time.monotonic()
    assert not module._reachable("nowhere.example", 443)
    assert time.monotonic() - since < 2
    release.set()
