from __future__ import annotations

import pytest

from fedqcl.engine.pulse import LostContactError
from fedqcl.engine.verdict import in_short, verdict


@pytest.mark.parametrize(
    ("code", "line", "status"),
    [
        (0, "", 0),
        (5, "rank 2 ended with status 5", 5),
        (75, "", 75),  # asked to stop, and to be started again
        (143, "", 143),  # asked to stop
        (-15, "rank 2 was killed by SIGTERM", 143),
        (-9, "rank 2 was killed by SIGKILL; the machine may be out of memory", 137),
    ],
)
def test_what_became_of_a_rank(code: int, line: str, status: int) -> None:
    assert verdict(2, code) == (line, status)


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("[/a/b.cc:561] Connection closed by peer [127.0.0.1]:39. This is typically", "Connection closed by peer"),
        ("[1] [/a/b.cc:5] Timed out waiting\nfor it", "Timed out waiting"),
        ("something else", "something else"),
    ],
)
def test_a_lost_connection_inin_short(said: str, short: str) -> None:
    assert in_short(LostContactError(said)).startswith(short)
