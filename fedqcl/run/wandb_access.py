"""Whether a run can be logged to Weights & Biases online, found out without asking anybody, in seconds."""

from __future__ import annotations

import contextlib
import netrc
import os
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

PROBE_SECONDS = 3


def obstacle() -> str | None:
    """Why a run cannot be logged online; None if it can."""
    import wandb

    settings = wandb.setup(wandb.Settings(silent=True)).settings
    if not (settings.api_key or os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or _key_in_netrc(settings.base_url)):
        return "no API key"
    host, port = _gateway(settings.base_url)
    return None if _reachable(host, port) else f"no connection to {host}"


def _key_in_netrc(url: str) -> bool:
    """Whether the user's netrc file has a key for the server; wandb's own server has gone by two names."""
    host = urlsplit(url).netloc
    names = {host, "api.wandb.ai"} if host == "api.forge.coreweave.com" else {host}
    for path in [os.environ["NETRC"]] if os.environ.get("NETRC") else ["~/.netrc", "~/_netrc"]:
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if names & netrc.netrc(Path(path).expanduser()).hosts.keys():
                return True
    return False


def _gateway(url: str) -> tuple[str, int]:
    """Host and port that a connection to ``url`` is made to first: the server's, or a proxy's."""
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    if proxy and not proxy_bypass(parts.hostname or ""):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)


def _reachable(host: str, port: int) -> bool:
    """Whether a connection comes about in ``PROBE_SECONDS``, the look-up of the name included."""
    answered = threading.Event()

    def probe() -> None:
        try:
            socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
        except OSError:
            return
        answered.set()

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answered.is_set()
