from __future__ import annotations

import os
import signal
import sys

import pytest

from fedqcl.orphans import die_with

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel of Linux")


def child_of(read: int, write: int) -> None:
    """Become a process with a child that writes only once it is on its own, and be killed."""
    parent = os.getpid()
    ready, told = os.pipe()
    if os.fork() == 0:
        die_with(parent)
        os.write(told, b"!")
        os.read(read, 1)  # for ever: the test never writes
        os._exit(0)
    os.read(ready, 1)
    os.kill(parent, signal.SIGKILL)


def test_a_child_is_killed_with_its_parent() -> None:
    read, write = os.pipe()
    gone, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        child_of(read, write)
    os.waitpid(pid, 0)
    os.close(held)
    assert os.read(gone, 1) == b""  # nobody is left who holds the other end


def test_a_child_whose_parent_is_gone_already_ends() -> None:
    pid = os.fork()
    if pid == 0:
        die_with(os.getpid())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
