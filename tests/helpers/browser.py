"""A headless Chromium, where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason=f"there is no browser: none of {', '.join(NAMES)}")


def ask(page: Path, script: str, *flags: str, width: int = 1280) -> Any:
    """Open a page without a network and run a script in it.

    Args:
        page: an HTML file.
        script: JavaScript whose ``return`` value, as JSON, is handed back.
        flags: for the browser.
        width: of the window.
    """
    assert CHROMIUM
    probe = page.with_name("probe.html")
    wrapped = f"<script>document.title = JSON.stringify((() => {{ {script} }})());</script>"
    probe.write_text(page.read_text(encoding="utf-8") + wrapped, encoding="utf-8")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [
                *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"),
                *("--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={width},900", *flags),
                *("--dump-dom", probe.as_uri()),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    (title,) = re.findall(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    return json.loads(unescape(title))
