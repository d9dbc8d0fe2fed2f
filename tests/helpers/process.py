"""Other processes, and what a fit in this one leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run_python(
    *words: str, timeout: float = 120, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with the package and the tests in its path, in the current folder."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout,
        check=False,
    )


@contextmanager
def contained() -> Iterator[None]:
    """Restore the environment and end the process group that a block has started.

    A fit leaves LOCAL_RANK, WORLD_SIZE and the like; a later process would take itself for one rank of many and wait
    for the others.
    """
    environment = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
